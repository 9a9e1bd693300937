/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "ports_hand.h"

void hand_open(struct hand *h, const char *image)
{
	struct revoff_device_options o = { .transport =
						   REVOFF_TRANSPORT_PORTS };
	uint64_t at;
	size_t size;

	memset(h, 0, sizeof(*h));
	h->device = lab_open(&o);
	h->image = lab_load(h->device, image);
	lab_ok(revoff_image_symbol(h->image, REVOFF_SYM_LINK, &at, &size));
	h->link = (struct revoff_link *)(uintptr_t)at;
	t_check(h->link->flags & REVOFF_LINK_PORTS);
	/* On the CPU device all addresses are the host's too. */
	h->requests = (struct revoff_request *)(uintptr_t)h->link->requests;
	h->replies = (struct revoff_reply *)(uintptr_t)h->link->replies;
	h->bells = (uint8_t *)(uintptr_t)h->link->bells;
	h->states = (uint64_t *)(uintptr_t)h->link->states;
	h->heads = (struct revoff_post *)(uintptr_t)h->link->heads;
	h->records = (char *)(uintptr_t)h->link->records;
	h->ps = &h->started;
	h->pg = &h->go;
	h->params[0] = &h->ps;
	h->params[1] = &h->pg;
	h->params[2] = &h->none;
}

void hand_close(struct hand *h)
{
	lab_ok(revoff_image_unload(h->image));
	lab_close(h->device);
}

void hand_start(struct hand *h, const char *kernel)
{
	lab_set(&h->started, 0);
	lab_set(&h->go, 0);
	h->launch = lab_start(lab_kernel(h->image, kernel), 1, 1, h->params);
	lab_await(&h->started, 1);
}

void hand_end(struct hand *h)
{
	t_check(revoff_launch_finish(h->launch) == 1);
	h->launch = NULL;
}

uint64_t hand_fn(struct hand *h, const char *name)
{
	struct revoff_function f;
	int index = lab_ok(revoff_image_find(h->image, name));

	lab_ok(revoff_image_function(h->image, (unsigned)index, &f));
	return f.fn;
}

void hand_unit(struct revoff_unit *to, uint64_t word, uint32_t seq)
{
	uint64_t number = (uint64_t)seq << 32;

	__atomic_store_n(&to->lo, (word & 0xffffffffu) | number,
			 __ATOMIC_RELEASE);
	__atomic_store_n(&to->hi, word >> 32 | number, __ATOMIC_RELEASE);
}

void hand_head(struct hand *h, unsigned port, uint32_t seq, uint64_t fn,
	       uint32_t mask, unsigned words, unsigned form, unsigned stride,
	       uint32_t slot)
{
	struct revoff_unit *u = h->requests[port].head;
	uint64_t shape = words | form << 8 | (uint32_t)stride << 16;

	hand_unit(u + REVOFF_HEAD_FN, fn, seq);
	hand_unit(u + REVOFF_HEAD_LANES, mask | shape << 32, seq);
	hand_unit(u + REVOFF_HEAD_BLOCK, 0, seq);
	hand_unit(u + REVOFF_HEAD_THREAD,
		  32 << 5 | 1 << 16 | (uint64_t)slot << 32, seq);
}

void hand_bell(struct hand *h, unsigned port, uint32_t seq)
{
	__atomic_store_n(&h->bells[port], (uint8_t)seq, __ATOMIC_RELAXED);
}

void hand_ask(struct hand *h, unsigned port, uint32_t seq, uint64_t fn,
	      uint32_t mask, unsigned nwords, const uint64_t *words)
{
	unsigned n = nwords * (unsigned)__builtin_popcount(mask), i;

	for (i = 0; i < n; ++i)
		hand_unit(&h->requests[port].word[i], words[i], seq);
	hand_head(h, port, seq, fn, mask, nwords, REVOFF_FORM_WORDS, 0, 0);
	hand_bell(h, port, seq);
}

static uint64_t look(const revoff_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

int hand_has_reply(struct hand *h, unsigned port, uint32_t seq, unsigned rank)
{
	const struct revoff_unit *u = &h->replies[port].word[rank];
	uint32_t lo = (uint32_t)(look(&u->lo) >> 32);
	uint32_t hi = (uint32_t)(look(&u->hi) >> 32);

	return (lo & ~REVOFF_SEQ_FAILED) == seq && lo == hi;
}

int hand_reply(struct hand *h, unsigned port, uint32_t seq, unsigned rank,
	       uint64_t *word)
{
	const struct revoff_unit *u = &h->replies[port].word[rank];
	uint64_t end = lab_now() + LAB_LIMIT, lo, hi;

	while (!hand_has_reply(h, port, seq, rank)) {
		if (lab_now() > end) {
			fprintf(stderr, "port %u, number %u, lane %u: %s\n",
				port, seq, rank, "no reply");
			exit(T_FAIL);
		}
		sched_yield();
	}
	lo = look(&u->lo);
	hi = look(&u->hi);
	if (lo >> 63)
		return (int)(uint32_t)lo;
	if (word)
		*word = (lo & 0xffffffffu) | hi << 32;
	return REVOFF_OK;
}
