/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* ---- starting ------------------------------------------------------------- */

/* Lock held.  Streams are kept: making one costs more than a launch. */
static void give_stream(struct revoff_device *d, CUstream stream)
{
	if (d->nstreams == d->mstreams) {
		unsigned m = d->mstreams ? 2 * d->mstreams : 8;
		CUstream *s = realloc(d->streams, m * sizeof(*s));

		if (!s) {
			d->drv->cuStreamDestroy(stream);
			return;
		}
		d->streams = s;
		d->mstreams = m;
	}
	d->streams[d->nstreams++] = stream;
}

/* Lock held. */
static int register_launch(struct revoff_launch *l)
{
	struct revoff_device *d = l->device;
	struct revoff_image *image = l->image;
	unsigned i;
	int rc = 0;

	if (image->launch && d->stuck == image->launch)
		rc = fail(REVOFF_EBUSY,
			  "kernel %s: the image's kernel %s was given up, and "
			  "the handler of %s has not returned",
			  l->kernel->name, image->launch->kernel->name,
			  image->functions[d->stuck->handler_index].name);
	else if (image->launch)
		rc = fail(REVOFF_EBUSY,
			  "kernel %s: the image already runs %s%s; an image "
			  "runs one kernel at a time",
			  l->kernel->name, image->launch->kernel->name,
			  image->launch->abandoned ? ", which was given up"
						   : "");
	else if (d->stuck && image->connected)
		rc = fail(
			REVOFF_EBUSY,
			"kernel %s: a handler of %s (kernel %s), which was "
			"given up, has not returned and still holds the "
			"device's mailbox",
			l->kernel->name,
			d->stuck->image->functions[d->stuck->handler_index].name,
			d->stuck->kernel->name);
	if (!rc) {
		image->launch = l;
		d->nlaunches++;
		/* Binding during a launch is for later launches. */
		for (i = 0; i < l->nbound; ++i) {
			l->bound[i] = image->functions[i].bound;
		}
		if (d->nstreams)
			l->stream = d->streams[--d->nstreams];
	}
	return rc;
}

void launch_free(struct revoff_launch *l)
{
	pthread_mutex_destroy(&l->m);
	free(l->list.addrs);
	run_free(l->run);
	free(l->bound);
	free(l);
}

static struct revoff_launch *new_launch(void)
{
	struct revoff_launch *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	if (scratch_reserve(&l->list, REVOFF_PACKET_MAPS + 1)) {
		free(l);
		return NULL;
	}
	pthread_mutex_init(&l->m, NULL);
	return l;
}

/*
 * Launches are used again, with their scratch memory: an image without reverse
 * functions should cost no more than a plain launch.  Lock held.
 */
static struct revoff_launch *take_launch(struct revoff_kernel *kernel)
{
	struct revoff_device *d = kernel->image->device;
	struct revoff_launch *l = d->spare;
	unsigned n = image_count(kernel->image);

	if (l)
		d->spare = l->next;
	else
		l = new_launch();
	if (l && l->mbound < n) {
		struct bound *b = realloc(l->bound, n * sizeof(*b));

		if (!b) {
			launch_free(l);
			l = NULL;
		} else {
			l->bound = b;
			l->mbound = n;
		}
	}
	if (!l) {
		fail(REVOFF_ENOMEM, "out of host memory");
		return NULL;
	}
	memset(&l->fresh, 0,
	       offsetof(struct revoff_launch, failure) -
		       offsetof(struct revoff_launch, fresh));
	l->nbound = n;
	l->device = d;
	l->image = kernel->image;
	l->kernel = kernel;
	return l;
}

/* The launch has ended, or never began. */
void launch_unregister(struct revoff_launch *l)
{
	struct revoff_device *d = l->device;

	laters_close(l);
	/* A ring in which warps gave up waiting has gaps. */
	if (l->image->ports && launch_given_up(l))
		l->image->ports->dirty = 1;
	pthread_mutex_lock(&d->lock);
	if (l->image->launch == l) {
		l->image->launch = NULL;
		d->nlaunches--;
	}
	if (d->stuck == l)
		d->stuck = NULL;
	if (l->stream)
		give_stream(d, l->stream);
	if (!d->nlaunches)
		device_flush(d);
	pthread_cond_broadcast(&d->quiet);
	l->next = d->spare;
	d->spare = l;
	pthread_mutex_unlock(&d->lock);
}

