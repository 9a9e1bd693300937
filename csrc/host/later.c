/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that handlers owe.  Any thread says that one is ready; the thread
 * that serves the launch asks the handler for it and answers.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct revoff_later {
	struct laters *queue;
	struct revoff_later *next_ready;
	struct revoff_later *next, **at; /* in queue->pending */
	unsigned refs; /* queue->m: the host's, the user's, the ready list's */
	int finished;  /* queue->m: answered, or never needed */
	struct service s;
	struct scratch list;
	struct run *run;
};

static struct laters *queue_new(void)
{
	struct laters *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	pthread_mutex_init(&q->m, NULL);
	q->refs = 1;
	return q;
}

/* Lock held; gives it back. */
static void queue_drop(struct laters *q)
{
	unsigned refs = --q->refs;

	pthread_mutex_unlock(&q->m);
	if (refs)
		return;
	pthread_mutex_destroy(&q->m);
	free(q);
}

/* One reference less. */
static void later_drop(struct revoff_later *later)
{
	struct laters *q = later->queue;

	pthread_mutex_lock(&q->m);
	if (--later->refs) {
		pthread_mutex_unlock(&q->m);
		return;
	}
	free(later);
	queue_drop(q);
}

struct revoff_later *later_new(struct revoff_launch *l)
{
	struct revoff_later *later;

	if (!l->laters)
		l->laters = queue_new();
	later = l->laters ? calloc(1, sizeof(*later)) : NULL;
	if (!later) {
		fail(REVOFF_ENOMEM, "out of host memory");
		return NULL;
	}
	later->queue = l->laters;
	later->refs = 2;
	pthread_mutex_lock(&l->laters->m);
	++l->laters->refs;
	pthread_mutex_unlock(&l->laters->m);
	return later;
}

REVOFF_API struct revoff_later *revoff_call_later(struct revoff_call *call)
{
	struct service *s = (struct service *)((char *)call -
					       offsetof(struct service, call));

	if (call->later || s->later)
		return s->later;
	if (call->image->functions[call->index].kind != REVOFF_FUNCTION_TYPED) {
		fail(REVOFF_EUNSUPPORTED,
		     "a handler of the region %s cannot answer later",
		     service_name(s));
		return NULL;
	}
	s->later = later_new(call->launch);
	return s->later;
}

/* The handler has answered at once after all. */
void later_cancel(struct revoff_later *later)
{
	struct laters *q = later->queue;

	pthread_mutex_lock(&q->m);
	later->finished = 1;
	pthread_mutex_unlock(&q->m);
	later_drop(later);
}

REVOFF_API void revoff_later_ready(struct revoff_later *later)
{
	struct laters *q = later->queue;

	pthread_mutex_lock(&q->m);
	if (!later->finished && !q->closed) {
		++later->refs;
		later->next_ready = q->ready;
		q->ready = later;
		/* [ready store] */
		__atomic_store_n(&q->any, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&q->m);
	later_drop(later);
}

static void link_pending(struct laters *q, struct revoff_later *later)
{
	later->next = q->pending;
	later->at = &q->pending;
	if (later->next)
		later->next->at = &later->next;
	q->pending = later;
	__atomic_store_n(&q->npending, q->npending + 1, __ATOMIC_RELAXED);
}

static void unlink_pending(struct revoff_later *later)
{
	*later->at = later->next;
	if (later->next)
		later->next->at = later->at;
	__atomic_store_n(&later->queue->npending, later->queue->npending - 1,
			 __ATOMIC_RELAXED);
}

/* Its lists stay with it; the launch goes on with others. */
void later_keep_service(struct service *s)
{
	struct revoff_launch *l = s->launch;
	struct revoff_later *later = s->later;
	struct scratch fresh = { 0 };

	if (scratch_reserve(&fresh, REVOFF_PACKET_MAPS + 1)) {
		s->later = NULL;
		later_cancel(later);
		service_fail(s, REVOFF_HANDLER, "out of host memory");
		service_end(s);
		return;
	}
	later->s = *s;
	later->list = l->list;
	l->list = fresh;
	link_pending(later->queue, later);
}

void later_keep_run(struct revoff_later *later, struct run *run)
{
	later->run = run;
	link_pending(later->queue, later);
}

/* Ask the handler for its answer, or (ready 0) tell it that nobody waits. */
static void resume(struct revoff_launch *l, struct revoff_later *later,
		   int ready)
{
	struct laters *q = later->queue;

	unlink_pending(later);
	pthread_mutex_lock(&q->m);
	later->finished = 1;
	pthread_mutex_unlock(&q->m);
	if (later->run) {
		batch_resume(l, later->run, ready);
	} else {
		struct scratch own = l->list;
		struct service s = later->s;

		l->list = later->list;
		s.call.later = later;
		s.later = NULL;
		if (!ready) {
			s.call.posted = -1;
			s.status = REVOFF_ABORTED;
			if (s.bound.handler) {
				enter_handler(l);
				s.bound.handler(&s.call, s.bound.user);
				s.left = leave_handler(l);
			} else {
				batch_of_one(&s);
			}
		} else {
			run_handler(&s);
		}
		service_end(&s);
		free(l->list.addrs);
		l->list = own;
	}
	later_drop(later);
}

/* Answers that are ready now: how many. */
int laters_serve(struct revoff_launch *l)
{
	struct laters *q = l->laters;
	struct revoff_later *list, *turned = NULL;
	int n = 0;

	if (launch_given_up(l)) {
		laters_drop(l);
		return 0;
	}
	if (!__atomic_load_n(&q->any, __ATOMIC_ACQUIRE)) /* [ready load] */
		return 0;
	pthread_mutex_lock(&q->m);
	list = q->ready;
	q->ready = NULL;
	q->any = 0;
	pthread_mutex_unlock(&q->m);
	/* The list has the newest first. */
	while (list) {
		struct revoff_later *next = list->next_ready;

		list->next_ready = turned;
		turned = list;
		list = next;
	}
	while (turned) {
		struct revoff_later *later = turned;

		turned = later->next_ready;
		if (!later->finished && !l->left) {
			resume(l, later, 1);
			++n;
		}
		later_drop(later);
	}
	return n;
}

void laters_drop(struct revoff_launch *l)
{
	while (l->laters && l->laters->pending)
		resume(l, l->laters->pending, 0);
}

/* At the end of a launch: nothing is taken for ready any more. */
void laters_close(struct revoff_launch *l)
{
	struct laters *q = l->laters;
	struct revoff_later *list;

	if (!q)
		return;
	laters_drop(l);
	l->laters = NULL;
	pthread_mutex_lock(&q->m);
	q->closed = 1;
	list = q->ready;
	q->ready = NULL;
	pthread_mutex_unlock(&q->m);
	while (list) {
		struct revoff_later *next = list->next_ready;

		later_drop(list);
		list = next;
	}
	pthread_mutex_lock(&q->m);
	queue_drop(q);
}
