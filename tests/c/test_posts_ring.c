/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: posts through a ring that wraps many times, in records of one
 * and of several slots, also across the ring's end: each comes once, whole,
 * and those of a lane in its order, to single handlers and to batch handlers.
 * try_post drops what does not fit and counts it.  A damaged head is named,
 * and the next launch works.
 * Images: posts
 * Variants: plain asan tsan
 */
#include "internal.h"
#include "ports_hand.h"

#define THREADS 64
static uint64_t expected[THREADS];
static unsigned handled, across, batches;

static uint64_t next(uint64_t t, uint64_t i)
{
	t_check(t < THREADS);
	t_check(expected[t] <= i);
	expected[t] = i + 1;
	++handled;
	return lab_mix(t << 32 | i);
}

static int small(struct revoff_call *c, void *user)
{
	(void)user;
	t_check(c->posted == 1 && c->nargs == 3);
	t_check(next(c->words[0], c->words[1]) == c->words[2]);
	t_check(c->block[0] * 32 + c->thread[0] == c->words[0]);
	return 0;
}

static int large(struct revoff_call *c, void *user)
{
	uint64_t h = next(c->words[0], c->words[1]), k;

	(void)user;
	t_check(c->posted == 1 && c->nargs == 9);
	for (k = 0; k < 7; ++k)
		t_check(c->words[2 + k] == h + k);
	return 0;
}

static int text(struct revoff_call *c, void *user)
{
	uint64_t t = c->words[0], i = c->words[1], h = next(t, i), k;
	const char *bytes = (const char *)(uintptr_t)c->words[2];

	(void)user;
	t_check(c->sizes[2] == (t * 13 + i) % 200);
	for (k = 0; k < c->sizes[2]; ++k)
		t_check(bytes[k] == (char)(h + k));
	return 0;
}

/* Records side by side, in the ring or, over its end, in a copy. */
static int batch(struct revoff_batch *b, void *user)
{
	const struct revoff_column *a = b->arguments;
	struct ports *p = b->image->ports;
	const char *end = p->records + (size_t)p->nrecords * REVOFF_RECORD;
	unsigned i, nargs = *(unsigned *)user, k;
	uint32_t *block = malloc(b->count * 24ull);
	uint32_t *thread = block + 3ull * b->count;

	t_check(block);
	revoff_batch_callers(b, block, thread);
	t_check(b->posted == 1 && b->nargs == nargs && !b->result && b->count);
	for (i = 0; i < b->count; ++i) {
		uint64_t v[9] = { 0 }, h;

		for (k = 0; k < nargs; ++k)
			memcpy(&v[k], (char *)a[k].data + i * a[k].stride, 8);
		h = next(v[0], v[1]);
		for (k = 2; k < nargs; ++k)
			t_check(v[k] == h + k - 2);
		t_check(block[3 * i] * 32 + thread[3 * i] == v[0]);
	}
	free(block);
	across += (char *)a[0].data < p->records || (char *)a[0].data >= end;
	++batches;
	return 0;
}

static void stream(struct hand *h, int n, int kinds)
{
	void *params[] = { &n, &kinds };
	struct revoff_stats stats;
	unsigned i;

	memset(expected, 0, sizeof(expected));
	handled = 0;
	lab_ok(lab_run(lab_kernel(h->image, "stream"), THREADS / 32, 32, params,
		       &stats));
	t_check(handled == (unsigned)n * THREADS);
	t_check(stats.posts == handled && !stats.dropped);
	for (i = 0; i < THREADS; ++i)
		t_check(expected[i] == (unsigned)n);
}

struct gate {
	uint32_t entered, go;
};

static int held(struct revoff_call *c, void *user)
{
	struct gate *g = user;

	if (!c->words[1]) {
		lab_set(&g->entered, 1);
		lab_await(&g->go, 1);
	}
	t_check(next(0, c->words[1]) == c->words[2]);
	return 0;
}

