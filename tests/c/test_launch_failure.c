/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a handler that fails, a function without one, a function that
 * nobody has: the call gets its status, later calls of the launch fail at
 * once, the caller gets the first failure by name, and the next run is fine.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "lab.h"

static int nothing(struct revoff_call *call, void *user)
{
	int *left = user;

	(void)call;
	return --*left == 0;
}

static void read_statuses(struct revoff_device *d, uint64_t at, int *status,
			  int n)
{
	lab_ok(revoff_copy_from_device(d, status, at, (size_t)n * 4));
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed");
	struct revoff_kernel *statuses = lab_kernel(image, "statuses");
	struct revoff_kernel *two = lab_kernel(image, "two");
	struct revoff_kernel *stranger = lab_kernel(image, "stranger");
	struct revoff_launch *launch;
	const struct revoff_error *e;
	struct revoff_stats stats;
	uint64_t at, fn = 0x12345670, begin;
	int status[8], n = 8, left = 4, i;
	void *params[] = { &at, &n }, *stranger_params[] = { &fn };

	lab_ok(revoff_alloc(d, sizeof(status), &at));
	lab_bind(image, "nothing", nothing, &left);
	lab_refused(lab_run(statuses, 1, 1, params, &stats), REVOFF_EHANDLER,
		    "nothing");
	read_statuses(d, at, status, n);
	for (i = 0; i < n; ++i)
		t_check(status[i] == (i < 3    ? REVOFF_OK
				      : i == 3 ? REVOFF_HANDLER
					       : REVOFF_ABORTED));
	t_check(left == 0);
	t_check(stats.abort == REVOFF_ABORT_FAILED);
	/* The abort word may end callers before they reach the mailbox. */
	t_check(stats.calls >= 4 && stats.calls <= 8);
	t_check(stats.failed == stats.calls - 3);

	/* The same step by step. */
	left = 1;
	launch = lab_start(statuses, 1, 1, params);
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	e = revoff_launch_failure(launch);
	t_check(e->code == REVOFF_EHANDLER && strstr(e->text, "nothing"));
	t_check(revoff_launch_finish(launch) == 1);

	/* The other function has no handler. */
	left = 100;
	lab_refused(lab_run(two, 1, 1, params, &stats), REVOFF_ECALL, "other",
		    "no handler", "two");
	read_statuses(d, at, status, 2);
	t_check(status[0] == REVOFF_OK && status[1] == REVOFF_UNBOUND);
	lab_bind(image, "other", nothing, &left);
	lab_ok(lab_run(two, 1, 1, params, &stats));
	read_statuses(d, at, status, 2);
	t_check(status[0] == REVOFF_OK && status[1] == REVOFF_OK);
	lab_bind(image, "other", NULL, NULL);
	lab_refused(lab_run(two, 1, 1, params, &stats), REVOFF_ECALL, "other");

	lab_refused(lab_run(stranger, 1, 1, stranger_params, &stats),
		    REVOFF_ECALL, "unknown function", "0x12345670");
	t_check(stats.calls + stats.failed <= 2);

	begin = lab_now();
	lab_ok(lab_run(statuses, 1, 1, params, &stats));
	read_statuses(d, at, status, n);
	for (i = 0; i < n; ++i)
		t_check(status[i] == REVOFF_OK);
	t_check(stats.calls == 8 && !stats.failed && !stats.abort);
	t_check(stats.elapsed_ns && stats.elapsed_ns <= lab_now() - begin);
	t_check(stats.last_call_ns >= begin);
	t_check(stats.last_call_ns - begin <= lab_now() - begin);
	t_check(!stats.mailbox_fn);
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
