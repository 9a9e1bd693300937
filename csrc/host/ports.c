/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host half of the ports transport.  Each image that can call has ports of
 * its own, so that only the thread that serves its launch looks at them, and
 * calls of different images never meet.
 *
 *   found by   a bell that differs from seen[], or a look at the ports that
 *              called last and, in turn, at all others
 *   taken up   when every unit of the request carries answered[] + 1
 *   answered   by reply units with that number
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Ports in a part of a sweep: some 20 ns. */
#define SWEEP 256u
/* Looks in a row that find a port which called last, before one at others. */
#define BUSY 4u

/* ---- looking -------------------------------------------------------------- */

/*
 * Two units at a time.  A vector access of 16 aligned bytes does not tear the
 * 8-byte halves on any processor that has such vectors (nor do its loads pass
 * each other on x86; elsewhere what the number vouches for is in the same
 * access).  ThreadSanitizer knows atomic accesses only.
 */
#if defined(__has_builtin) && !defined(__SANITIZE_THREAD__)
#if __has_builtin(__builtin_shufflevector) && \
	__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define PAIRS	1
#define SHUFFLE __builtin_shufflevector
typedef uint32_t pair __attribute__((vector_size(16)));
#endif
#endif

static inline uint64_t get(const revoff_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE); /* [request load] */
}

/* Both halves of a unit, if they carry the number. */
static inline int unit(const struct revoff_unit *u, uint32_t seq,
		       uint64_t *word)
{
	uint64_t lo = get(&u->lo), hi = get(&u->hi);

	*word = (lo & 0xffffffffu) | hi << 32;
	return ((uint32_t)(lo >> 32) ^ seq) == 0 &&
	       ((uint32_t)(hi >> 32) ^ seq) == 0;
}

int port_head(const struct ports *p, unsigned port, struct request *r)
{
	const struct revoff_unit *u = p->requests[port].head;
	uint32_t seq = p->answered[port] + 1;
	uint64_t lanes, block, thread;
	int whole = unit(u + REVOFF_HEAD_FN, seq, &r->fn) &
		    unit(u + REVOFF_HEAD_LANES, seq, &lanes) &
		    unit(u + REVOFF_HEAD_BLOCK, seq, &block) &
		    unit(u + REVOFF_HEAD_THREAD, seq, &thread);

	r->seq = seq;
	r->mask = (uint32_t)lanes;
	r->words = lanes >> 32 & 0xff;
	r->form = lanes >> 40 & 0xff;
	r->stride = (unsigned)(lanes >> 48) * 16;
	r->block_x = (uint32_t)block;
	r->block_yz = (uint32_t)(block >> 32);
	r->thread = (uint32_t)thread;
	r->slot = (uint32_t)(thread >> 32);
	r->lanes = (unsigned)__builtin_popcount(r->mask);
	return whole;
}

int port_words(const struct ports *p, unsigned port, uint32_t seq,
	       unsigned first, unsigned count, uint64_t *out, unsigned step)
{
	const struct revoff_unit *u = p->requests[port].word + first;
	uint64_t odd = 0;
	unsigned i = 0;

#ifdef PAIRS
	if (step == 1) {
		pair none = { 0, 0, 0, 0 }, number = none + seq;

		for (; i + 2 <= count; i += 2) {
			/* [words load] */
			pair a = *(const volatile pair *)&u[i];
			/* [words-next load] */
			pair b = *(const volatile pair *)&u[i + 1];
			pair words = SHUFFLE(a, b, 0, 2, 4, 6);

			none |= SHUFFLE(a, b, 1, 3, 5, 7) ^ number;
			memcpy(&out[i], &words, sizeof(words));
		}
		odd = none[0] | none[1] | none[2] | none[3];
		/* A frame in a slot is read after this, on any processor. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE); /* [words fence] */
	}
#endif
	for (; i < count; ++i) {
		uint64_t lo = get(&u[i].lo), hi = get(&u[i].hi);

		odd |= (lo >> 32 ^ seq) | (hi >> 32 ^ seq);
		out[i * step] = (lo & 0xffffffffu) | hi << 32;
	}
	return odd == 0;
}

