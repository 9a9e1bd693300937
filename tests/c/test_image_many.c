/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: every image is connected, not only the first (V12, G2), and
 * its calls go to its own handlers; unloading one leaves the others (G3); a
 * reloaded image is connected again (V19); more images than there are control
 * words is an error that names the limit.
 * Images: typed gomp
 * Covers: V12 V19
 */
#include "lab.h"

#define MAX 64

static struct revoff_image *image[MAX + 1];
static unsigned calls[MAX + 1];

static int nothing(struct revoff_call *call, void *user)
{
	unsigned i = (unsigned)(uintptr_t)user;

	t_check(call->image == image[i]);
	calls[i]++;
	return 0;
}

static void bind(unsigned i)
{
	t_check(revoff_image_is_connected(image[i]));
	lab_bind(image[i], "nothing", nothing, (void *)(uintptr_t)i);
}

static void run(struct revoff_device *d, unsigned i)
{
	unsigned before = calls[i];
	uint64_t at;
	int n = 2, status[2] = { -1, -1 };
	void *params[] = { &at, &n };

	lab_ok(revoff_alloc(d, 8, &at));
	lab_ok(lab_run(lab_kernel(image[i], "statuses"), 1, 1, params, NULL));
	lab_ok(revoff_copy_from_device(d, status, at, 8));
	t_check(!status[0] && !status[1] && calls[i] == before + 2);
	lab_ok(revoff_free(d, at));
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	unsigned i, n = o->no_packet || o->lock ? 3 : MAX;
	int turn;

	for (i = 0; i < n; ++i) {
		image[i] = lab_load(d, "typed");
		bind(i);
	}
	for (i = 0; i < n; ++i)
		run(d, i);
	if (n == MAX) {
		lab_refused(lab_try_load(d, "typed", NULL, &image[MAX]),
			    REVOFF_EBUSY, "64 images", "close some");
		t_check(!image[MAX]);
	}
	/* The first one goes and comes back, again and again. */
	for (turn = 0; turn < 3; ++turn) {
		lab_ok(revoff_image_unload(image[0]));
		for (i = 1; i < n; ++i)
			run(d, i);
		image[0] = lab_load(d, "typed");
		bind(0);
		run(d, 0);
	}
	for (i = 0; i < n; ++i)
		lab_ok(revoff_image_unload(image[n - 1 - i]));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
