/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "by_hand.h"

struct player {
	struct revoff_mailbox *mailbox;
	uint32_t *lock;
	uint64_t fn;
	unsigned calls;
	int publish;
	uint32_t *go;
};

static int next(struct revoff_call *call, void *user)
{
	uint64_t *expected = user, n = *expected;

	t_check(call->nargs == 2);
	t_check(call->words[0] == n && call->words[1] == lab_mix(n));
	t_check(call->sizes[0] == 8 && call->kinds[1] == 0x0d);
	t_check(call->block[0] == (uint32_t)n && call->thread[2] == 7);
	call->result = lab_mix(~n);
	*expected = n + 1;
	return 0;
}

static void take(uint32_t *lock)
{
	while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void one(struct player *p, uint64_t n)
{
	struct revoff_mailbox *m = p->mailbox;
	uint64_t args[2] = { n, lab_mix(n) };
	unsigned k;

	take(p->lock);
	m->packet.payload_bytes = 0;
	m->packet.block[0] = (uint32_t)n;
	m->packet.thread[2] = 7;
	for (k = 0; k < 2; ++k) {
		m->packet.addrs[k] = args[k];
		m->packet.sizes[k] = 8;
		m->packet.kinds[k] = 0x0d;
	}
	m->call.mapnum = 2;
	m->call.addrs = (uintptr_t)m->packet.addrs;
	m->call.sizes = (uintptr_t)m->packet.sizes;
	m->call.kinds = (uintptr_t)m->packet.kinds;
	m->call.dev_num = 0;
	if (p->publish == __ATOMIC_RELEASE)
		__atomic_store_n(&m->call.fn, p->fn, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&m->call.fn, p->fn, __ATOMIC_RELAXED);
	while (__atomic_load_n(&m->call.fn, __ATOMIC_ACQUIRE))
		sched_yield();
	t_check(m->call.mapnum == (1ull << 63 | REVOFF_OK));
	t_check(m->call.sizes == 1ull << 63);
	t_check(m->call.addrs == lab_mix(~n));
	__atomic_store_n(p->lock, 0, __ATOMIC_RELEASE);
}

static void *play(void *arg)
{
	struct player *p = arg;
	uint64_t n;

	for (n = 0; n < p->calls; ++n)
		one(p, n);
	lab_set(p->go, 1);
	return NULL;
}

/* A device variable: its address, on the CPU device, is the host's too. */
static void *variable(struct revoff_image *image, const char *name)
{
	uint64_t at;
	size_t size;

	lab_ok(revoff_image_symbol(image, name, &at, &size));
	return (void *)(uintptr_t)at;
}

void by_hand(const struct revoff_device_options *options, unsigned calls,
	     int publish)
{
	struct revoff_device *d = lab_open(options);
	struct revoff_image *image = lab_load(d, "typed");
	static uint32_t started, go;
	uint32_t *ps = &started, *pg = &go;
	int none = 0, index;
	void *params[] = { &ps, &pg, &none };
	struct revoff_link *link = variable(image, REVOFF_SYM_LINK);
	struct revoff_function f;
	struct player p = { .calls = calls, .publish = publish, .go = &go };
	struct revoff_launch *launch;
	struct revoff_stats stats;
	uint64_t served = 0;
	pthread_t thread;

	index = (int)lab_bind(image, "next", next, &served);
	lab_ok(revoff_image_function(image, (unsigned)index, &f));
	p.fn = f.fn;
	p.mailbox =
		*(struct revoff_mailbox **)variable(image, REVOFF_SYM_MAILBOX);
	p.lock = (uint32_t *)(uintptr_t)link->lock;
	t_check((link->flags & ~(uint64_t)REVOFF_LINK_LOCK) ==
		(REVOFF_LINK_CONNECTED | REVOFF_LINK_PACKET));
	t_check(!(link->flags & REVOFF_LINK_LOCK) ==
		(!options || options->lock == REVOFF_LOCK_DEVICE));
	started = go = 0;
	launch = lab_start(lab_kernel(image, "hold"), 1, 1, params);
	lab_await(&started, 1);
	thread = lab_thread(play, &p);
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	lab_join(thread);
	revoff_launch_stats(launch, &stats);
	t_check(served == calls && stats.calls == calls && !stats.failed);
	t_check(!stats.mailbox_fn);
	t_check(revoff_launch_finish(launch) == 1);
	lab_ok(revoff_image_unload(image));
	lab_close(d);
}
