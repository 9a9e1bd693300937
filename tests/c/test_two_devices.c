/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: two devices at once, each with its own mailbox, images and
 * mappings: calls do not cross, memory of one is refused by the other, and a
 * handler of one may load, launch and close on the other.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "lab.h"

static struct revoff_device *device[2];
static struct revoff_image *image[2];
static unsigned calls[2];

static int lane(struct revoff_call *call, void *user)
{
	unsigned i = (unsigned)(uintptr_t)user;

	t_check(call->device == device[i] && call->image == image[i]);
	call->result = lab_mix(call->words[0]);
	calls[i]++;
	return 0;
}

static void *work(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	uint64_t bad, value = 0;
	void *params[] = { &bad };
	struct revoff_stats stats;
	int turn;

	lab_ok(revoff_alloc(device[i], 8, &bad));
	lab_ok(revoff_copy_to_device(device[i], bad, &value, 8));
	for (turn = 0; turn < 5; ++turn) {
		lab_ok(lab_run(lab_kernel(image[i], "lanes"), 4, 8, params,
			       &stats));
		t_check(stats.calls == 32);
	}
	lab_ok(revoff_copy_from_device(device[i], &value, bad, 8));
	t_check(!value);
	lab_ok(revoff_free(device[i], bad));
	return NULL;
}

static int on_the_other(struct revoff_call *call, void *user)
{
	struct revoff_device_options o = { 0 };
	struct revoff_image *more;
	struct revoff_device *again;

	(void)user;
	t_check(call->device == device[0]);
	work((void *)1);
	lab_ok(lab_try_load(device[1], "typed", NULL, &more));
	lab_ok(lab_run(lab_kernel(more, "empty"), 1, 1, NULL, NULL));
	lab_ok(revoff_image_unload(more));
	/* A second device of the same ordinal is the same GPU. */
	lab_ok(revoff_device_open(lab_platform, 0, &o, &again));
	lab_refused(lab_try_load(again, "typed", NULL, &more), REVOFF_EBUSY,
		    "from a handler");
	lab_ok(revoff_device_close(again));
	return 0;
}

int main(int argc, char **argv)
{
	static char host[64];
	pthread_t thread[2];
	uint64_t at, status;
	int n = 2, count, i;
	void *params[] = { &status, &n };

	lab_begin(argc, argv);
	setenv("PYREVOFF_CPU_DEVICES", "2", 1);
	lab_ok(revoff_device_count(lab_platform, &count));
	t_check(count == 2);
	for (i = 0; i < 2; ++i) {
		lab_ok(revoff_device_open(lab_platform, i, NULL, &device[i]));
		image[i] = lab_load(device[i], "typed");
		lab_bind(image[i], "lane", lane, (void *)(uintptr_t)i);
	}
	for (i = 0; i < 2; ++i)
		thread[i] = lab_thread(work, (void *)(uintptr_t)i);
	for (i = 0; i < 2; ++i)
		lab_join(thread[i]);
	t_check(calls[0] == 160 && calls[1] == 160);

	lab_bind(image[0], "nothing", on_the_other, NULL);
	lab_ok(revoff_alloc(device[0], 8, &status));
	lab_ok(lab_run(lab_kernel(image[0], "statuses"), 1, 1, params, NULL));
	t_check(calls[0] == 160 && calls[1] == 160 + 2 * 160);

	lab_refused(revoff_free(device[1], status), REVOFF_EINVAL,
		    "not device memory");
	lab_ok(revoff_map_enter(device[0], host, 64, REVOFF_MAP_TO, &at));
	lab_refused(revoff_map_exit(device[1], host, 64, 0), REVOFF_EINVAL,
		    "not mapped");
	lab_ok(revoff_map_exit(device[0], host, 64, 0));
	lab_ok(revoff_free(device[0], status));
	for (i = 0; i < 2; ++i) {
		lab_ok(revoff_image_unload(image[i]));
		lab_close(device[i]);
	}
	return T_PASS;
}