void caller_of(uint32_t block_x, uint32_t block_yz, uint32_t thread,
	       unsigned lane, uint32_t *block, uint32_t *at)
{
	uint32_t linear = (thread & 31) * 32 + lane;
	uint32_t x = thread >> 5 & 0x7ff, y = thread >> 16 & 0x7ff;

	block[0] = block_x;
	block[1] = block_yz & 0xffff;
	block[2] = block_yz >> 16;
	/* Nothing that a kernel says may divide by zero here. */
	x += !x;
	y += !y;
	at[0] = linear % x;
	at[1] = linear / x % y;
	at[2] = linear / x / y;
}

/* ---- answering ------------------------------------------------------------ */

static inline void put(struct revoff_unit *u, uint64_t word, uint32_t seq)
{
	uint64_t number = (uint64_t)seq << 32;

	/* What the device may read after this, frames, is written before. */
	/* [reply store] */
	__atomic_store_n(&u->lo, (word & 0xffffffffu) | number,
			 __ATOMIC_RELEASE);
	/* [reply-high store] */
	__atomic_store_n(&u->hi, word >> 32 | number, __ATOMIC_RELEASE);
}

/* A request has as many answers as lanes; then its port is free again. */
static void settle(struct ports *p, unsigned port, uint32_t seq,
		   unsigned answers)
{
	if (p->owed[port] > answers) {
		p->owed[port] -= (uint8_t)answers;
		return;
	}
	p->owed[port] = 0;
	/* Statistics are asked for by any thread. [answered store] */
	__atomic_store_n(&p->answered[port], seq, __ATOMIC_RELAXED);
	if (seq >= REVOFF_SEQ_LAST)
		p->dirty = 1;
}

/* One lane's words, or its status. */
static inline void put_lane(struct revoff_unit *u, unsigned lanes, uint32_t seq,
			    int status, const uint64_t *words, unsigned nwords)
{
	unsigned w;

	if (status != REVOFF_OK) {
		put(u, (uint32_t)status, seq | REVOFF_SEQ_FAILED);
		return;
	}
	for (w = 0; w < nwords; ++w)
		put(u + w * lanes, words[w], seq);
}

/* nwords: of the result, at least 1, also if the call failed. */
void ports_reply(struct ports *p, unsigned port, unsigned rank, unsigned lanes,
		 uint32_t seq, int status, const uint64_t *words,
		 unsigned nwords)
{
	/* An answer that comes after those of ports_abandon would hide newer. */
	if (seq != p->answered[port] + 1)
		return;
	put_lane(p->replies[port].word + rank, lanes, seq, status, words,
		 nwords);
	settle(p, port, seq, 1);
}

/* All lanes of a request; one word each, or nwords if they failed. */
void ports_reply_all(struct ports *p, const struct request *r, unsigned port,
		     int status, const uint64_t *words, unsigned nwords)
{
	struct revoff_unit *u = p->replies[port].word;
	unsigned i;

	if (r->seq != p->answered[port] + 1)
		return;
	if (status == REVOFF_OK && r->lanes > 1) {
		i = 0;
#ifdef PAIRS
		/* What the device may read after this is written before. */
		__atomic_thread_fence(__ATOMIC_RELEASE); /* [replies fence] */
		for (; i + 2 <= r->lanes; i += 2) {
			pair two, number = (pair){ 0, 0, 0, 0 } + r->seq;

			memcpy(&two, &words[i], sizeof(two));
			*(volatile pair *)&u[i] = /* [replies store] */
				SHUFFLE(two, number, 0, 4, 1, 5);
			*(volatile pair *)&u[i + 1] = /* [replies-next store] */
				SHUFFLE(two, number, 2, 6, 3, 7);
		}
#endif
		for (; i < r->lanes; ++i)
			put(u + i, words[i], r->seq);
	} else
		for (i = 0; i < r->lanes; ++i)
			put_lane(u + i, r->lanes, r->seq, status,
				 words ? words + i : NULL, nwords);
	p->owed[port] = 0;
	settle(p, port, r->seq, 1);
}