static int check_config(struct revoff_kernel *k,
			const struct revoff_launch_config *c)
{
	static const unsigned most_grid[3] = { 0x7fffffff, 65535, 65535 };
	static const unsigned most_block[3] = { 1024, 1024, 64 };
	uint64_t threads = (uint64_t)c->block[0] * c->block[1] * c->block[2];
	int i;

	for (i = 0; i < 3; ++i)
		if (!c->grid[i] || !c->block[i])
			return fail(REVOFF_EINVAL,
				    "kernel %s: grid and block must be at "
				    "least 1 in each direction",
				    k->name);
	if (threads > (uint64_t)k->max_threads)
		return fail(REVOFF_EINVAL,
			    "kernel %s: a block of %llu threads, at most %d "
			    "are possible",
			    k->name, (unsigned long long)threads,
			    k->max_threads);
	/* As all GPUs have them; the CPU device, too, so that code is portable. */
	for (i = 0; i < 3; ++i)
		if (c->grid[i] > most_grid[i] || c->block[i] > most_block[i])
			return fail(REVOFF_EINVAL,
				    "kernel %s: a grid is at most (%u, %u, %u) "
				    "and a block (%u, %u, %u)",
				    k->name, most_grid[0], most_grid[1],
				    most_grid[2], most_block[0], most_block[1],
				    most_block[2]);
	return 0;
}

static int launch(struct revoff_launch *l, const struct revoff_launch_config *c)
{
	const struct revoff_driver *drv = l->device->drv;
	CUresult r = 0;

	if (c->shared > 48 * 1024 && drv->cuFuncSetAttribute)
		r = drv->cuFuncSetAttribute(
			l->kernel->function,
			CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			(int)c->shared);
	if (r)
		return fail_driver(drv, r, "cuFuncSetAttribute",
				   "kernel %s: %u bytes of shared memory",
				   l->kernel->name, c->shared);
	/* Registering took a stream of ours, if one was free. */
	if (!l->stream && !c->stream)
		r = drv->cuStreamCreate(&l->stream, CU_STREAM_NON_BLOCKING);
	if (r) {
		l->stream = NULL;
		return fail_driver(drv, r, "cuStreamCreate", "kernel %s",
				   l->kernel->name);
	}
	l->run_stream = c->stream ? c->stream : l->stream;
	r = drv->cuLaunchKernel(l->kernel->function, c->grid[0], c->grid[1],
				c->grid[2], c->block[0], c->block[1],
				c->block[2], c->shared, l->run_stream,
				c->params, NULL);
	if (!r) {
		/* Not before: the kernel is on its way while we ask. */
		l->start_ns = l->active_ns = now_ns();
		return 0;
	}
	device_result(l->device, r, "cuLaunchKernel", l->kernel->name);
	return error_slot()->code;
}

/* Context current. */
static int start(struct revoff_kernel *kernel,
		 const struct revoff_launch_config *config,
		 struct revoff_launch **out)
{
	struct revoff_image *image = kernel->image;
	struct revoff_launch *l;
	int rc;

	pthread_mutex_lock(&image->device->lock);
	l = take_launch(kernel);
	rc = l ? register_launch(l) : REVOFF_ENOMEM;
	pthread_mutex_unlock(&image->device->lock);
	if (!l)
		return rc;
	if (!rc) {
		/* Nobody reads the control words between launches. */
		if (image->control)
			memset(image->control, 0, sizeof(*image->control));
		rc = ports_begin(l);
		if (!rc)
			rc = launch(l, config);
	}
	if (rc) {
		struct revoff_error kept = *error_slot();

		launch_unregister(l);
		*error_slot() = kept;
		return rc;
	}
	*out = l;
	return 0;
}

static int start_checked(struct revoff_kernel *kernel,
			 const struct revoff_launch_config *config)
{
	int rc = check_config(kernel, config);

	return rc ? rc
		  : device_enter(kernel->image->device, ENTER_NO_HANDLER,
				 "launch");
}

REVOFF_API int revoff_launch_start(struct revoff_kernel *kernel,
				   const struct revoff_launch_config *config,
				   struct revoff_launch **out)
{
	int rc = start_checked(kernel, config);

	*out = NULL;
	if (rc)
		return rc;
	rc = start(kernel, config, out);
	device_leave(kernel->image->device);
	return rc;
}

/* ---- ending ---------------------------------------------------------------- */

REVOFF_API int revoff_launch_abort(struct revoff_launch *l, int reason)
{
	struct revoff_control *c = l->image->control;
	uint32_t none = REVOFF_ABORT_NONE;

	if (c)
		/* [abort atomic] */
		__atomic_compare_exchange_n(&c->abort, &none, (uint32_t)reason,
					    0, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED);
	/* A kernel that only asks whether it should stop, should. */
	return revoff_launch_stop(l);
}

REVOFF_API int revoff_launch_stop(struct revoff_launch *l)
{
	if (l->image->control)
		/* [stop store] */
		__atomic_store_n(&l->image->control->stop, 1u,
				 __ATOMIC_RELAXED);
	return 0;
}

