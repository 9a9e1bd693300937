/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: no wait is without an end (V23): a time limit ends a kernel
 * that looks at the abort word; one that does not is handed over and does not
 * hold the caller up; the text names kernel, time and calls.
 * Images: typed
 * Variants: plain asan tsan
 * Covers: V23
 */
#include "lab.h"

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	++*(int *)user;
	return 0;
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed");
	struct revoff_launch_config config = {
		{ 1, 1, 1 }, { 1, 1, 1 }, 0, NULL, NULL
	};
	struct revoff_kernel *hold = lab_kernel(image, "hold");
	struct revoff_kernel *deaf = lab_kernel(image, "deaf");
	struct revoff_kernel *empty = lab_kernel(image, "empty");
	static uint32_t started, go;
	uint32_t *ps = &started, *pg = &go;
	int calls = 0, count = 0;
	void *params[] = { &ps, &pg, &calls };
	struct revoff_stats stats;
	struct revoff_launch *launch;
	uint64_t begin;

	lab_bind(image, "nothing", nothing, &count);
	config.params = params;
	started = go = 0;
	begin = lab_now();
	lab_refused(revoff_run(hold, &config, 50000000, &stats),
		    REVOFF_ETIMEOUT, "hold", "0.050 s", "after 0 calls", "did");
	t_check(lab_now() - begin < 20 * LAB_SECOND);
	t_check(stats.elapsed_ns >= 50000000);
	t_check(stats.elapsed_ns <= lab_now() - begin && !stats.last_call_ns);
	t_check(stats.abort == REVOFF_ABORT_TIMEOUT);
	/* A wait with a limit is no failure: it may be repeated. */
	launch = lab_start(hold, 1, 1, params);
	t_check(revoff_launch_wait(launch, 1000000) == 0);
	t_check(revoff_launch_wait(launch, 0) == 0);
	lab_set(&go, 1);
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	t_check(revoff_launch_wait(launch, 0) == 1);
	t_check(revoff_launch_finish(launch) == 1);
	t_check(!count);

	/* It never looks: the image stays busy until it ends. */
	go = started = 0;
	launch = lab_start(deaf, 1, 1, params);
	lab_await(&started, 1);
	t_check(revoff_launch_wait(launch, 1000000) == 0);
	t_check(revoff_launch_finish(launch) == 0);
	lab_refused(revoff_run(empty, &config, LAB_LIMIT, NULL), REVOFF_EBUSY,
		    "empty", "deaf");
	lab_refused(revoff_device_drain(d, 1000000), REVOFF_ETIMEOUT,
		    "still runs");
	lab_refused(revoff_image_unload(image), REVOFF_EBUSY, "deaf");
	lab_set(&go, 1);
	lab_ok(revoff_device_drain(d, LAB_LIMIT));
	lab_ok(revoff_run(empty, &config, LAB_LIMIT, NULL));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
