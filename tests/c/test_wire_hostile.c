/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a device that writes rubbish into the mailbox: counts, sizes,
 * kinds, addresses and payload lengths that no device half makes.  Each call
 * is answered with a failed status, the host reads nothing outside of what it
 * owns, and the next launch works.
 * Images: typed
 */
#include <sched.h>

#include "lab.h"

static struct revoff_mailbox *mailbox;
static uint32_t *lock_of_device;
static uint64_t fn_echo, fn_change, own_memory;

struct spoilt {
	const char *name;
	int typed; /* 0: echo, 1: change */
	void (*spoil)(struct revoff_mailbox *m);
	int status;
};

static void no_items(struct revoff_mailbox *m)
{
	m->call.mapnum = 0;
}

static void many(struct revoff_mailbox *m)
{
	m->call.mapnum = 65537;
}

static void very_many(struct revoff_mailbox *m)
{
	m->call.mapnum = 1ull << 61;
}

static void lists_at_null(struct revoff_mailbox *m)
{
	m->call.addrs = 0;
}

static void lists_beyond(struct revoff_mailbox *m)
{
	m->call.sizes = (uintptr_t)(m + 1) - 4;
}

static void list_wraps(struct revoff_mailbox *m)
{
	m->call.addrs = UINT64_MAX - 7;
}

static void kind(struct revoff_mailbox *m)
{
	m->packet.addrs[0] = own_memory;
	m->packet.kinds[0] = 0x5c;
}

static void null_data(struct revoff_mailbox *m)
{
	m->packet.addrs[0] = 0;
}

static void data_beyond(struct revoff_mailbox *m)
{
	m->packet.addrs[0] = (uintptr_t)(m + 1) - 8;
}

static void data_wraps(struct revoff_mailbox *m)
{
	m->packet.addrs[0] = UINT64_MAX - 15;
	m->packet.sizes[0] = 64;
}

static void huge(struct revoff_mailbox *m)
{
	m->packet.sizes[0] = 1ull << 63;
}

static void huge_array(struct revoff_mailbox *m)
{
	m->packet.addrs[0] = own_memory;
	m->packet.sizes[0] = (1ull << 47) + 1;
}

static void longer_than_memory(struct revoff_mailbox *m)
{
	m->packet.addrs[0] = own_memory;
	m->packet.sizes[0] = 4096;
}

static void unknown(struct revoff_mailbox *m)
{
	(void)m;
}

static const struct spoilt cases[] = {
	{ "no items", 0, no_items, REVOFF_HANDLER },
	{ "65537 items", 0, many, REVOFF_BADMAP },
	{ "2^61 items", 0, very_many, REVOFF_BADMAP },
	{ "lists at NULL", 0, lists_at_null, REVOFF_COPYFAILED },
	{ "lists past the end", 0, lists_beyond, REVOFF_COPYFAILED },
	{ "lists at the end of memory", 0, list_wraps, REVOFF_COPYFAILED },
	{ "an unknown kind", 1, kind, REVOFF_BADMAP },
	{ "NULL with a size", 0, null_data, REVOFF_BADMAP },
	{ "data past the packet", 0, data_beyond, REVOFF_BADMAP },
	{ "data at the end of memory", 1, data_wraps, REVOFF_COPYFAILED },
	{ "2^63 bytes", 1, huge, REVOFF_BADMAP },
	{ "an array of 2^47 + 1 bytes", 1, huge_array, REVOFF_BADMAP },
	{ "an array past its memory", 1, longer_than_memory,
	  REVOFF_COPYFAILED },
	{ "an unknown function", 2, unknown, REVOFF_UNKNOWN },
};

/* What a typed call has to look like; else it fails. */
static int handler(struct revoff_call *call, void *user)
{
	(void)user;
	return call->nargs != 1 || call->sizes[0] != 64;
}

struct play {
	const struct spoilt *spoilt;
	uint32_t *go;
	int status;
};

static void *play(void *arg)
{
	struct play *p = arg;
	struct revoff_mailbox *m = mailbox;
	uint64_t fns[] = { fn_echo, fn_change, 0xdead0000 };

	while (__atomic_exchange_n(lock_of_device, 1, __ATOMIC_ACQUIRE))
		sched_yield();
	m->packet.payload_bytes = 64;
	m->packet.addrs[0] = (uintptr_t)m->packet.payload;
	m->packet.sizes[0] = 64;
	m->packet.kinds[0] = p->spoilt->typed ? 0x283 : 0x30c;
	m->call.mapnum = 1;
	m->call.addrs = (uintptr_t)m->packet.addrs;
	m->call.sizes = (uintptr_t)m->packet.sizes;
	m->call.kinds = (uintptr_t)m->packet.kinds;
	m->call.dev_num = 0;
	p->spoilt->spoil(m);
	__atomic_store_n(&m->call.fn, fns[p->spoilt->typed], __ATOMIC_RELEASE);
	while (__atomic_load_n(&m->call.fn, __ATOMIC_ACQUIRE))
		sched_yield();
	p->status = (int)(m->call.mapnum & 0xffffffff);
	t_check(m->call.mapnum >> 63 == 1);
	__atomic_store_n(lock_of_device, 0, __ATOMIC_RELEASE);
	lab_set(p->go, 1);
	return NULL;
}

static void one(struct revoff_image *image, const struct spoilt *spoilt)
{
	static uint32_t started, go;
	uint32_t *ps = &started, *pg = &go;
	int none = 0;
	void *params[] = { &ps, &pg, &none };
	struct play p = { spoilt, &go, -1 };
	const struct revoff_error *e;
	struct revoff_launch *launch;
	pthread_t thread;

	fprintf(stderr, "%s\n", spoilt->name);
	started = go = 0;
	launch = lab_start(lab_kernel(image, "hold"), 1, 1, params);
	lab_await(&started, 1);
	thread = lab_thread(play, &p);
	t_check(revoff_launch_wait(launch, LAB_LIMIT) == 1);
	lab_join(thread);
	e = revoff_launch_failure(launch);
	t_check(p.status == spoilt->status && e->code < 0 && *e->text);
	t_check(revoff_launch_finish(launch) == 1);
}

static uint64_t function(struct revoff_image *image, const char *name)
{
	struct revoff_function f;
	unsigned index = lab_bind(image, name, handler, NULL);

	lab_ok(revoff_image_function(image, index, &f));
	return f.fn;
}

int main(int argc, char **argv)
{
	struct revoff_device *d;
	struct revoff_image *image;
	struct revoff_link *link;
	uint64_t at;
	size_t size;
	unsigned i;

	lab_begin(argc, argv);
	d = lab_open(&(struct revoff_device_options){
		.transport = REVOFF_TRANSPORT_MAILBOX });
	image = lab_load(d, "typed");
	fn_echo = function(image, "echo");
	fn_change = function(image, "change");
	lab_ok(revoff_alloc(d, 512, &own_memory));
	lab_ok(revoff_image_symbol(image, REVOFF_SYM_LINK, &at, &size));
	link = (struct revoff_link *)(uintptr_t)at;
	lock_of_device = (uint32_t *)(uintptr_t)link->lock;
	lab_ok(revoff_image_symbol(image, REVOFF_SYM_MAILBOX, &at, &size));
	mailbox = *(struct revoff_mailbox **)(uintptr_t)at;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
		one(image, &cases[i]);
	lab_ok(lab_run(lab_kernel(image, "empty"), 1, 1, NULL, NULL));
	lab_ok(revoff_free(d, own_memory));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	return T_PASS;
}