/* What calls that never reached the mailbox left behind. */
static void report_missed(struct revoff_launch *l)
{
	struct revoff_control *c = l->image->control;
	const char *name = "?";
	int index, status;
	uint64_t fn;

	/* [missed load] */
	if (!c || !__atomic_load_n(&c->missed, __ATOMIC_ACQUIRE))
		return;
	status = c->missed_status;
	fn = c->missed_fn;
	index = image_find_fn(l->image, fn);
	if (index >= 0)
		name = l->image->functions[index].name;
	launch_fail(
		l, REVOFF_ECALL,
		"kernel %s: %u call%s of function 0x%llx (%s%s) could not be "
		"sent: %s%s",
		l->kernel->name, c->missed, c->missed == 1 ? "" : "s",
		(unsigned long long)fn, name,
		c->missed == 1 ? "" : ", the last", revoff_status_name(status),
		status == REVOFF_TOOBIG
			? " (values, and data in local or shared memory, must "
			  "fit in 16384 bytes, and so must all data of a post, "
			  "print or log; other data in global memory need not)"
		: status == REVOFF_UNCONNECTED
			? " (the image has no reverse function in its table, "
			  "so no host serves it)"
			: "");
}

/*
 * A result that leaves the context alive does not say that the kernel is gone:
 * it may wait for an answer.  It is taken for gone if the driver says nothing
 * else for about a second (its stream may have been destroyed).
 */
#define MAX_ODD_ANSWERS 5000

/* 1 ended, 0 runs, negative: the device failed. */
static int note_result(struct revoff_launch *l, CUresult r, const char *entry)
{
	int gone = 1;

	if (r == CUDA_ERROR_NOT_READY) {
		l->odd_answers = 0;
		return 0;
	}
	if (r) {
		device_result(l->device, r, entry, l->kernel->name);
		gone = l->device->lost || ++l->odd_answers > MAX_ODD_ANSWERS;
	}
	if (gone) {
		l->end_ns = now_ns();
		l->result = r;
		/* [ended store] */
		__atomic_store_n(&l->ended, 1, __ATOMIC_RELEASE);
	}
	if (!r) {
		report_missed(l);
		return 1;
	}
	launch_fail(l, error_slot()->code,
		    "kernel %s %s driver error %d (%s) after %llu calls: %s",
		    l->kernel->name,
		    gone ? "ended with" : "may still run after", r,
		    error_slot()->driver_name, (unsigned long long)l->calls,
		    error_slot()->text);
	return error_slot()->code;
}

int launch_ask_stream(struct revoff_launch *l)
{
	return note_result(l, l->device->drv->cuStreamQuery(l->run_stream),
			   "cuStreamQuery");
}

/* ---- waiting ---------------------------------------------------------------- */

static int wait_begin(struct revoff_launch *l)
{
	int rc = 0;

	pthread_mutex_lock(&l->m);
	if (l->in_wait || l->abandoned)
		rc = fail(REVOFF_EBUSY,
			  "kernel %s: another thread serves this launch",
			  l->kernel->name);
	else
		l->in_wait = 1;
	pthread_mutex_unlock(&l->m);
	return rc;
}

/* From here on the reaper may end the launch, and others close the device. */
static int wait_end(struct revoff_launch *l, int rc)
{
	int gone;

	pthread_mutex_lock(&l->m);
	l->in_wait = 0;
	gone = l->left;
	pthread_mutex_unlock(&l->m);
	return gone ? fail(REVOFF_EBUSY,
			   "the launch was given up while its handler ran")
		    : rc;
}

/* Context current. */
static int wait_for(struct revoff_launch *l, uint64_t timeout_ns)
{
	int rc = wait_begin(l);

	return rc ? rc : wait_end(l, launch_poll(l, timeout_ns));
}

REVOFF_API int revoff_launch_wait(struct revoff_launch *l, uint64_t timeout_ns)
{
	struct revoff_device *d = l->device;
	int rc = device_enter(d, 0, "wait"), begun;

	if (rc)
		return rc;
	rc = wait_begin(l);
	begun = !rc;
	if (begun)
		rc = launch_poll(l, timeout_ns);
	device_leave(d);
	return begun ? wait_end(l, rc) : rc;
}

REVOFF_API const struct revoff_error *
revoff_launch_failure(struct revoff_launch *l)
{
	static const struct revoff_error none;

	/* [failure load] */
	return __atomic_load_n(&l->has_failure, __ATOMIC_ACQUIRE) ? &l->failure
								  : &none;
}

REVOFF_API void revoff_launch_stats(struct revoff_launch *l,
				    struct revoff_stats *stats)
{
	struct revoff_device *d = l->device;
	struct revoff_control *c = l->image->control;

