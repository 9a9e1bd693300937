/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: the three ways to wait.  Spinning never sleeps; the adaptive
 * way does not sleep between the calls of a chain (V9), and does once it is
 * quiet; the patch's sleeps after every look, also after a served call.  The
 * thread's timer slack is as it was afterwards.
 * Images: typed
 * Covers: V9
 */
#include <sys/prctl.h>

#include "lab.h"

#define CALLS 400

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	return 0;
}

static struct revoff_stats chain(struct revoff_device *d,
				 struct revoff_image *image)
{
	struct revoff_stats stats;
	uint64_t at;
	int n = CALLS;
	void *params[] = { &at, &n };

	lab_ok(revoff_alloc(d, CALLS * 4, &at));
	lab_ok(lab_run(lab_kernel(image, "statuses"), 1, 1, params, &stats));
	lab_ok(revoff_free(d, at));
	t_check(stats.calls == CALLS && stats.polls >= CALLS);
	return stats;
}

/*
 * A kernel that does not call, for 40 ms; or, on a machine that has other
 * things to do, until the host has slept so often.
 */
static struct revoff_stats quiet(struct revoff_image *image, unsigned sleeps)
{
	static uint32_t started, go;
	uint32_t *ps = &started, *pg = &go;
	int none = 0, turns = 0;
	void *params[] = { &ps, &pg, &none };
	struct revoff_launch *launch;
	struct revoff_stats stats;

	started = go = 0;
	launch = lab_start(lab_kernel(image, "hold"), 1, 1, params);
	do {
		t_check(revoff_launch_wait(launch, LAB_SECOND / 100) == 0);
		revoff_launch_stats(launch, &stats);
	} while (++turns < 4 || (stats.sleeps < sleeps && turns < 2000));
	lab_set(&go, 1);
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	t_check(revoff_launch_finish(launch) == 1);
	return stats;
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed");
	struct revoff_stats s;
	int slack;

	lab_bind(image, "nothing", nothing, NULL);
	prctl(PR_SET_TIMERSLACK, 43210, 0, 0, 0);
	slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);

	lab_ok(revoff_device_set_wait(d, REVOFF_WAIT_SPIN, 0, 0));
	t_check(!chain(d, image).sleeps);
	s = quiet(image, 0);
	t_check(!s.sleeps && s.polls > 100);

	/* It spins for far longer than a call takes. */
	lab_ok(revoff_device_set_wait(d, REVOFF_WAIT_ADAPTIVE, 5000000, 50));
	t_check(!chain(d, image).sleeps);
	t_check(!quiet(image, 0).sleeps);
	lab_ok(revoff_device_set_wait(d, REVOFF_WAIT_ADAPTIVE, 1000, 50));
	s = quiet(image, 10);
	t_check(s.sleeps >= 10);
	t_check(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0) == slack);

	lab_ok(revoff_device_set_wait(d, REVOFF_WAIT_PATCH, 0, 0));
	s = chain(d, image);
	t_check(s.sleeps >= CALLS);
	t_check(quiet(image, 10).sleeps >= 10);
	t_check(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0) == slack);

	lab_refused(revoff_device_set_wait(d, 3, 0, 0), REVOFF_EINVAL,
		    "policy 3");
	lab_refused(revoff_device_set_wait(d, -1, 0, 0), REVOFF_EINVAL,
		    "policy -1");
	lab_ok(revoff_image_unload(image));
	lab_close(d);
}

int main(int argc, char **argv)
{
	struct revoff_device_options o = { 0 };

	lab_begin(argc, argv);
	for (o.placement = 0; o.placement < 3; ++o.placement)
		test(&o);
	return T_PASS;
}
