/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: what a handler may do on its own device while the kernel waits
 * (copy, allocate, free, map) works; what would wait for that kernel (launch,
 * load, a new kernel, close) is refused at once instead of hanging (V14).
 * Images: typed
 * Covers: V14
 */
#include "lab.h"

static struct revoff_device *d;
static struct revoff_image *image, *second;
static struct revoff_kernel *empty;
static int calls;

static int nothing(struct revoff_call *call, void *user)
{
	struct revoff_launch_config config = {
		{ 1, 1, 1 }, { 1, 1, 1 }, 0, NULL, NULL
	};
	struct revoff_image *more;
	struct revoff_kernel *kernel;
	struct revoff_launch *launch;
	uint64_t at, mapped;
	char here[64], there[64];

	(void)user;
	t_check(call->device == d && call->image == image);
	lab_refused(revoff_run(empty, &config, LAB_LIMIT, NULL), REVOFF_EBUSY,
		    "from a handler");
	lab_refused(revoff_launch_start(empty, &config, &launch), REVOFF_EBUSY,
		    "from a handler");
	lab_refused(lab_try_load(d, "typed", NULL, &more), REVOFF_EBUSY,
		    "from a handler");
	lab_refused(revoff_kernel_get(second, "lanes", &kernel), REVOFF_EBUSY,
		    "from a handler");
	lab_refused(revoff_device_close(d), REVOFF_EBUSY, "handlers");
	lab_refused(revoff_image_unload(image), REVOFF_EBUSY, "statuses");

	lab_fill(here, 64, 3);
	lab_ok(revoff_alloc(d, 64, &at));
	lab_ok(revoff_copy_to_device(d, at, here, 64));
	lab_ok(revoff_copy_from_device(d, there, at, 64));
	t_check(lab_is(there, 64, 3));
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_map_enter(d, here, 64, REVOFF_MAP_TO, &mapped));
	lab_ok(revoff_map_exit(d, here, 64, REVOFF_MAP_FROM));
	t_check(lab_is(here, 64, 3));
	++calls;
	return 0;
}

static void test(const struct revoff_device_options *o)
{
	int n = 2, status[2];
	uint64_t at;
	void *params[] = { &at, &n };

	d = lab_open(o);
	image = lab_load(d, "typed");
	second = lab_load(d, "typed");
	empty = lab_kernel(second, "empty");
	calls = 0;
	lab_bind(image, "nothing", nothing, NULL);
	lab_ok(revoff_alloc(d, sizeof(status), &at));
	lab_ok(lab_run(lab_kernel(image, "statuses"), 1, 1, params, NULL));
	t_check(calls == 2);
	lab_ok(revoff_copy_from_device(d, status, at, sizeof(status)));
	t_check(!status[0] && !status[1]);
	lab_ok(lab_run(empty, 1, 1, NULL, NULL));
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_image_unload(image));
	lab_ok(revoff_image_unload(second));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