	memset(stats, 0, sizeof(*stats));
	stats->calls = __atomic_load_n(&l->calls, __ATOMIC_RELAXED);
	stats->failed = __atomic_load_n(&l->failed, __ATOMIC_RELAXED);
	stats->polls = __atomic_load_n(&l->polls, __ATOMIC_RELAXED);
	stats->sleeps = __atomic_load_n(&l->sleeps, __ATOMIC_RELAXED);
	stats->posts = __atomic_load_n(&l->posts, __ATOMIC_RELAXED);
	stats->batches = __atomic_load_n(&l->batches, __ATOMIC_RELAXED);
	stats->open_ports = ports_open_count(l->image->ports);
	stats->deferred = l->laters ? __atomic_load_n(&l->laters->npending,
						      __ATOMIC_RELAXED)
				    : 0;
	/* [ended-stats load] */
	stats->elapsed_ns = (__atomic_load_n(&l->ended, __ATOMIC_ACQUIRE)
				     ? l->end_ns
				     : now_ns()) -
			    l->start_ns;
	stats->last_call_ns =
		__atomic_load_n(&l->last_call_ns, __ATOMIC_RELAXED);
	pthread_mutex_lock(&l->m);
	stats->in_handler = (uint32_t)l->in_handler;
	pthread_mutex_unlock(&l->m);
	stats->handler_index =
		__atomic_load_n(&l->handler_index, __ATOMIC_RELAXED);
	if (c) {
		stats->abort = __atomic_load_n(&c->abort, __ATOMIC_RELAXED);
		stats->deserted =
			__atomic_load_n(&c->deserted, __ATOMIC_RELAXED);
		/* [dropped load] */
		stats->dropped = __atomic_load_n(&c->dropped, __ATOMIC_RELAXED);
	}
	/* In placement copy this is the mirror, as of the last look. */
	if (d->mailbox.host)
		stats->mailbox_fn = __atomic_load_n(&d->mailbox.host->call.fn,
						    __ATOMIC_RELAXED);
}

/* ---- finishing --------------------------------------------------------- */

/* Context current, if it still can be. */
static int finish(struct revoff_launch *l)
{
	int in_wait;

	pthread_mutex_lock(&l->m);
	in_wait = l->in_wait;
	pthread_mutex_unlock(&l->m);
	/* [ended load] */
	if (in_wait || !__atomic_load_n(&l->ended, __ATOMIC_ACQUIRE))
		return launch_hand_over(l);
	launch_unregister(l);
	return 1;
}

REVOFF_API int revoff_launch_finish(struct revoff_launch *l)
{
	struct revoff_device *d = l->device;
	int entered = !device_enter(d, 0, "finish"), rc;

	rc = finish(l);
	if (entered)
		device_leave(d);
	return rc;
}

/* How long a timed-out kernel gets to see the abort word. */
#define GRACE_NS 2000000000ull

REVOFF_API int revoff_run(struct revoff_kernel *kernel,
			  const struct revoff_launch_config *config,
			  uint64_t timeout_ns, struct revoff_stats *stats)
{
	struct revoff_device *d = kernel->image->device;
	struct revoff_launch *l;
	int rc = start_checked(kernel, config), timed_out = 0;

	if (rc)
		return rc;
	rc = start(kernel, config, &l);
	if (rc) {
		device_leave(d);
		return rc;
	}
	/* Nothing to serve and no limit: a plain launch and synchronise. */
	rc = 0;
	if (!l->image->connected && timeout_ns == UINT64_MAX) {
		CUresult r = d->drv->cuStreamSynchronize(l->run_stream);

		if (!r && !stats && !l->image->control) {
			launch_unregister(l);
			device_leave(d);
			return 0;
		}
		rc = note_result(l, r, "cuStreamSynchronize");
	}
	if (!rc)
		rc = wait_for(l, timeout_ns);
	if (!rc) {
		timed_out = 1;
		revoff_launch_abort(l, REVOFF_ABORT_TIMEOUT);
		rc = wait_for(l, GRACE_NS);
	}
	if (stats)
		revoff_launch_stats(l, stats);
	if (timed_out)
		rc = fail(REVOFF_ETIMEOUT,
			  "kernel %s: %.3f s passed after %llu calls; %s",
			  kernel->name, (double)timeout_ns * 1e-9,
			  (unsigned long long)l->calls,
			  rc ? "it was told to end, and did" : "it still runs");
	else if (l->has_failure)
		rc = l->failure.code;
	else if (rc > 0)
		rc = 0;
	if (rc) {
		struct revoff_error kept = timed_out || !l->has_failure
						   ? *error_slot()
						   : l->failure;

		finish(l);
		*error_slot() = kept;
	} else {
		finish(l);
	}
	device_leave(d);
	return rc;
}
