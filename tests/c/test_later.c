/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: handlers that answer later, for single calls and for batches:
 * any thread says when; each promise ends once, with the answer or, if the
 * launch is given up, the handler fails or is left alone in its launch, with
 * posted -1; nothing that comes after that does harm.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "lab.h"

#define MOST	64
#define BLOCKS	4
#define THREADS 32

enum how {
	ANSWER,
	NEVER,
	FAIL,
	STAY
};

/* What the handlers of a test do, and what they saw. */
static struct {
	enum how how;
	uint32_t asked, answered, called_off, may_return;
	uint32_t nopen;
	struct revoff_later *open[MOST];
	pthread_mutex_t m;
} now = { .m = PTHREAD_MUTEX_INITIALIZER };

static void begin(enum how how)
{
	now.how = how;
	now.asked = now.answered = now.called_off = now.may_return = 0;
	now.nopen = 0;
}

static void add(struct revoff_later *later)
{
	pthread_mutex_lock(&now.m);
	t_check(now.nopen < MOST);
	now.open[now.nopen++] = later;
	pthread_mutex_unlock(&now.m);
	lab_set(&now.asked, lab_get(&now.asked) + 1);
}

/* The newest first, so that answers are out of order. */
static uint32_t make_ready(void)
{
	struct revoff_later *later;
	uint32_t n = 0;

	for (;; ++n) {
		pthread_mutex_lock(&now.m);
		later = now.nopen ? now.open[--now.nopen] : NULL;
		pthread_mutex_unlock(&now.m);
		if (!later)
			return n;
		revoff_later_ready(later);
	}
}

/* What a handler does the first time: its return value. */
static int first(struct revoff_later *later)
{
	t_check(later);
	add(later);
	if (now.how == STAY)
		lab_await(&now.may_return, 1);
	return now.how == FAIL ? -1 : REVOFF_LATER;
}

/* And the second time: 1 if an answer is wanted. */
static int again(int posted)
{
	uint32_t *count = posted < 0 ? &now.called_off : &now.answered;

	lab_set(count, lab_get(count) + 1);
	return posted >= 0;
}

static int change(struct revoff_call *call, void *user)
{
	int *array = (int *)(uintptr_t)call->words[0];
	uint64_t i;

	(void)user;
	if (!call->later)
		return first(revoff_call_later(call));
	if (again(call->posted)) {
		for (i = 0; i < call->sizes[0] / 4; ++i)
			array[i] += 1;
		call->result = 7;
	}
	return 0;
}

static int lanes(struct revoff_batch *batch, void *user)
{
	unsigned i;

	(void)user;
	t_check(batch->nargs == 1 && batch->count);
	if (!batch->later)
		return first(revoff_batch_later(batch));
	if (!again(batch->posted))
		return 0;
	for (i = 0; i < batch->count; ++i) {
		const struct revoff_column *a = &batch->arguments[0];
		uint64_t x, y;

		memcpy(&x, (char *)a->data + i * a->stride, 8);
		y = lab_mix(x);
		memcpy((char *)batch->result->data + i * batch->result->stride,
		       &y, 8);
	}
	return 0;
}

struct lab {
	struct revoff_device *device;
	struct revoff_image *image;
	uint64_t array, answer, bad;
	int n;
	uint32_t done;
	struct revoff_launch *launch;
	int rc;
};

static void *serve(void *arg)
{
	struct lab *l = arg;

	l->rc = revoff_launch_wait(l->launch, LAB_LIMIT);
	lab_set(&l->done, 1);
	return NULL;
}

static struct revoff_launch *start(struct lab *l, int batch)
{
	void *one[] = { &l->array, &l->n, &l->answer }, *many[] = { &l->bad };

	l->done = 0;
	if (batch)
		return lab_start(lab_kernel(l->image, "lanes"), BLOCKS, THREADS,
				 many);
	return lab_start(lab_kernel(l->image, "modify"), 1, 1, one);
}

