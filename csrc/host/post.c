/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host half of posts: records of the ring in their order, to the handlers
 * of their functions.  Runs of the same function go to a batch handler where
 * they lie; the room is given back when the handler has returned.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Records for one call of a batch handler: what fits in a core's cache. */
#define MOST_RECORDS 32768u
/* Heads for one turn: other work waits meanwhile. */
#define MOST_HEADS 8192u
/* The largest record, in slots. */
#define MOST_SLOTS (REVOFF_PACKET_PAYLOAD / REVOFF_RECORD + 1)

struct head {
	uint64_t fn;
	uint32_t mask, slots;
	unsigned lanes;
	uint64_t end; /* the ring's position behind it */
};

/* The head at a position, if it counts yet. */
static const struct revoff_post *head_at(const struct ports *p, uint64_t at)
{
	const struct revoff_post *h = &p->heads[(uint32_t)at & (p->nheads - 1)];
	uint32_t lap = (uint32_t)at / p->nheads + 1;
	/* The lap is the upper half of the word that the device stores. */
	const uint64_t *last = (const uint64_t *)(const void *)&h->thread;

	/* With the lap, all before it is there: see the fence of publish(). */
	/* [lap load] */
	return __atomic_load_n(last, __ATOMIC_ACQUIRE) >> 32 == lap ? h : NULL;
}

int posts_waiting(const struct ports *p)
{
	return head_at(p, p->next) != NULL;
}

/* 1 if there is a head; negative if it cannot be right. */
static int look(struct revoff_launch *l, uint64_t at, struct head *out)
{
	const struct revoff_post *h = head_at(l->image->ports, at);

	if (!h)
		return 0;
	out->fn = h->fn; /* [post load] */
	out->mask = h->mask;
	out->slots = h->slots;
	out->lanes = (unsigned)__builtin_popcount(h->mask);
	if (!out->mask || !out->slots || out->slots > MOST_SLOTS) {
		/* Where the next one begins is not known any more. */
		launch_fail(l, REVOFF_ECALL,
			    "kernel %s: a damaged record of a post",
			    l->kernel->name);
		l->image->ports->dirty = 1;
		return -1;
	}
	out->end = at + ((uint64_t)out->lanes * out->slots << 32) + 1;
	return 1;
}

static void give_room(struct ports *p, uint64_t next)
{
	p->next = next;
	/* After the last load of the records: the device writes them again. */
	__atomic_store_n(p->done, next, __ATOMIC_RELEASE); /* [room store] */
}

/* A launch that was given up still says what its kernel said. */
static int wanted(const struct revoff_launch *l, int index)
{
	return !launch_given_up(l) ||
	       function_is_builtin(l->image->functions[index].name);
}

/* One record to the handler for single calls; 0 if the launch was handed over. */
static int serve_record(struct revoff_launch *l, int index,
			const struct revoff_post *h, unsigned lane,
			const char *record, uint64_t size)
{
	const struct function *f = &l->image->functions[index];
	struct scratch *list = &l->list;
	uint64_t words[REVOFF_PACKET_MAPS * 2];
	struct service s;
	unsigned i;

	service_start(&s, l, index);
	s.from = FROM_POST;
	s.call.posted = 1;
	caller_of(h->block_x, h->block_yz, h->thread, lane, s.call.block,
		  s.call.thread);
	if (s.status == REVOFF_OK && !f->shape.arrays && f->shape.in_words) {
		memcpy(words, record, f->shape.words * 8);
		serve_words(&s, words);
	} else if (s.status == REVOFF_OK) {
		service_prepare(&s, f->shape.nargs);
		for (i = 0; i < f->shape.nargs; ++i) {
			const char *at = record + f->shape.at[i] * 8;
			uint64_t word;

			memcpy(&word, at, 8);
			list->sizes[i] = f->shape.size[i];
			list->kinds[i] = f->shape.kind[i];
			list->addrs[i] = list->words[i] = word;
			if (f->shape.arrays >> i & 1) {
				uint64_t from = (uint32_t)word;
				uint64_t n = word >> 32;

				list->kinds[i] = REVOFF_MAP_FORCE_TO;
				list->words[i] = list->sizes[i] = 0;
				if (word == REVOFF_POSTED_NULL)
					continue;
				if (from > size || n > size - from) {
					service_fail(&s, REVOFF_BADMAP,
						     "kernel %s: a damaged "
						     "record of a post of %s",
						     l->kernel->name, f->name);
					break;
				}
				list->sizes[i] = n;
				list->words[i] =
					(uint64_t)(uintptr_t)record + from;
			} else if (f->shape.size[i] > 8) {
				list->words[i] = (uint64_t)(uintptr_t)at;
			}
		}
		if (s.status == REVOFF_OK)
			run_handler(&s);
	}
	service_end(&s);
	return !s.left;
}

