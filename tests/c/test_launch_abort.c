/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: an abort from another thread ends a kernel that waits for a
 * word, one that calls for ever, and one whose caller waits for the lock; the
 * first reason stands; nothing is left in the mailbox.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "lab.h"

static uint32_t seen;

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	lab_set(&seen, 1);
	return 0;
}

static void *give_up(void *launch)
{
	lab_await(&seen, 1);
	lab_ok(revoff_launch_abort(launch, REVOFF_ABORT_SIGNAL));
	lab_ok(revoff_launch_abort(launch, REVOFF_ABORT_TIMEOUT));
	return NULL;
}

static void end(struct revoff_launch *launch)
{
	struct revoff_stats stats;
	pthread_t thread = lab_thread(give_up, launch);

	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	lab_join(thread);
	revoff_launch_stats(launch, &stats);
	t_check(stats.abort == REVOFF_ABORT_SIGNAL);
	t_check(!stats.mailbox_fn && !stats.in_handler && !stats.deserted);
	t_check(!revoff_launch_failure(launch)->code);
	t_check(revoff_launch_finish(launch) == 1);
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed");
	static uint32_t started, go;
	uint32_t *ps = &started, *pg = &go;
	int calls = 2, status = -1;
	void *params[] = { &ps, &pg, &calls };
	uint64_t at;
	void *at_params[] = { &at };
	struct revoff_launch *launch;

	lab_bind(image, "nothing", nothing, NULL);
	lab_ok(revoff_alloc(d, 4, &at));
	started = go = seen = 0;
	launch = lab_start(lab_kernel(image, "hold"), 1, 1, params);
	lab_await(&started, 1);
	lab_set(&seen, 1);
	end(launch);

	seen = 0;
	end(lab_start(lab_kernel(image, "forever"), 1, 1, at_params));
	lab_ok(revoff_copy_from_device(d, &status, at, 4));
	t_check(status == REVOFF_ABORTED);

	/* 4 blocks of 5: one has the lock, the others want it. */
	seen = 0;
	end(lab_start(lab_kernel(image, "forever"), 4, 5, at_params));
	lab_ok(revoff_copy_from_device(d, &status, at, 4));
	t_check(status == REVOFF_ABORTED);
	/* The next launch is not aborted. */
	go = 1;
	lab_ok(lab_run(lab_kernel(image, "hold"), 1, 1, params, NULL));
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