static void test_answers(struct lab *l, int batch)
{
	struct revoff_stats stats;
	pthread_t thread;
	uint64_t bad = 0;
	int array[1000] = { 0 }, answer = 0;
	uint32_t n = 0;

	begin(ANSWER);
	lab_ok(revoff_copy_to_device(l->device, l->bad, &bad, 8));
	lab_ok(revoff_copy_to_device(l->device, l->array, array, 4000));
	l->launch = start(l, batch);
	thread = lab_thread(serve, l);
	while (!lab_get(&l->done)) {
		n += make_ready();
		lab_sleep_ms(1);
	}
	lab_join(thread);
	t_check(l->rc == 1);
	revoff_launch_stats(l->launch, &stats);
	t_check(revoff_launch_finish(l->launch) == 1);
	t_check(n == now.asked && n == now.answered && !now.called_off);
	t_check(!stats.failed && !stats.deferred);
	if (batch) {
		lab_ok(revoff_copy_from_device(l->device, &bad, l->bad, 8));
		t_check(!bad && stats.calls == BLOCKS * THREADS);
		t_check(stats.batches == n);
		return;
	}
	lab_ok(revoff_copy_from_device(l->device, array, l->array, 4000));
	lab_ok(revoff_copy_from_device(l->device, &answer, l->answer, 4));
	t_check(answer == 7 && array[0] == 1 && array[l->n - 1] == 1);
	t_check(stats.calls == 1);
}

/* The launch is given up while answers are owed; they come when it is over. */
static void test_given_up(struct lab *l, int batch)
{
	struct revoff_stats stats;

	begin(NEVER);
	l->launch = start(l, batch);
	while (!lab_get(&now.asked))
		t_check(revoff_launch_wait(l->launch, 1000000) == 0);
	revoff_launch_stats(l->launch, &stats);
	t_check(stats.deferred && !stats.calls);
	revoff_launch_abort(l->launch, REVOFF_ABORT_SIGNAL);
	t_check(revoff_launch_wait(l->launch, LAB_LIMIT) == 1);
	revoff_launch_stats(l->launch, &stats);
	t_check(!stats.deferred && stats.failed == stats.calls);
	t_check(stats.calls >= 1);
	t_check(revoff_launch_finish(l->launch) == 1);
	t_check(now.called_off == now.asked && !now.answered);
	t_check(make_ready() == now.asked);
}

/* Handed over with answers owed: the library's thread tells the handler. */
static void test_left_behind(struct lab *l, int batch)
{
	begin(NEVER);
	l->launch = start(l, batch);
	while (!lab_get(&now.asked))
		t_check(revoff_launch_wait(l->launch, 1000000) == 0);
	t_check(revoff_launch_finish(l->launch) == 0);
	lab_ok(revoff_device_drain(l->device, LAB_LIMIT));
	t_check(now.called_off == now.asked && !now.answered);
	make_ready();
}

static void test_fails(struct lab *l, int batch)
{
	begin(FAIL);
	l->launch = start(l, batch);
	t_check(revoff_launch_wait(l->launch, LAB_LIMIT) == 1);
	t_check(revoff_launch_failure(l->launch)->code == REVOFF_EHANDLER);
	/* Also before the launch is over: it is not ready for anything. */
	make_ready();
	t_check(revoff_launch_finish(l->launch) == 1);
	t_check(now.asked && now.called_off == now.asked && !now.answered);
}

/* Its launch is gone when the handler says that it will answer later. */
static void test_stays(struct lab *l, int batch)
{
	pthread_t thread;

	begin(STAY);
	l->launch = start(l, batch);
	thread = lab_thread(serve, l);
	lab_await(&now.asked, 1);
	t_check(revoff_launch_finish(l->launch) == 0);
	lab_set(&now.may_return, 1);
	lab_join(thread);
	t_check(l->rc == REVOFF_EBUSY);
	t_check(now.called_off == 1 && !now.answered);
	lab_ok(revoff_device_drain(l->device, LAB_LIMIT));
	make_ready();
}

static void test(const struct revoff_device_options *o)
{
	struct lab l = { .n = 1000 };
	int index, batch;

	l.device = lab_open(o);
	l.image = lab_load(l.device, "typed");
	lab_ok(revoff_alloc(l.device, 4000, &l.array));
	lab_ok(revoff_alloc(l.device, 4, &l.answer));
	lab_ok(revoff_alloc(l.device, 8, &l.bad));
	lab_bind(l.image, "change", change, NULL);
	index = revoff_image_find(l.image, "lane");
	t_check(index >= 0);
	lab_ok(revoff_image_bind_batch(l.image, (unsigned)index, lanes, NULL,
				       NULL, 0));
	for (batch = 0; batch < 2; ++batch) {
		test_answers(&l, batch);
		test_given_up(&l, batch);
		test_fails(&l, batch);
		test_stays(&l, batch);
		test_left_behind(&l, batch);
		test_answers(&l, batch);
	}
	lab_ok(revoff_free(l.device, l.array));
	lab_ok(revoff_free(l.device, l.answer));
	lab_ok(revoff_free(l.device, l.bad));
	lab_ok(revoff_image_unload(l.image));
	lab_close(l.device);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