/* Words of the reply that the callers of a request look at. */
unsigned reply_words(struct revoff_image *image, const struct request *r)
{
	int index = r->form == REVOFF_FORM_WORDS ? image_find_fn(image, r->fn)
						 : -1;
	unsigned n = index < 0 ? 1 : image->functions[index].shape.result_words;

	return n && n <= REVOFF_PORT_WORDS ? n : 1;
}

/*
 * Another thread than the one that served so far, which is out of the way or
 * will touch nothing any more: answer whatever is open.  A lane that has its
 * answer keeps it.
 */
void ports_abandon(struct revoff_image *image)
{
	struct ports *p = image->ports;
	unsigned port, i;

	if (!p)
		return;
	p->turn++;
	for (port = 0; port < p->nports; ++port) {
		struct request r;

		/* Now and then without its bell, as in probe(). */
		/* [bell-late load] */
		if ((__atomic_load_n(&p->bells[port], __ATOMIC_RELAXED) ==
			     (uint8_t)p->answered[port] &&
		     (port ^ p->turn) % 16) ||
		    !port_head(p, port, &r))
			continue;
		for (i = 0; i < r.lanes; ++i) {
			struct revoff_unit *u = p->replies[port].word + i;
			uint32_t number = (uint32_t)(get(&u->hi) >> 32);

			if ((number & ~REVOFF_SEQ_FAILED) != r.seq)
				put_lane(u, r.lanes, r.seq, REVOFF_ABORTED,
					 NULL, reply_words(image, &r));
		}
		p->owed[port] = 0;
		p->seen[port] = (uint8_t)r.seq;
		settle(p, port, r.seq, 1);
	}
}

unsigned ports_open_count(const struct ports *p)
{
	unsigned port, n = 0;

	for (port = 0; p && port < p->nports; ++port)
		/* [bell-count load] */
		n += __atomic_load_n(&p->bells[port], __ATOMIC_RELAXED) !=
		     /* [answered load] */
		     (uint8_t)__atomic_load_n(&p->answered[port],
					      __ATOMIC_RELAXED);
	return n;
}

/* ---- serving --------------------------------------------------------------- */

/* Index of a function, or -1; complains of one that the image lacks. */
int ports_index(struct revoff_launch *l, uint64_t fn)
{
	struct ports *p = l->image->ports;
	int index = p->last_index;

	if (index >= 0 && p->last_fn == fn)
		return index;
	index = image_find_fn(l->image, fn);
	if (index < 0)
		index = image_adopt(l->image, fn);
	if (index < 0) {
		launch_fail(l, REVOFF_ECALL,
			    "kernel %s called the unknown function 0x%llx: its "
			    "image was not loaded with it in the function "
			    "table",
			    l->kernel->name, (unsigned long long)fn);
		return -1;
	}
	p->last_fn = fn;
	p->last_index = index;
	return index;
}

