/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a launch that is given up while its thread waits and no call is
 * open must leave the mailbox alone: another image's kernel may be using it.
 * The other kernel's calls are all answered, and answered rightly.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "lab.h"

static uint32_t in_handler, go_on;

static int slow(struct revoff_call *call, void *user)
{
	(void)user;
	lab_set(&in_handler, 1);
	lab_await(&go_on, 1);
	call->result = lab_mix(~call->words[0]);
	t_check(call->words[1] == lab_mix(call->words[0]));
	return 0;
}

static void *serve_until_given_up(void *launch)
{
	int rc = revoff_launch_wait(launch, LAB_LIMIT);

	t_check(rc == REVOFF_EBUSY);
	return NULL;
}

static void *serve_to_the_end(void *launch)
{
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	return NULL;
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *idle = lab_load(d, "typed");
	struct revoff_image *calls = lab_load(d, "typed");
	struct revoff_kernel *deaf = lab_kernel(idle, "deaf");
	static uint32_t started, go;
	uint32_t *ps = &started, *pg = &go;
	uint64_t bad, value = 0;
	int n = 3;
	void *deaf_params[] = { &ps, &pg }, *count_params[] = { &bad, &n };
	struct revoff_launch *a, *b;
	struct revoff_stats stats;
	pthread_t ta, tb;

	lab_bind(calls, "next", slow, NULL);
	lab_ok(revoff_alloc(d, 8, &bad));
	lab_ok(revoff_copy_to_device(d, bad, &value, 8));
	started = go = in_handler = go_on = 0;
	a = lab_start(deaf, 1, 1, deaf_params);
	ta = lab_thread(serve_until_given_up, a);
	lab_await(&started, 1);
	b = lab_start(lab_kernel(calls, "count"), 1, 1, count_params);
	tb = lab_thread(serve_to_the_end, b);
	lab_await(&in_handler, 1);
	lab_sleep_ms(3);
	/* b's call is open, and stays so while a comes and goes. */
	t_check(revoff_launch_finish(a) == 0);
	lab_set(&go, 1);
	lab_join(ta);
	lab_ok(revoff_device_drain(d, LAB_LIMIT));
	lab_set(&go_on, 1);
	lab_join(tb);
	revoff_launch_stats(b, &stats);
	t_check(stats.calls == 3 && !stats.failed);
	t_check(!revoff_launch_failure(b)->code);
	t_check(revoff_launch_finish(b) == 1);
	lab_ok(revoff_copy_from_device(d, &value, bad, 8));
	t_check(!value);
	lab_ok(revoff_free(d, bad));
	lab_ok(revoff_image_unload(idle));
	lab_ok(revoff_image_unload(calls));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
