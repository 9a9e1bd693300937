/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a kernel that publishes fn by a relaxed store: ThreadSanitizer
 * must see the race of kernel and host, or fibers hide races from it.
 * Images: loose
 * Variants: tsan
 */
#include "lab.h"

static int next(struct revoff_call *call, void *user)
{
	(void)user;
	call->result = call->words[0];
	return 0;
}

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *image;
	uint64_t bad, value = 0;
	int n = 1000;
	void *params[] = { &bad, &n };

	lab_begin(argc, argv);
	d = lab_open(&(struct revoff_device_options){
		.transport = REVOFF_TRANSPORT_MAILBOX });
	image = lab_load(d, "loose");
	lab_bind(image, "next", next, NULL);
	lab_ok(revoff_alloc(d, 8, &bad));
	lab_ok(revoff_copy_to_device(d, bad, &value, 8));
	lab_ok(lab_run(lab_kernel(image, "count"), 1, 1, params, NULL));
	lab_ok(revoff_copy_from_device(d, &value, bad, 8));
	t_check(!value);
	lab_ok(revoff_free(d, bad));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	return T_PASS;
}
