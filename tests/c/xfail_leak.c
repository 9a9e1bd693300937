/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: memory that nobody frees, with the CPU device's threads about:
 * the leak must be seen, or "no leak" of the other programs says nothing.
 * Images: typed
 * Variants: asan
 */
#include "lab.h"

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *image;
	void *volatile lost;

	lab_begin(argc, argv);
	d = lab_open(NULL);
	image = lab_load(d, "typed");
	lab_ok(lab_run(lab_kernel(image, "empty"), 1, 1, NULL, NULL));
	lost = malloc(100);
	t_check(lost);
	lost = malloc(100);
	t_check(lost);
	lost = NULL;
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	return T_PASS;
}