/* What a kernel says may be wrong: nothing outside of its port is touched. */
static const char *wrong(const struct ports *p, const struct function *f,
			 const struct request *r)
{
	if (!r->lanes)
		return "no lane that calls";
	if (r->words * r->lanes > REVOFF_PORT_UNITS)
		return "more words than a port holds";
	switch (r->form) {
	case REVOFF_FORM_WORDS:
		if (f->kind != REVOFF_FUNCTION_TYPED || !f->shape.in_words ||
		    r->words != f->shape.words ||
		    (f->shape.result_words > 1 &&
		     f->shape.result_words * r->lanes > REVOFF_PORT_UNITS))
			return "other arguments than its signature has";
		return NULL;
	case REVOFF_FORM_FRAME:
		if (f->kind != REVOFF_FUNCTION_TYPED || r->words != 1)
			return "a frame for a function that has none";
		if (r->slot >= p->nslots ||
		    (uint64_t)r->stride * r->lanes > REVOFF_SLOT_BYTES)
			return "a frame outside of the slots";
		return NULL;
	case REVOFF_FORM_GOMP:
		if (f->kind != REVOFF_FUNCTION_GOMP)
			return "libgomp's form for a typed function";
		if (r->words != 5 || r->lanes != 1 || r->slot >= p->nslots)
			return "a message that is not libgomp's";
		return NULL;
	case REVOFF_FORM_SEND:
	case REVOFF_FORM_FETCH:
		if (r->words != 3 || r->lanes != 1 || r->slot >= p->nslots)
			return "a piece outside of the slots";
		return NULL;
	}
	return "an unknown form";
}

/* Each caller of a request, one after the other, through its handler. */
static void serve_lanes(struct revoff_launch *l, unsigned port, int index,
			const struct request *r, const uint64_t *words)
{
	struct ports *p = l->image->ports;
	const struct function *f = &l->image->functions[index];
	unsigned rank = 0, lane, w,
		 items = f->shape.nargs + (f->shape.result > 8);
	uint64_t eights = (items * 8 + 15) / 16 * 16;

	p->owed[port] = (uint8_t)r->lanes;
	for (lane = 0; lane < 32; ++lane) {
		uint64_t mine[REVOFF_PORT_WORDS];
		struct service s;

		if (!(r->mask >> lane & 1))
			continue;
		service_start(&s, l, index);
		s.from = FROM_PORT;
		s.port = port;
		s.rank = rank;
		s.lanes = r->lanes;
		s.seq = r->seq;
		for (w = 0; w < r->words; ++w)
			mine[w] = words[w * r->lanes + rank];
		if (f->kind == REVOFF_FUNCTION_TYPED)
			caller_of(r->block_x, r->block_yz, r->thread, lane,
				  s.call.block, s.call.thread);
		if (r->form == REVOFF_FORM_WORDS) {
			if (s.status == REVOFF_OK && launch_given_up(l))
				s.status = REVOFF_ABORTED;
			if (s.status == REVOFF_OK)
				serve_words(&s, mine);
			service_end(&s);
		} else {
			struct rev_offload m = { .fn = r->fn };
			uint64_t at = (uint64_t)r->slot * REVOFF_SLOT_BYTES +
				      (uint64_t)rank * r->stride;

			s.area.address = p->link.slots + at;
			s.area.host = p->slots + at;
			s.area.size = r->form == REVOFF_FORM_FRAME
					      ? r->stride
					      : REVOFF_SLOT_BYTES;
			s.stream = stream_find(p, port);
			if (r->form == REVOFF_FORM_FRAME) {
				m.mapnum = mine[0];
				m.addrs = s.area.address;
				m.sizes = m.addrs + eights;
				m.kinds = m.sizes + eights;
				if (mine[0] != items && s.status == REVOFF_OK)
					service_fail(
						&s, REVOFF_BADMAP,
						"call of %s: %llu items, its "
						"signature has %u",
						f->name,
						(unsigned long long)mine[0],
						items);
			} else {
				m.mapnum = mine[0];
				m.addrs = mine[1];
				m.sizes = mine[2];
				m.kinds = mine[3];
				m.dev_num = (int32_t)mine[4];
			}
			serve_service(&s, &m);
		}
		/* The reaper has answered this one and all the others. */
		if (s.left)
			return;
		++rank;
	}
}

/*
 * Serve a request by its function's handler, lane by lane: 1, or 0 if its
 * words are not all there yet.
 */
