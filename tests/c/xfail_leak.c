/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a launch that nobody finishes, on a device that nobody closes,
 * with every pointer to it gone: the leak must be seen, or "no leak" of the
 * other programs says nothing.
 * Images: typed
 * Variants: asan
 */
#include "lab.h"

static __attribute__((noinline)) void leave(void)
{
	struct revoff_device *d = lab_open(NULL);
	struct revoff_image *image = lab_load(d, "typed");

	lab_ok(lab_run(lab_kernel(image, "empty"), 1, 1, NULL, NULL));
}

/* What the stack still holds of it. */
static __attribute__((noinline)) void wipe(void)
{
	volatile char stack[16384];
	size_t i;

	for (i = 0; i < sizeof(stack); ++i)
		stack[i] = 0;
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	leave();
	wipe();
	return T_PASS;
}
