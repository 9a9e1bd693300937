/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a child of fork() does not inherit the device: every use there
 * says so instead of hanging; the parent is not disturbed.
 * Images: typed
 * Variants: plain
 */
#include <sys/wait.h>
#include <unistd.h>

#include "lab.h"

static int child(struct revoff_device *d, struct revoff_image *image,
		 struct revoff_kernel *kernel)
{
	struct revoff_device *again;
	uint64_t at;
	int count;

	lab_refused(lab_run(kernel, 1, 1, NULL, NULL), REVOFF_EFORKED,
		    "forked");
	lab_refused(revoff_alloc(d, 8, &at), REVOFF_EFORKED, "spawn");
	lab_refused(revoff_image_unload(image), REVOFF_EFORKED, "forked");
	lab_refused(revoff_device_open(lab_platform, 0, NULL, &again),
		    REVOFF_EFORKED, "spawn");
	lab_refused(revoff_device_count(lab_platform, &count), REVOFF_EFORKED,
		    "forked");
	lab_refused(revoff_device_close(d), REVOFF_EFORKED, "forked");
	return T_PASS;
}

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *image;
	struct revoff_kernel *kernel;
	pid_t pid;
	int status;

	lab_begin(argc, argv);
	/* A fork before first use does not matter. */
	pid = fork();
	t_check(pid >= 0);
	if (!pid) {
		d = lab_open(NULL);
		image = lab_load(d, "typed");
		lab_ok(lab_run(lab_kernel(image, "empty"), 1, 1, NULL, NULL));
		_exit(T_PASS);
	}
	t_check(waitpid(pid, &status, 0) == pid && !status);
	d = lab_open(NULL);
	image = lab_load(d, "typed");
	kernel = lab_kernel(image, "empty");
	lab_ok(lab_run(kernel, 1, 1, NULL, NULL));
	pid = fork();
	t_check(pid >= 0);
	if (!pid)
		_exit(child(d, image, kernel));
	t_check(waitpid(pid, &status, 0) == pid && !status);
	lab_ok(lab_run(kernel, 1, 1, NULL, NULL));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	return T_PASS;
}
