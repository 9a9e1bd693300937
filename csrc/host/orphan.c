/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches that were given up while their kernel still runs.  A thread of the
 * library, one per device and only while there are any, answers their calls
 * until they end.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "internal.h"

/*
 * One look at an orphan: 1 when it can be freed.  A launch whose handler never
 * came back is not served; once its caller has left (or the kernel ended) and
 * the handler has returned, the mailbox is freed for others.
 */
static int reap_one(struct revoff_launch *l)
{
	struct revoff_control *c = l->image->control;
	struct revoff_device *d = l->device;
	uint64_t fn = 0;
	int in_wait, left, deserted, stuck;

	pthread_mutex_lock(&l->m);
	in_wait = l->in_wait;
	left = l->left;
	stuck = left && l->in_handler;
	pthread_mutex_unlock(&l->m);
	/* In its handler it is out of the way, and touches no port later. */
	if (l->image->ports && (stuck || !in_wait))
		ports_abandon(l->image);
	/* Until its thread has come back, that one has the launch. */
	if (in_wait)
		return 0;
	if (!left && l->image->by_mailbox && !l->ended && !l->mailbox_owed &&
	    !mailbox_peek(d, &fn) && fn)
		serve(l, fn);
	laters_drop(l);
	if (!l->ended)
		launch_ask_stream(l);
	/* [deserted load] */
	deserted = c && __atomic_load_n(&c->deserted, __ATOMIC_ACQUIRE);
	if (c && left && d->stuck == l && (l->ended || deserted)) {
		/* Whoever gets the lock next waits for its answer again. */
		/* [leave-end store] */
		__atomic_store_n(&c->leave, 0, __ATOMIC_RELEASE);
		/* If nobody left, the mailbox may be another image's now. */
		if (deserted && !d->lost)
			mailbox_reset(d);
		pthread_mutex_lock(&d->lock);
		d->stuck = NULL;
		pthread_mutex_unlock(&d->lock);
		/* It may call again, and is answered from here on. */
		pthread_mutex_lock(&l->m);
		__atomic_store_n(&l->left, 0, __ATOMIC_RELAXED);
		pthread_mutex_unlock(&l->m);
	}
	return l->ended;
}

static void *reaper(void *arg)
{
	struct revoff_device *d = arg;
	struct timespec t = { 0, 200000 };

	while (d->drv->cuCtxPushCurrent(d->context))
		nanosleep(&t, NULL);
	for (;;) {
		struct revoff_launch *l, *next, *done = NULL, **at;

		pthread_mutex_lock(&d->lock);
		l = d->orphans;
		if (!l)
			d->reaping = 0;
		pthread_mutex_unlock(&d->lock);
		if (!l)
			break;
		for (; l; l = next) {
			next = l->next;
			if (reap_one(l))
				done = l;
		}
		if (done) {
			pthread_mutex_lock(&d->lock);
			for (at = &d->orphans; *at != done; at = &(*at)->next)
				;
			*at = done->next;
			pthread_mutex_unlock(&d->lock);
			launch_unregister(done);
		}
		nanosleep(&t, NULL);
	}
	return NULL;
}

int launch_hand_over(struct revoff_launch *l)
{
	struct revoff_device *d = l->device;
	pthread_attr_t attr;
	pthread_t thread;
	int start, rc = 0;

	revoff_launch_abort(l, REVOFF_ABORT_CLOSING);
	pthread_mutex_lock(&l->m);
	l->abandoned = 1;
	/* libgomp's own device code cannot be told: it gets its answer, late. */
	__atomic_store_n(&l->left, l->in_wait && l->image->control,
			 __ATOMIC_RELAXED);
	pthread_mutex_unlock(&l->m);
	pthread_mutex_lock(&d->lock);
	if (l->left && l->image->by_mailbox) {
		d->stuck = l;
		/* [leave store] */
		__atomic_store_n(&l->image->control->leave, 1,
				 __ATOMIC_RELEASE);
	}
	l->next = d->orphans;
	d->orphans = l;
	start = !d->reaping;
	d->reaping = 1;
	pthread_mutex_unlock(&d->lock);
	if (!start)
		return 0;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, reaper, d);
	pthread_attr_destroy(&attr);
	if (rc) {
		pthread_mutex_lock(&d->lock);
		d->reaping = 0;
		pthread_mutex_unlock(&d->lock);
		return fail(REVOFF_ENOMEM,
			    "no thread for a launch that was "
			    "given up: %s",
			    strerror(rc));
	}
	return 0;
}

REVOFF_API int revoff_device_drain(struct revoff_device *device,
				   uint64_t timeout_ns)
{
	uint64_t end = now_ns() + timeout_ns;
	struct timespec t = { 0, 1000000 };
	int left;

	for (;;) {
		pthread_mutex_lock(&device->lock);
		left = device->orphans != NULL;
		pthread_mutex_unlock(&device->lock);
		if (!left)
			return 0;
		if (now_ns() > end)
			return fail(REVOFF_ETIMEOUT,
				    "a kernel that was given up still runs on "
				    "device %d",
				    device->ordinal);
		nanosleep(&t, NULL);
	}
}
