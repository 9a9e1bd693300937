/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a kernel: look for its calls, ask whether it has ended, and
 * sleep when neither happens.
 */
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Looks at the stream before anything else is done: some 20 us. */
#define QUICK_POLLS 64

struct waiter {
	struct revoff_launch *l;
	uint64_t end_ns;
	unsigned turn;
	unsigned sleep_ns;
	unsigned served; /* looks that found calls, since the clock was read */
	int slack;	 /* timer slack to restore, or -1 */
};

/*
 * A short sleep must be short: with the default timer slack of 50 us even
 * usleep(1) takes 56.  The slack is the thread's own, so it is put back.
 */
static void nap(struct waiter *w, unsigned ns)
{
	struct timespec t = { 0, (long)ns };

	if (w->slack < 0) {
		w->slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
		prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	}
	nanosleep(&t, NULL);
	__atomic_store_n(&w->l->sleeps, w->l->sleeps + 1, __ATOMIC_RELAXED);
}

/* The patch's, with the timer slack that it met. */
static void patch_sleep(struct revoff_launch *l)
{
	usleep(1);
	__atomic_store_n(&l->sleeps, l->sleeps + 1, __ATOMIC_RELAXED);
}

static void relax(struct waiter *w, uint64_t now)
{
	const struct revoff_device_options *o = &w->l->device->options;
	uint64_t quiet = now - w->l->active_ns;

	switch (o->wait) {
	case REVOFF_WAIT_PATCH:
		patch_sleep(w->l);
		return;
	case REVOFF_WAIT_ADAPTIVE:
		if (quiet > (uint64_t)o->spin_us * 1000) {
			if (w->sleep_ns < o->sleep_us * 1000)
				w->sleep_ns += 2000;
			nap(w, w->sleep_ns);
			return;
		}
		break;
	}
	/* The CPU device's kernels want the core that we spin on. */
	if (w->l->device->platform == REVOFF_PLATFORM_CPU && quiet > 5000)
		sched_yield();
	else
		cpu_relax();
}

/* Empty looks, some 50 ns each, before clock and stream are asked. */
#define EMPTY_LOOKS 128
/* And looks that found calls: a kernel that calls on and on has a limit too. */
#define BUSY_LOOKS 64

/* What there is to serve, over either transport: how much, or negative. */
static int look_for_calls(struct revoff_launch *l, int rested)
{
	uint64_t fn = 0;
	int rc = 0;

	if (l->image->ports)
		rc = ports_poll(l, rested);
	if (rc || !l->image->by_mailbox)
		return rc;
	rc = mailbox_peek(l->device, &fn);
	/* An open call whose answer is owed is not new. */
	if (rc || !fn || l->mailbox_owed)
		return rc;
	return serve(l, fn);
}

/* The kernel has ended: what it posted last is all there. */
static int last_posts(struct revoff_launch *l)
{
	int rc = 1;

	while (l->image->ports && rc > 0 && posts_waiting(l->image->ports))
		rc = posts_serve(l);
	return rc < 0 ? rc : 1;
}

/* The time, also as that of the calls just served. */
static uint64_t note_calls(struct waiter *w)
{
	uint64_t now = now_ns();

	if (w->served) {
		w->served = 0;
		w->l->active_ns = now;
		__atomic_store_n(&w->l->last_call_ns, now, __ATOMIC_RELAXED);
	}
	return now;
}

/*
 * Look for calls until the kernel has ended.  The stream is asked after an
 * empty look only: the kernel cannot end while a call is open.
 */
static int poll(struct waiter *w)
{
	struct revoff_launch *l = w->l;
	int patch = l->device->options.wait == REVOFF_WAIT_PATCH, rc;
	uint64_t now;

	if (patch) {
		rc = launch_ask_stream(l);
		if (rc)
			return rc;
	}
	__atomic_store_n(&l->polls, l->polls + 1, __ATOMIC_RELAXED);
	rc = look_for_calls(l, w->sleep_ns != 0);
	if (rc < 0)
		return rc;
	if (__atomic_load_n(&l->left, __ATOMIC_RELAXED))
		return REVOFF_EBUSY;
	if (rc) {
		w->sleep_ns = 0;
		w->turn = 0;
		if (patch)
			patch_sleep(l);
		if (++w->served % BUSY_LOOKS)
			return 0;
		return note_calls(w) >= w->end_ns ? REVOFF_ETIMEOUT : 0;
	}
	/* Time and stream are asked now and then: each costs a look or more. */
	if (++w->turn % (w->sleep_ns ? 4 : EMPTY_LOOKS) && !patch &&
	    l->image->connected) {
		if (!w->sleep_ns) {
			cpu_relax();
			return 0;
		}
	} else if (!patch) {
		rc = launch_ask_stream(l);
		if (rc)
			return rc;
	}
	now = note_calls(w);
	relax(w, now);
	return now >= w->end_ns ? REVOFF_ETIMEOUT : 0;
}

/*
 * Inside: 1 ended, 0 time is up, negative failed.  REVOFF_EBUSY means that the
 * launch was handed over under our feet.
 */
int launch_poll(struct revoff_launch *l, uint64_t timeout_ns)
{
	uint64_t now = now_ns();
	struct waiter w = { .l = l,
			    .end_ns = timeout_ns > UINT64_MAX - now
					      ? UINT64_MAX
					      : now + timeout_ns,
			    .slack = -1 };
	int rc, n;

	if (__atomic_load_n(&l->ended, __ATOMIC_ACQUIRE)) { /* [ended load] */
		if (!l->result)
			return 1;
		*error_slot() = l->failure;
		return l->failure.code;
	}
	/* A short kernel that cannot call: nothing but its end matters. */
	if (!l->image->connected && l->device->platform == REVOFF_PLATFORM_CUDA)
		for (n = 0; n < QUICK_POLLS; ++n) {
			rc = launch_ask_stream(l);
			if (rc)
				return rc;
		}
	do
		rc = poll(&w);
	while (!rc);
	if (rc == 1)
		rc = last_posts(l);
	note_calls(&w);
	if (w.slack >= 0)
		prctl(PR_SET_TIMERSLACK, w.slack, 0, 0, 0);
	return rc == REVOFF_ETIMEOUT ? 0 : rc;
}
