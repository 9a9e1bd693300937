/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: an image without reverse functions costs nothing (V1, V2): it
 * is not connected, its kernels run with no look at the mailbox in any
 * placement, whether it has the header, a table of zeros, or neither.  One
 * with a region but no mailbox variable loads and runs too (V5).
 * Images: plain bare zeros novar typed
 * Covers: V1 V2 V5
 */
#include "lab.h"

static const char *const gomp_names[] = { "a", "b", "c" };

/* Without a limit it is a plain launch and synchronise. */
static void run(struct revoff_kernel *kernel, void **params, int turn)
{
	struct revoff_launch_config config = {
		{ 1, 1, 1 }, { 1, 1, 1 }, 0, NULL, params
	};
	struct revoff_stats stats;

	lab_ok(revoff_run(kernel, &config, turn % 2 ? UINT64_MAX : LAB_LIMIT,
			  turn % 3 ? &stats : NULL));
	if (turn % 3)
		t_check(!stats.calls && stats.elapsed_ns < LAB_LIMIT);
}

static void unused(struct revoff_device *d, const char *name, unsigned names,
		   int touches)
{
	struct revoff_image_options io = { gomp_names, names, -1 };
	struct revoff_image *image;
	struct revoff_kernel *kernel;
	uint64_t word;
	int value = 41, by = 1, i;
	void *touch[] = { &word }, *bump[] = { &by };

	lab_ok(lab_try_load(d, name, names ? &io : NULL, &image));
	t_check(!revoff_image_is_connected(image));
	lab_ok(revoff_alloc(d, sizeof(value), &word));
	lab_ok(revoff_copy_to_device(d, word, &value, sizeof(value)));
	kernel = lab_kernel(image, touches ? "touch" : "bump");
	lab_ok(lab_run(kernel, 1, 1, touches ? touch : bump, NULL));
	revoff_fault_clear();
	for (i = 0; i < 20; ++i)
		run(kernel, touches ? touch : bump, i);
	/* In placement copy each look would be a copy. */
	t_check(revoff_fault_calls("cuLaunchKernel") == 20);
	t_check(!revoff_fault_calls("cuMemcpyDtoHAsync"));
	t_check(!revoff_fault_calls("cuMemcpyHtoDAsync"));
	t_check(!revoff_fault_calls("cuMemAlloc"));
	t_check(!revoff_fault_calls("cuMemHostAlloc"));
	t_check(!revoff_fault_calls("cuStreamCreate"));
	if (touches) {
		lab_ok(revoff_copy_from_device(d, &value, word, sizeof(value)));
		t_check(value == 41 + 21);
	}
	lab_ok(revoff_free(d, word));
	lab_ok(revoff_image_unload(image));
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *typed = lab_load(d, "typed");

	/* Also beside an image that is connected. */
	t_check(revoff_image_is_connected(typed));
	unused(d, "plain", 0, 1);
	unused(d, "bare", 0, 1);
	unused(d, "bare", 3, 1);
	unused(d, "zeros", 3, 0);
	unused(d, "zeros", 0, 0);
	unused(d, "novar", 2, 1);
	lab_ok(revoff_image_unload(typed));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	revoff_fault_enable(1);
	lab_each_config(test);
	return T_PASS;
}
