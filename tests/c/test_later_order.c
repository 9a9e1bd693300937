/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: answers that come later: from another thread, from the handler
 * before it returns, in another order than the calls, all at once.  A handler
 * that changes its mind answers at once.  A launch that is given up with open
 * answers tells the callers, calls the handler to let go, and ends; what says
 * "ready" after that harms nothing, nor after the image is gone.
 * Images: batch
 * Variants: plain asan tsan
 */
#include "lab.h"

#define BLOCKS	2
#define THREADS 64
#define ALL	(BLOCKS * THREADS)

/* Answers that are owed, for a thread to say that they are ready. */
static struct {
	pthread_mutex_t m;
	struct revoff_later *owed[ALL];
	unsigned n;
	uint32_t stop;
} desk = { .m = PTHREAD_MUTEX_INITIALIZER };

static unsigned asked, resumed, let_go, at_once;

static void put(struct revoff_later *later)
{
	pthread_mutex_lock(&desk.m);
	t_check(desk.n < ALL);
	desk.owed[desk.n++] = later;
	pthread_mutex_unlock(&desk.m);
}

static struct revoff_later *get(void)
{
	struct revoff_later *later;

	pthread_mutex_lock(&desk.m);
	/* The newest first: not in the order of the calls. */
	later = desk.n ? desk.owed[--desk.n] : NULL;
	pthread_mutex_unlock(&desk.m);
	return later;
}

static void *clerk(void *arg)
{
	struct revoff_later *later;

	(void)arg;
	while (!lab_get(&desk.stop)) {
		while ((later = get()) != NULL)
			revoff_later_ready(later);
		lab_sleep_ms(1);
	}
	return NULL;
}

/* What every second call of a handler does. */
static int resume(struct revoff_call *call)
{
	if (call->posted < 0) {
		++let_go;
		return 0;
	}
	++resumed;
	t_check(call->nargs == 1 && call->sizes[0] == 8);
	call->result = call->words[0] + 1;
	return 0;
}

static int by_clerk(struct revoff_call *call, void *user)
{
	struct revoff_later *later;

	(void)user;
	if (call->later)
		return resume(call);
	++asked;
	later = revoff_call_later(call);
	t_check(later && later == revoff_call_later(call));
	put(later);
	return REVOFF_LATER;
}

static int before_return(struct revoff_call *call, void *user)
{
	(void)user;
	if (call->later)
		return resume(call);
	++asked;
	revoff_later_ready(revoff_call_later(call));
	return REVOFF_LATER;
}

/* Takes a promise and answers nevertheless. */
static int other_mind(struct revoff_call *call, void *user)
{
	(void)user;
	t_check(!call->later);
	++at_once;
	/* A promise that is not kept is still told to be ready, or it leaks. */
	revoff_later_ready(revoff_call_later(call));
	call->result = call->words[0] + 1;
	return 0;
}

/* Whole batches that are answered later. */
static int batch(struct revoff_batch *b, void *user)
{
	unsigned i;

	(void)user;
	if (!b->later) {
		asked += b->count;
		put(revoff_batch_later(b));
		return REVOFF_LATER;
	}
	if (b->posted < 0) {
		let_go += b->count;
		return 0;
	}
	resumed += b->count;
	for (i = 0; i < b->count; ++i)
		((uint64_t *)b->result->data)[i] =
			((uint64_t *)b->arguments[0].data)[i] + 1;
	return 0;
}

static int late_failure(struct revoff_call *call, void *user)
{
	(void)user;
	if (call->later && call->posted >= 0) {
		++resumed;
		return 5;
	}
	return by_clerk(call, user);
}

struct memory {
	uint64_t status, bad;
};

static void take(struct revoff_device *d, struct memory *m)
{
	uint64_t none = 0;

	lab_ok(revoff_alloc(d, ALL * sizeof(int), &m->status));
	lab_ok(revoff_alloc(d, 8, &m->bad));
	lab_ok(revoff_copy_to_device(d, m->bad, &none, 8));
	asked = resumed = let_go = at_once = 0;
}

static void give(struct revoff_device *d, struct memory *m, int *status)
{
	uint64_t bad;

	lab_ok(revoff_copy_from_device(d, &bad, m->bad, 8));
	lab_ok(revoff_copy_from_device(d, status, m->status,
				       ALL * sizeof(*status)));
	lab_ok(revoff_free(d, m->status));
	lab_ok(revoff_free(d, m->bad));
	t_check(!bad);
}

/* n calls of each thread, all answered in the end. */
static void row(struct revoff_device *d, struct revoff_image *image, int n)
{
	struct memory m;
	struct revoff_stats stats;
	int status[ALL], i;
	void *params[] = { &m.status, &m.bad, &n };
	pthread_t thread;

	take(d, &m);
	lab_set(&desk.stop, 0);
	thread = lab_thread(clerk, NULL);
	lab_ok(lab_run(lab_kernel(image, "row"), BLOCKS, THREADS, params,
		       &stats));
	lab_set(&desk.stop, 1);
	lab_join(thread);
	give(d, &m, status);
	for (i = 0; i < ALL; ++i)
		t_check(status[i] == REVOFF_OK);
	t_check(asked + at_once == (unsigned)n * ALL);
	t_check(resumed == asked && !let_go && !stats.deferred);
}

