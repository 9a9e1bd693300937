/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a handler that does not return.  finish() hands its launch
 * over; the kernel's caller leaves and the kernel ends; launches that would
 * need the mailbox are refused by the handler's name until it returns; then
 * everything is as it was, and no late answer hits anybody.
 * Images: typed plain
 * Variants: plain asan tsan
 */
#include "lab.h"

static uint32_t in_handler, may_return;
static int after;

static int block(struct revoff_call *call, void *user)
{
	(void)user;
	lab_set(&in_handler, 1);
	lab_await(&may_return, 1);
	call->result = 1;
	return 0;
}

static int quick(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	++after;
	return 0;
}

struct server {
	struct revoff_launch *launch;
	int rc;
	uint32_t done;
};

static void *serve(void *arg)
{
	struct server *s = arg;

	s->rc = revoff_launch_wait(s->launch, LAB_LIMIT);
	t_check(s->rc == REVOFF_EBUSY);
	t_check(strstr(revoff_last_error()->text, "given up"));
	lab_set(&s->done, 1);
	return NULL;
}

/*
 * Wait until the kernel's caller has left, seen through its memory, word by
 * word: the kernel still writes.
 */
static void await_status(struct revoff_device *d, uint64_t at)
{
	uint64_t limit = lab_now() + LAB_LIMIT;
	int i, status;

	for (i = 2; i >= 0; --i) {
		do {
			t_check(lab_now() < limit);
			lab_ok(revoff_copy_from_device(
				d, &status, at + (unsigned)i * 4, 4));
			lab_sleep_ms(1);
		} while (status == -1);
		t_check(status == REVOFF_ABORTED);
	}
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed");
	struct revoff_image *second = lab_load(d, "typed");
	struct revoff_image *plain = lab_load(d, "plain");
	struct revoff_kernel *statuses = lab_kernel(image, "statuses");
	struct revoff_kernel *other = lab_kernel(second, "statuses");
	struct server s = { 0 };
	struct revoff_stats stats;
	int n = 3, status[3] = { -1, -1, -1 }, i;
	int ports = o->transport == REVOFF_TRANSPORT_PORTS;
	uint64_t at, word;
	void *params[] = { &at, &n }, *touch[] = { &word };
	pthread_t thread;

	in_handler = may_return = 0;
	after = 0;
	lab_ok(revoff_alloc(d, sizeof(status), &at));
	lab_ok(revoff_alloc(d, 4, &word));
	lab_ok(revoff_copy_to_device(d, at, status, sizeof(status)));
	lab_bind(image, "nothing", block, NULL);
	lab_bind(second, "nothing", quick, NULL);
	s.launch = lab_start(statuses, 1, 1, params);
	thread = lab_thread(serve, &s);
	lab_await(&in_handler, 1);
	revoff_launch_stats(s.launch, &stats);
	t_check(stats.in_handler == 1 && stats.calls == 0);
	t_check(revoff_launch_finish(s.launch) == 0);
	await_status(d, at);
	/* The mailbox is the device's; ports are each image's own. */
	if (ports)
		lab_ok(lab_run(other, 1, 1, params, NULL));
	else
		lab_refused(lab_run(other, 1, 1, params, NULL), REVOFF_EBUSY,
			    "statuses", "handler of nothing",
			    "has not returned");
	lab_refused(lab_run(statuses, 1, 1, params, NULL), REVOFF_EBUSY,
		    "statuses");
	/* What needs no mailbox runs. */
	lab_ok(lab_run(lab_kernel(plain, "touch"), 1, 1, touch, NULL));
	lab_refused(revoff_device_close(d), REVOFF_EBUSY, "still runs");
	t_check(!lab_get(&s.done));
	lab_set(&may_return, 1);
	lab_join(thread);
	lab_ok(revoff_device_drain(d, LAB_LIMIT));

	lab_ok(lab_run(other, 1, 1, params, &stats));
	t_check(stats.calls == 3 && !stats.failed && !stats.mailbox_fn);
	lab_bind(image, "nothing", quick, NULL);
	lab_ok(lab_run(statuses, 1, 1, params, &stats));
	t_check(after == (ports ? 9 : 6) && !stats.deserted);
	lab_ok(revoff_copy_from_device(d, status, at, sizeof(status)));
	for (i = 0; i < n; ++i)
		t_check(status[i] == REVOFF_OK);
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_free(d, word));
	lab_ok(revoff_image_unload(image));
	lab_ok(revoff_image_unload(second));
	lab_ok(revoff_image_unload(plain));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