static void try_all(struct hand *h)
{
	static struct gate g;
	uint32_t *entered = &g.entered, *go = &g.go;
	uint64_t at, sent;
	int n = 3000;
	void *params[] = { &n, &entered, &go, &at };
	struct revoff_stats stats;

	memset(expected, 0, sizeof(expected));
	handled = 0;
	lab_bind(h->image, "small", held, &g);
	lab_ok(revoff_alloc(h->device, sizeof(sent), &at));
	lab_ok(lab_run(lab_kernel(h->image, "try_all"), 1, 1, params, &stats));
	lab_ok(revoff_copy_from_device(h->device, &sent, at, sizeof(sent)));
	lab_ok(revoff_free(h->device, at));
	fprintf(stderr, "%u of %d sent\n", (unsigned)sent, n - 1);
	/* The ring was full of them, less the one that was being handled. */
	t_check(sent == h->link->nheads - 1);
	t_check(stats.dropped == (unsigned)n - 1 - sent);
	t_check(handled == sent + 1 && stats.posts == handled);
}

static void *wait(void *arg)
{
	struct hand *h = arg;

	t_check(revoff_launch_wait(h->launch, LAB_LIMIT) == 1);
	return NULL;
}

/* A head that says what cannot be, at the place where the next one comes. */
static void damaged(struct hand *h, uint32_t mask, uint32_t slots)
{
	struct ports *p = h->image->ports;
	uint32_t at = (uint32_t)p->next;
	struct revoff_post *head = &h->heads[at & (p->nheads - 1)];
	pthread_t thread;
	const struct revoff_error *e;

	hand_start(h, "deaf");
	at = (uint32_t)p->next;
	head = &h->heads[at & (p->nheads - 1)];
	head->fn = hand_fn(h, "small");
	head->mask = mask;
	head->slots = slots;
	__atomic_store_n((uint64_t *)(void *)&head->thread,
			 (uint64_t)(at / p->nheads + 1) << 32,
			 __ATOMIC_RELEASE);
	thread = lab_thread(wait, h);
	while (!revoff_launch_failure(h->launch)->code)
		lab_sleep_ms(1);
	lab_set(&h->go, 1);
	lab_join(thread);
	e = revoff_launch_failure(h->launch);
	t_check(e->code == REVOFF_ECALL && strstr(e->text, "kernel deaf") &&
		strstr(e->text, "damaged record"));
	hand_end(h);
}

/* Both functions to batch handlers; most 0: what fits. */
static void bind_batch(struct hand *h, unsigned most)
{
	static unsigned three = 3, nine = 9;
	static const char *const names[] = { "small", "large" };
	unsigned i;

	for (i = 0; i < 2; ++i)
		lab_ok(revoff_image_bind_batch(
			h->image,
			(unsigned)lab_ok(revoff_image_find(h->image, names[i])),
			batch, NULL, i ? &nine : &three, most));
}

int main(int argc, char **argv)
{
	struct hand h;

	lab_begin(argc, argv);
	hand_open(&h, "posts");
	lab_bind(h.image, "small", small, NULL);
	lab_bind(h.image, "large", large, NULL);
	lab_bind(h.image, "text", text, NULL);
	/* 8192 records of one slot: 16 times round, then 20, then 60. */
	stream(&h, 2048, 1);
	stream(&h, 1500, 2);
	stream(&h, 1500, 3);
	bind_batch(&h, 0);
	stream(&h, 2048, 1);
	stream(&h, 1500, 2);
	t_check(across && batches > 10);
	bind_batch(&h, 100);
	stream(&h, 500, 2);
	try_all(&h);
	damaged(&h, 0, 1);
	damaged(&h, 1, 0);
	damaged(&h, 1, 1u << 20);
	lab_bind(h.image, "small", small, NULL);
	stream(&h, 100, 1);
	hand_close(&h);
	return T_PASS;
}
