/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: an image runs one kernel at a time and says which; what must
 * wait for a running kernel is refused or put off: launch, unload, close, and
 * a second thread that serves.  Memory freed meanwhile is freed later.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "lab.h"

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	++*(int *)user;
	return 0;
}

struct server {
	struct revoff_launch *launch;
	uint32_t in;
	int rc;
};

static void *serve(void *arg)
{
	struct server *s = arg;

	lab_set(&s->in, 1);
	s->rc = revoff_launch_wait(s->launch, LAB_LIMIT);
	return NULL;
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed"), *second;
	struct revoff_kernel *hold = lab_kernel(image, "hold");
	struct revoff_kernel *empty = lab_kernel(image, "empty");
	struct revoff_launch_config config = {
		{ 1, 1, 1 }, { 1, 1, 1 }, 0, NULL, NULL
	};
	static uint32_t started, go;
	uint32_t *ps = &started, *pg = &go;
	int calls = 3, count = 0;
	void *params[] = { &ps, &pg, &calls };
	struct server s = { 0 };
	struct revoff_launch *other;
	pthread_t thread;
	uint64_t memory[3];
	int i;

	second = lab_load(d, "typed");
	started = go = 0;
	lab_bind(image, "nothing", nothing, &count);
	s.launch = lab_start(hold, 1, 1, params);
	lab_await(&started, 1);
	lab_refused(revoff_launch_start(empty, &config, &other), REVOFF_EBUSY,
		    "empty", "hold");
	t_check(!other);
	lab_refused(revoff_image_unload(image), REVOFF_EBUSY, "hold");
	lab_refused(revoff_device_close(d), REVOFF_EBUSY, "still runs");
	thread = lab_thread(serve, &s);
	lab_await(&s.in, 1);
	lab_sleep_ms(5);
	lab_refused(revoff_launch_wait(s.launch, 0), REVOFF_EBUSY,
		    "another thread");
	/* Another image goes on meanwhile, to its end and out. */
	lab_ok(lab_run(lab_kernel(second, "empty"), 1, 1, NULL, NULL));
	lab_ok(revoff_image_unload(second));
	for (i = 0; i < 3; ++i)
		lab_ok(revoff_alloc(d, 1000, &memory[i]));
	for (i = 0; i < 3; ++i)
		lab_ok(revoff_free(d, memory[i]));
	lab_refused(revoff_free(d, memory[0]), REVOFF_EINVAL, "freed already");
	t_check(!lab_get(&go));
	lab_set(&go, 1);
	lab_join(thread);
	t_check(s.rc == 1 && count == 3);
	/* Ended, but not yet finished: still that launch's. */
	lab_refused(revoff_launch_start(empty, &config, &other), REVOFF_EBUSY,
		    "hold");
	t_check(revoff_launch_finish(s.launch) == 1);
	lab_ok(lab_run(empty, 1, 1, NULL, NULL));
	lab_refused(revoff_device_close(d), REVOFF_EBUSY, "images are loaded");
	lab_ok(revoff_image_unload(image));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
