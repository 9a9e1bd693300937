/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a kernel that faults: its caller learns the kernel, the
 * driver's error and the calls made; from then on the device says that its
 * context is lost, at once and without the driver; unload and close work.
 * Images: crash typed
 * Variants: plain
 */
#include "lab.h"

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	++*(int *)user;
	return 0;
}

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *image, *other, *more;
	struct revoff_kernel *empty, *kernel;
	struct revoff_stats stats;
	int *nowhere = (int *)8;
	void *params[] = { &nowhere };
	uint64_t at;
	int calls = 0;

	lab_begin(argc, argv);
	d = lab_open(NULL);
	image = lab_load(d, "crash");
	other = lab_load(d, "typed");
	empty = lab_kernel(other, "empty");
	lab_bind(image, "nothing", nothing, &calls);
	lab_refused(lab_run(lab_kernel(image, "crash"), 1, 1, params, &stats),
		    REVOFF_EDRIVER, "crash", "driver error 700",
		    "CUDA_ERROR_ILLEGAL_ADDRESS", "after 1 calls",
		    "cuStreamQuery");
	t_check(calls == 1 && stats.calls == 1);
	t_check(revoff_last_error()->driver_code == 700);
	lab_refused(lab_run(empty, 1, 1, NULL, NULL), REVOFF_ELOST, "lost",
		    "700");
	lab_refused(revoff_alloc(d, 8, &at), REVOFF_ELOST, "lost");
	lab_refused(revoff_kernel_get(other, "lanes", &kernel), REVOFF_ELOST,
		    "lost");
	lab_refused(lab_try_load(d, "typed", NULL, &more), REVOFF_ELOST,
		    "lost");
	lab_ok(revoff_image_unload(other));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	return T_PASS;
}