/* All records of one head, one after the other. */
static int serve_head(struct revoff_launch *l, int index, uint64_t at,
		      const struct head *d)
{
	struct ports *p = l->image->ports;
	const struct revoff_post *h = head_at(p, at);
	uint32_t slot = (uint32_t)(at >> 32);
	unsigned lane;

	for (lane = 0; lane < 32; ++lane) {
		uint32_t first = slot & (p->nrecords - 1);
		char *record = p->records + (size_t)first * REVOFF_RECORD;
		char copy[MOST_SLOTS * REVOFF_RECORD];
		size_t size = (size_t)d->slots * REVOFF_RECORD;

		if (!(d->mask >> lane & 1))
			continue;
		/* As the heads after this one, if a lane before it failed. */
		if (!wanted(l, index))
			break;
		if (first + d->slots > p->nrecords) {
			size_t tail =
				(size_t)(p->nrecords - first) * REVOFF_RECORD;

			memcpy(copy, record, tail);
			memcpy(copy + tail, p->records, size - tail);
			record = copy;
		}
		if (!serve_record(l, index, h, lane, record, size))
			return 0;
		slot += d->slots;
	}
	return 1;
}

/*
 * Heads of the same function, as far as their records lie side by side: to
 * the batch handler.  *at moves behind them.
 */
static int serve_run(struct revoff_launch *l, int index, uint64_t *at,
		     struct head *d)
{
	struct ports *p = l->image->ports;
	uint32_t first = (uint32_t)(*at >> 32) & (p->nrecords - 1);
	unsigned most = l->bound[index].most, count = 0, nheads = 0;
	unsigned room = (p->nrecords - first) / d->slots;
	uint32_t slots = d->slots;
	uint64_t begin = *at, fn = d->fn;

	if (!most || most > MOST_RECORDS)
		most = MOST_RECORDS;
	if (room > most)
		room = most;
	do {
		if (count && count + d->lanes > room)
			break;
		count += d->lanes;
		++nheads;
		*at = d->end;
	} while (count < room && look(l, *at, d) > 0 && d->fn == fn &&
		 d->slots == slots);
	if (first + (uint64_t)count * slots > p->nrecords) {
		/* One head over the ring's end: side by side in a copy. */
		size_t size = (size_t)count * slots * REVOFF_RECORD;
		size_t tail = (size_t)(p->nrecords - first) * REVOFF_RECORD;
		char *copy = malloc(size);
		int rc;

		if (!copy)
			return fail(REVOFF_ENOMEM, "out of host memory");
		memcpy(copy, p->records + (size_t)first * REVOFF_RECORD, tail);
		memcpy(copy + tail, p->records, size - tail);
		rc = batch_posts(l, index, copy,
				 (uint64_t)slots * REVOFF_RECORD, count, 1,
				 begin);
		free(copy);
		return rc;
	}
	return batch_posts(l, index, p->records + (size_t)first * REVOFF_RECORD,
			   (uint64_t)slots * REVOFF_RECORD, count, nheads,
			   begin);
}

int posts_serve(struct revoff_launch *l)
{
	struct ports *p = l->image->ports;
	uint64_t at = p->next;
	unsigned heads = 0, records = 0;
	struct head d;

	for (; heads < MOST_HEADS && look(l, at, &d) > 0; ++heads) {
		int index = ports_index(l, d.fn), rc = 1;
		uint64_t before = at;
		unsigned lanes = d.lanes;
		int batch;

		at = d.end;
		if (index >= 0 && wanted(l, index)) {
			batch = (unsigned)index < l->nbound &&
				l->bound[index].batch;
			if (batch) {
				at = before;
				rc = serve_run(l, index, &at, &d);
			} else {
				rc = serve_head(l, index, before, &d);
			}
			if (l->left || !rc)
				return REVOFF_EBUSY;
			if (rc < 0)
				return rc;
			records += batch ? (unsigned)rc : lanes;
		}
		give_room(p, at);
	}
	/* [posts store] */
	__atomic_store_n(&l->posts, l->posts + records, __ATOMIC_RELAXED);
	/* Also those that nobody wants any more: there may be others behind. */
	return (int)heads;
}