static int serve_port(struct revoff_launch *l, unsigned port, int index,
		      const struct request *r)
{
	struct ports *p = l->image->ports;
	uint64_t words[REVOFF_PORT_UNITS];
	const char *why;

	if (index < 0) {
		p->seen[port] = (uint8_t)r->seq;
		ports_reply_all(p, r, port, REVOFF_UNKNOWN, NULL, 1);
		return 1;
	}
	why = wrong(p, &l->image->functions[index], r);
	if (!why &&
	    !port_words(p, port, r->seq, 0, r->words * r->lanes, words, 1))
		return 0;
	p->seen[port] = (uint8_t)r->seq;
	if (why) {
		launch_fail(l, REVOFF_ECALL,
			    "kernel %s: a call of %s with %s: it was compiled "
			    "with another pyrevoff.h, or its memory is damaged",
			    l->kernel->name, l->image->functions[index].name,
			    why);
		ports_reply_all(p, r, port, REVOFF_BADCALL, NULL,
				reply_words(l->image, r));
		return 1;
	}
	if (r->form == REVOFF_FORM_SEND || r->form == REVOFF_FORM_FETCH) {
		uint64_t none = 0;
		int rc = stream_transfer(p, port, r->slot, (int)r->form,
					 words[0], words[1], words[2]);

		if (rc)
			launch_fail(l, REVOFF_ECALL,
				    "kernel %s: call of %s: a piece of %llu "
				    "bytes at %llu of %llu",
				    l->kernel->name,
				    l->image->functions[index].name,
				    (unsigned long long)words[1],
				    (unsigned long long)words[0],
				    (unsigned long long)words[2]);
		ports_reply_all(p, r, port, rc ? REVOFF_BADMAP : REVOFF_OK,
				&none, 1);
		return 1;
	}
	serve_lanes(l, port, index, r, words);
	return 1;
}

static void heat(struct ports *p, unsigned port)
{
	unsigned i;

	for (i = 0; i < 4; ++i)
		if (p->hot[i] == port)
			return;
	p->hot[p->hot_at++ % 4] = port;
}

/* A port that may have a request: note it if its head is there. */
static void note(struct revoff_launch *l, unsigned port)
{
	struct ports *p = l->image->ports;
	struct request r;

	if (!port_head(p, port, &r))
		return;
	__builtin_prefetch(&p->replies[port].word[0], 1);
	__builtin_prefetch(&p->replies[port].word[4], 1);
	p->found[p->nfound] = port;
	p->found_index[p->nfound++] = ports_index(l, r.fn);
}

/* Ports by their bells, 32 at a time. */
static void sweep(struct revoff_launch *l, unsigned from, unsigned to)
{
	struct ports *p = l->image->ports;
	const revoff_u64 *bells = (const revoff_u64 *)p->bells;
	const revoff_u64 *seen = (const revoff_u64 *)p->seen;
	unsigned i, k, n = 0;

	for (i = from / 8; i < to / 8; i += 4) {
		uint64_t odd = 0, b[4];

		for (k = 0; k < 4; ++k) {
			b[k] = __atomic_load_n(&bells[i + k], /* [bell load] */
					       __ATOMIC_RELAXED) ^
			       seen[i + k];
			odd |= b[k];
		}
		if (!odd)
			continue;
		/* Their heads are on the way while the next bells are read. */
		for (k = 0; k < 32; ++k)
			if (b[k / 8] >> k % 8 * 8 & 0xff) {
				p->rung[n++] = i * 8 + k;
				__builtin_prefetch(
					&p->requests[i * 8 + k].head);
			}
	}
	for (i = 0; i < n; ++i)
		note(l, p->rung[i]);
}

/*
 * A port without its bell: one of those that called last.  seen[] tells a
 * request whose answer is owed from one that is new.
 */
