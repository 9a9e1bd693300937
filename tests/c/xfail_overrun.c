/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a kernel that writes behind its device memory:
 * AddressSanitizer must see it, in a fiber as well.
 * Images: typed
 * Variants: asan
 */
#include "lab.h"

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	return 0;
}

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *image;
	/* revoff_alloc rounds up to 512 bytes. */
	int n = 512 / 4 + 1;
	uint64_t at;
	void *params[] = { &at, &n };

	lab_begin(argc, argv);
	d = lab_open(NULL);
	image = lab_load(d, "typed");
	lab_bind(image, "nothing", nothing, NULL);
	lab_ok(revoff_alloc(d, 512, &at));
	lab_ok(lab_run(lab_kernel(image, "statuses"), 1, 1, params, NULL));
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	return T_PASS;
}