/* Some calls stay open; then the launch is given up. */
static void give_up(struct revoff_device *d, struct revoff_image *image,
		    struct revoff_later **open, unsigned *nopen)
{
	struct memory m;
	int status[ALL], n = 1, i;
	void *params[] = { &m.status, &m.bad, &n };
	struct revoff_launch *launch;
	struct revoff_stats stats;

	take(d, &m);
	launch = lab_start(lab_kernel(image, "row"), BLOCKS, THREADS, params);
	t_check(revoff_launch_wait(launch, LAB_SECOND / 5) == 0);
	revoff_launch_stats(launch, &stats);
	t_check(asked && stats.deferred && !stats.calls);
	revoff_launch_abort(launch, REVOFF_ABORT_TIMEOUT);
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	revoff_launch_stats(launch, &stats);
	t_check(!stats.deferred && !resumed && let_go == asked);
	t_check(revoff_launch_finish(launch) == 1);
	give(d, &m, status);
	for (i = 0; i < ALL; ++i)
		t_check(status[i] == REVOFF_ABORTED);
	*nopen = 0;
	while ((open[*nopen] = get()) != NULL)
		++*nopen;
	t_check(*nopen);
}

/* "ready" comes from another thread while the launch is given up. */
static void race(struct revoff_device *d, struct revoff_image *image)
{
	struct memory m;
	int status[ALL], n = 1000000, i;
	void *params[] = { &m.status, &m.bad, &n };
	struct revoff_launch *launch;
	pthread_t thread;

	take(d, &m);
	lab_set(&desk.stop, 0);
	thread = lab_thread(clerk, NULL);
	launch = lab_start(lab_kernel(image, "row"), BLOCKS, THREADS, params);
	t_check(revoff_launch_wait(launch, LAB_SECOND / 20) == 0);
	revoff_launch_abort(launch, REVOFF_ABORT_TIMEOUT);
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	t_check(revoff_launch_finish(launch) == 1);
	lab_set(&desk.stop, 1);
	lab_join(thread);
	give(d, &m, status);
	for (i = 0; i < ALL; ++i)
		t_check(status[i] == REVOFF_ABORTED);
	t_check(resumed + let_go == asked && resumed);
	for (struct revoff_later *l = get(); l; l = get())
		revoff_later_ready(l);
}

static void fail_later(struct revoff_device *d, struct revoff_image *image)
{
	struct memory m;
	int status[ALL], n = 1, i;
	unsigned failed = 0;
	void *params[] = { &m.status, &m.bad, &n };
	pthread_t thread;

	take(d, &m);
	lab_set(&desk.stop, 0);
	thread = lab_thread(clerk, NULL);
	lab_refused(lab_run(lab_kernel(image, "row"), BLOCKS, THREADS, params,
			    NULL),
		    REVOFF_EHANDLER, "handler of eight");
	lab_set(&desk.stop, 1);
	lab_join(thread);
	give(d, &m, status);
	for (i = 0; i < ALL; ++i) {
		failed += status[i] == REVOFF_HANDLER;
		t_check(status[i] == REVOFF_HANDLER ||
			status[i] == REVOFF_ABORTED);
	}
	t_check(failed && failed == resumed);
	for (struct revoff_later *l = get(); l; l = get())
		revoff_later_ready(l);
}

int main(int argc, char **argv)
{
	struct revoff_device_options o = { .transport =
						   REVOFF_TRANSPORT_PORTS };
	struct revoff_later *open[2][ALL + 1];
	struct revoff_device *d;
	struct revoff_image *image;
	unsigned index, nopen[2], i, k;

	lab_begin(argc, argv);
	d = lab_open(&o);
	image = lab_load(d, "batch");
	index = lab_bind(image, "eight", by_clerk, NULL);
	row(d, image, 10);
	lab_bind(image, "eight", before_return, NULL);
	row(d, image, 10);
	lab_bind(image, "eight", other_mind, NULL);
	row(d, image, 10);
	lab_bind(image, "eight", by_clerk, NULL);
	race(d, image);
	give_up(d, image, open[0], &nopen[0]);
	row(d, image, 5);
	lab_bind(image, "eight", late_failure, NULL);
	fail_later(d, image);
	lab_ok(revoff_image_bind_batch(image, index, batch, NULL, NULL, 0));
	row(d, image, 10);
	give_up(d, image, open[1], &nopen[1]);
	row(d, image, 5);
	/* Of launches that ended long ago; then of an image that is gone. */
	for (i = 0; i < nopen[0]; ++i)
		revoff_later_ready(open[0][i]);
	lab_ok(revoff_image_unload(image));
	for (k = 0; k < nopen[1]; ++k)
		revoff_later_ready(open[1][k]);
	lab_close(d);
	return T_PASS;
}