static void note_hot(struct revoff_launch *l, unsigned port)
{
	struct ports *p = l->image->ports;
	uint64_t lo;

	/* What will be wanted next comes at the same time. */
	__builtin_prefetch(&p->requests[port].word[0]);
	__builtin_prefetch(&p->requests[port].word[4]);
	lo = get(&p->requests[port].head[0].lo);
	if ((uint32_t)(lo >> 32) == p->answered[port] + 1 &&
	    (uint8_t)(lo >> 32) != p->seen[port])
		note(l, port);
}

/*
 * A few of the heads, in turn, without their bells.  A bell says where to look
 * and is not waited for, so that of a port's last request may arrive after
 * that of the next one, if another warp has the port by then; see
 * model/ports.pml.
 */
#define PROBES 8u
static void probe(struct revoff_launch *l)
{
	struct ports *p = l->image->ports;
	unsigned i, k;

	for (i = 0; i < PROBES; ++i) {
		unsigned port = p->turn++ & (p->nports - 1), n = p->nfound;

		note_hot(l, port);
		for (k = 0; k < n && p->nfound > n; ++k)
			if (p->found[k] == port)
				p->nfound = n;
	}
}

static int is_batch(const struct revoff_launch *l, int index)
{
	return index >= 0 && (unsigned)index < l->nbound &&
	       l->bound[index].batch && !launch_given_up(l);
}

/*
 * Serve what was found.  Posts that were sent before a call was are handled
 * before it, so that a lane's messages and calls keep their order.
 */
static int serve_found(struct revoff_launch *l)
{
	struct ports *p = l->image->ports;
	unsigned i, served = 0;
	int rc = posts_serve(l);

	if (rc < 0)
		return rc;
	for (i = 0; i < p->nfound; ++i) {
		struct request r;
		unsigned port = p->found[i];
		int index = p->found_index[i];

		if (is_batch(l, index))
			continue;
		/* Answered by a batch handler's nested wait, for instance. */
		if (!port_head(p, port, &r))
			continue;
		heat(p, port);
		served += (unsigned)serve_port(l, port, index, &r);
		if (l->left)
			return REVOFF_EBUSY;
	}
	for (i = 0; i < p->nfound; ++i) {
		int index = p->found_index[i];

		if (index < 0 || !is_batch(l, index))
			continue;
		rc = batch_serve(l, index);
		if (l->left)
			return REVOFF_EBUSY;
		if (rc < 0)
			return rc;
		served += (unsigned)rc;
	}
	return (int)served;
}

/* rested: this look comes after a sleep, so that the next one is far away. */
int ports_poll(struct revoff_launch *l, int rested)
{
	struct ports *p = l->image->ports;
	int served = 0, all = 0, rc;
	unsigned i;

	if (l->laters) {
		served = laters_serve(l);
		if (l->left)
			return REVOFF_EBUSY;
	}
	p->nfound = 0;
	for (i = 0; p->nports && i < 4; ++i)
		if (i == 0 || p->hot[i] != p->hot[i - 1])
			note_hot(l, p->hot[i]);
	/*
	 * A part of the others, so that those are looked at more often; but
	 * those that call and call must not keep all others waiting.
	 */
	if (p->nports && (!p->nfound || ++p->busy >= BUSY)) {
		unsigned to = p->sweep_at + SWEEP;

		p->nfound = p->busy = 0;
		if (rested) {
			p->sweep_at = 0;
			to = p->nports;
		}
		sweep(l, p->sweep_at, to);
		p->sweep_at = to < p->nports ? to : 0;
		all = !p->sweep_at;
	}
	/* Whoever is served in batches is not alone, perhaps. */
	if (p->nfound && is_batch(l, p->found_index[0])) {
		p->nfound = 0;
		sweep(l, 0, p->nports);
		all = 1;
	}
	if (all)
		probe(l);
	if (!p->nfound && !posts_waiting(p))
		return served;
	rc = serve_found(l);
	return rc < 0 ? rc : served + rc;
}
