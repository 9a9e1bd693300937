/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: what the host reads from an image: libgomp's table with names
 * in order and kernels left out, descriptors with their signatures, symbols;
 * a table of another length, and names that are not there, are errors.
 * Images: gomp typed novar
 */
#include "lab.h"

static void gomp_table(struct revoff_device *d)
{
	static const char *const names[] = { "kernel", "one", "two", "three" };
	struct revoff_image_options io = { names, 3, -1 };
	struct revoff_image *image;
	struct revoff_function f, g;
	unsigned n;

	lab_ok(lab_try_load(d, "gomp", &io, &image));
	t_check(revoff_image_function_count(image) == 2);
	lab_ok(revoff_image_function(image, 0, &f));
	lab_ok(revoff_image_function(image, 1, &g));
	t_check(!strcmp(f.name, "one") && !strcmp(g.name, "two"));
	t_check(f.kind == REVOFF_FUNCTION_GOMP && f.fn && g.fn);
	t_check(f.fn != g.fn && !*f.signature);
	t_check(revoff_image_find(image, "two") == 1);
	lab_refused(revoff_image_find(image, "kernel"), REVOFF_ENOTFOUND,
		    "kernel");
	lab_refused(revoff_image_function(image, 2, &f), REVOFF_ENOTFOUND, "2");
	lab_refused(revoff_image_bind(image, 2, NULL, NULL), REVOFF_ENOTFOUND,
		    "2");
	lab_ok(revoff_image_unload(image));
	for (n = 1; n <= 4; ++n) {
		if (n == 3)
			continue;
		io.nfunction_names = n;
		lab_refused(lab_try_load(d, "gomp", &io, &image), REVOFF_EIMAGE,
			    "function table", "24 bytes");
		t_check(!image);
	}
	io.nfunction_names = 2;
	lab_ok(lab_try_load(d, "novar", &io, &image));
	t_check(revoff_image_function_count(image) == 1);
	t_check(!revoff_image_is_connected(image));
	lab_ok(revoff_image_unload(image));
}

static void descriptors(struct revoff_device *d)
{
	static const char *const wanted[][2] = {
		{ "next", "u8(u8,u8)" }, { "echo", "{:64:8}({:64:8})" },
		{ "nothing", "v()" },	 { "other", "v()" },
		{ "lane", "u8(u8)" },	 { "change", "i4(tofrom:i4)" },
		{ "keep", "v(to:f8)" },
	};
	struct revoff_image *image = lab_load(d, "typed");
	struct revoff_function f;
	struct revoff_kernel *k;
	uint64_t at;
	size_t size, offset;
	unsigned i;

	t_check(revoff_image_function_count(image) == 7);
	for (i = 0; i < 7; ++i) {
		int index = lab_ok(revoff_image_find(image, wanted[i][0]));
		char symbol[80];

		lab_ok(revoff_image_function(image, (unsigned)index, &f));
		t_check(f.kind == REVOFF_FUNCTION_TYPED);
		t_check(!strcmp(f.signature, wanted[i][1]));
		snprintf(symbol, sizeof(symbol), "%s%s", REVOFF_FN_PREFIX,
			 f.name);
		lab_ok(revoff_image_symbol(image, symbol, &at, &size));
		t_check(at == f.fn && size == sizeof(struct revoff_descriptor));
	}
	lab_refused(revoff_image_find(image, ""), REVOFF_ENOTFOUND, "named");
	lab_refused(revoff_image_symbol(image, "absent", &at, &size),
		    REVOFF_ENOTFOUND, "absent", "extern \"C\"");
	lab_refused(revoff_kernel_get(image, "absent", &k), REVOFF_ENOTFOUND,
		    "absent", "__global__");
	t_check(!k);
	k = lab_kernel(image, "hold");
	t_check(k == lab_kernel(image, "hold"));
	t_check(revoff_kernel_param_count(k) == 3);
	lab_ok(revoff_kernel_param(k, 2, &offset, &size));
	t_check(offset == 16 && size == 4);
	lab_refused(revoff_kernel_param(k, 3, &offset, &size), REVOFF_EINVAL,
		    "hold", "3");
	t_check(revoff_kernel_param_count(lab_kernel(image, "empty")) == 0);
	t_check(revoff_kernel_max_threads(k) >= 1024);
	lab_ok(revoff_image_unload(image));
}

static void icvs(struct revoff_device *d)
{
	struct revoff_image_options io = { NULL, 0, 42 };
	struct revoff_image *image;
	struct revoff_icvs v;
	uint64_t at;
	size_t size;
	int i;

	for (i = 0; i < 2; ++i) {
		lab_ok(lab_try_load(d, "typed", i ? NULL : &io, &image));
		lab_ok(revoff_image_symbol(image, REVOFF_SYM_ICVS, &at, &size));
		t_check(size == sizeof(v));
		lab_ok(revoff_copy_from_device(d, &v, at, sizeof(v)));
		t_check(v.device_num == (i ? 0 : 42));
		lab_ok(revoff_image_unload(image));
	}
}

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *image;
	struct revoff_input in = { "", 0, REVOFF_INPUT_MODULE, "nothing" };

	lab_begin(argc, argv);
	d = lab_open(NULL);
	gomp_table(d);
	descriptors(d);
	icvs(d);
	lab_refused(revoff_image_load(d, &in, 0, NULL, &image), REVOFF_EINVAL,
		    "at least one");
	lab_refused(revoff_image_load(d, &in, 1, NULL, &image), REVOFF_EINVAL,
		    "nothing", "empty");
	in.data = "no image at all";
	in.size = 15;
	lab_refused(revoff_image_load(d, &in, 1, NULL, &image), REVOFF_EIMAGE,
		    "nothing", "cuModuleLoadDataEx");
	in.type = REVOFF_INPUT_PTX;
	lab_refused(revoff_image_load(d, &in, 1, NULL, &image), REVOFF_EINVAL,
		    "NUL");
	in.type = 99;
	lab_refused(revoff_image_load(d, &in, 1, NULL, &image), REVOFF_EINVAL,
		    "type 99");
	lab_close(d);
	return T_PASS;
}
