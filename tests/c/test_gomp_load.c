/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: GCC's image data, versions 0x20001 and 0x30001: the table has a
 * pair for each function, each variable and the ICVs; the reverse table names
 * the regions and is NULL if there is none (V1); hostile counts and pointers
 * are refused, and nothing of a refused image stays.
 * Images: gomprun zeros typed
 * Covers: V1
 */
#include "lab.h"

struct object {
	const char *code;
	size_t size;
};

struct dims {
	const char *name;
	unsigned short dim[3];
};

/* What libgomp hands to a plugin; GCC 14 has one more word. */
struct image_data {
	const struct object *objects;
	unsigned nobjects;
	const char *const *variables;
	unsigned nvariables;
	const struct dims *functions;
	unsigned nfunctions;
	unsigned nindirect;
};

static struct object object;
static const char *const variables[] = { "variable" };
static const struct dims functions[] = {
	{ "entry", { 0, 0, 0 } },
	{ "region", { 0, 0, 0 } },
	{ "calls", { 0, 0, 0 } },
};

static struct image_data good(void)
{
	return (struct image_data){ &object, 1, variables, 1, functions, 3, 0 };
}

static void loads(struct revoff_device *d, unsigned version)
{
	struct image_data data = good();
	struct revoff_addr_pair *pairs;
	struct revoff_image *image;
	struct revoff_function f;
	uint64_t *rev, at;
	size_t size;

	t_check(lab_ok(revoff_gomp_load_image(d, version, &data, &pairs, &rev,
					      &image)) == 5);
	t_check(pairs[0].start && pairs[0].end == pairs[0].start + 1);
	t_check(!pairs[1].start && pairs[1].end == 1);
	t_check(pairs[2].start && pairs[2].start != pairs[0].start);
	t_check((void *)(uintptr_t)pairs[0].start ==
		(void *)lab_kernel(image, "entry"));
	lab_ok(revoff_image_symbol(image, "variable", &at, &size));
	t_check(pairs[3].start == at && pairs[3].end == at + 24);
	lab_ok(revoff_image_symbol(image, REVOFF_SYM_ICVS, &at, &size));
	t_check(pairs[4].start == at && pairs[4].end == at + 16);
	t_check(rev && !rev[0] && rev[1] && !rev[2]);
	lab_ok(revoff_image_function(image, 0, &f));
	t_check(f.fn == rev[1] && !strcmp(f.name, "region"));
	t_check(revoff_image_is_connected(image));
	revoff_gomp_free(pairs);
	revoff_gomp_free(rev);
	lab_ok(revoff_image_unload(image));
	/* Nobody has to want the reverse table. */
	t_check(lab_ok(revoff_gomp_load_image(d, version, &data, &pairs, NULL,
					      &image)) == 5);
	revoff_gomp_free(pairs);
	lab_ok(revoff_image_unload(image));
}

/* All kernels: the table holds only zeros, or the functions are typed. */
static void no_region(struct revoff_device *d, const char *image_name,
		      const char *kernel, unsigned n)
{
	const struct dims names[] = { { kernel, { 0 } },
				      { kernel, { 0 } },
				      { kernel, { 0 } } };
	struct object o;
	struct image_data data = { &o, 1, NULL, 0, names, n, 0 };
	struct revoff_addr_pair *pairs;
	struct revoff_image *image;
	uint64_t *rev = (uint64_t *)1;
	void *code = lab_read(image_name, &o.size);

	o.code = code;
	t_check(lab_ok(revoff_gomp_load_image(d, 0x30001, &data, &pairs, &rev,
					      &image)) == (int)n + 1);
	t_check(!rev);
	revoff_gomp_free(pairs);
	lab_ok(revoff_image_unload(image));
	free(code);
}

#define refused_as(change, code, ...)                                         \
	do {                                                                  \
		struct image_data data = good();                              \
		struct revoff_addr_pair *pairs = (void *)1;                   \
		struct revoff_image *image = (void *)1;                       \
		uint64_t *rev = (void *)1;                                    \
		change;                                                       \
		lab_refused(revoff_gomp_load_image(d, 0x30001, &data, &pairs, \
						   &rev, &image),             \
			    code, __VA_ARGS__);                               \
		t_check(!pairs && !rev && !image);                            \
	} while (0)

static void refused(struct revoff_device *d)
{
	static const char *const no_name[] = { NULL };
	static const char *const absent[] = { "absent" };
	static const struct dims no_function[] = { { NULL, { 0 } },
						   { "region", { 0 } },
						   { "calls", { 0 } } };
	static const struct dims other[] = { { "entry", { 0 } },
					     { "region", { 0 } },
					     { "absent", { 0 } } };
	static struct object empty = { "", 0 }, null = { NULL, 8 };
	struct object two[2];
	struct revoff_addr_pair *pairs;
	struct revoff_image *image;
	uint64_t *rev;
	struct image_data whole = good();
	unsigned v;
	static const unsigned versions[] = { 0, 1, 0x10001, 0x40001,
					     0xffffffff };

	two[0] = two[1] = object;
	for (v = 0; v < 5; ++v)
		lab_refused(revoff_gomp_load_image(d, versions[v], &whole,
						   &pairs, &rev, &image),
			    REVOFF_EIMAGE, "version 0x");
	lab_refused(revoff_gomp_load_image(d, 0x30001, NULL, &pairs, &rev,
					   &image),
		    REVOFF_EINVAL, "no image data");
	refused_as(data.nobjects = 0, REVOFF_EIMAGE, "0 objects");
	refused_as(data.objects = NULL, REVOFF_EIMAGE, "objects");
	refused_as(data.nobjects = UINT32_MAX, REVOFF_EIMAGE, "objects");
	refused_as(data.nfunctions = UINT32_MAX, REVOFF_EIMAGE, "functions");
	refused_as(data.functions = NULL, REVOFF_EIMAGE, "functions");
	refused_as(data.nvariables = UINT32_MAX, REVOFF_EIMAGE, "variables");
	refused_as(data.variables = NULL, REVOFF_EIMAGE, "variables");
	refused_as(data.functions = no_function, REVOFF_EIMAGE, "function 0");
	refused_as(data.variables = no_name, REVOFF_EIMAGE, "variable 0");
	refused_as(data.variables = absent, REVOFF_ENOTFOUND, "absent");
	refused_as(data.functions = other, REVOFF_ENOTFOUND, "absent");
	refused_as(data.nfunctions = 2, REVOFF_EIMAGE, "function table");
	refused_as(data.objects = &empty, REVOFF_EINVAL, "empty");
	refused_as(data.objects = &null, REVOFF_EINVAL, "empty");
	/* The CPU device links nothing. */
	refused_as((data.objects = two, data.nobjects = 2), REVOFF_EINVAL,
		   "linked");
}

int main(int argc, char **argv)
{
	struct revoff_device *d;
	void *code;

	lab_begin(argc, argv);
	d = lab_open(NULL);
	code = lab_read("gomprun", &object.size);
	object.code = code;
	loads(d, 0x20001);
	loads(d, 0x30001);
	no_region(d, "zeros", "bump", 3);
	no_region(d, "typed", "empty", 1);
	refused(d);
	loads(d, 0x30001);
	free(code);
	lab_close(d);
	return T_PASS;
}
