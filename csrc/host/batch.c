/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many calls of one function at once: words of ports are gathered to columns,
 * the handler is called, and its results are scattered to the replies.  Posts
 * are given to it where they lie, in the ring.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Calls in a batch: what fits in a core's cache with its requests. */
#define MOST 32768u

/* Where a part of the calls came from. */
struct entry {
	uint32_t mask, block_x, block_yz, thread;
	uint32_t port, seq;
	unsigned first, lanes;
};

/* A batch, and the memory behind it. */
struct run {
	struct revoff_batch batch;
	struct bound bound;
	struct revoff_column column[REVOFF_PACKET_MAPS + 1];
	size_t room[REVOFF_PACKET_MAPS + 1]; /* bytes of column[i].data */
	struct entry *entries;
	unsigned nentries, mentries;
	int from;
	struct service *single; /* of batch_of_one, while it lasts */
	struct revoff_later *later;
};

/* ---- memory ---------------------------------------------------------------- */

static struct run *run_new(void)
{
	struct run *r = calloc(1, sizeof(*r));

	if (!r)
		fail(REVOFF_ENOMEM, "out of host memory");
	return r;
}

void run_free(struct run *r)
{
	unsigned i;

	if (!r)
		return;
	for (i = 0; i <= REVOFF_PACKET_MAPS; ++i)
		if (r->room[i])
			revoff_block_free(r->column[i].data);
	free(r->entries);
	free(r);
}

/* Memory for a column; that of the last batch, if it is free and enough. */
static int column(struct revoff_device *d, struct run *r, unsigned i,
		  uint64_t size, unsigned count)
{
	struct revoff_column *c = &r->column[i];
	size_t bytes;

	c->size = size;
	c->stride = size <= 8 ? size : (size + 7) / 8 * 8;
	bytes = c->stride * count;
	c->kept = 0;
	c->keepable = 1;
	if (r->room[i] >= bytes && r->room[i] / 4 <= bytes + 65536)
		return 0;
	if (r->room[i])
		revoff_block_free(c->data);
	r->room[i] = 0;
	/* Some more, so that growing batches settle. */
	bytes += bytes / 2 + 64;
	c->data = block_alloc(d, bytes);
	if (!c->data)
		return fail(REVOFF_ENOMEM, "no memory for a batch of %u calls",
			    count);
	r->room[i] = bytes;
	return 0;
}

static int entries(struct run *r, unsigned n)
{
	unsigned m = r->mentries ? r->mentries : 64;
	struct entry *e;

	if (n <= r->mentries)
		return 0;
	while (m < n)
		m *= 2;
	e = realloc(r->entries, m * sizeof(*e));
	if (!e)
		return fail(REVOFF_ENOMEM, "out of host memory");
	r->entries = e;
	r->mentries = m;
	return 0;
}

static struct run *begin(struct revoff_launch *l, int index)
{
	struct revoff_image *image = l->image;
	const struct function *f = &image->functions[index];
	struct run *r;

	if (!l->run)
		l->run = run_new();
	r = l->run;
	if (!r)
		return NULL;
	r->bound = l->bound[index];
	r->nentries = 0;
	r->later = NULL;
	r->single = NULL;
	memset(&r->batch, 0, sizeof(r->batch));
	r->batch.device = l->device;
	r->batch.image = image;
	r->batch.launch = l;
	r->batch.fn = f->fn;
	r->batch.index = (unsigned)index;
	r->batch.nargs = f->shape.nargs;
	r->batch.arguments = r->batch.argument = r->column;
	r->batch.result = f->shape.result ? &r->column[REVOFF_PACKET_MAPS]
					  : NULL;
	r->batch.callers = r;
	__atomic_store_n(&l->handler_index, (unsigned)index, __ATOMIC_RELAXED);
	return r;
}

REVOFF_API void revoff_batch_callers(const struct revoff_batch *batch,
				     uint32_t *block, uint32_t *thread)
{
	const struct run *r = batch->callers;
	unsigned k, lane;

	memset(block, 0, 3 * sizeof(*block) * batch->count);
	memset(thread, 0, 3 * sizeof(*thread) * batch->count);
	if (r->single) {
		memcpy(block, r->single->call.block, 3 * sizeof(*block));
		memcpy(thread, r->single->call.thread, 3 * sizeof(*thread));
		return;
	}
	for (k = 0; k < r->nentries; ++k) {
		const struct entry *e = &r->entries[k];
		unsigned i = e->first;

		for (lane = 0; lane < 32 && i < batch->count; ++lane) {
			if (!(e->mask >> lane & 1))
				continue;
			caller_of(e->block_x, e->block_yz, e->thread, lane,
				  block + 3 * i, thread + 3 * i);
			++i;
		}
	}
}

/* ---- gather and scatter -------------------------------------------------------- */

/* n units to values of size bytes. */
static int gather(const struct ports *p, unsigned port, uint32_t seq,
		  unsigned first, unsigned n, unsigned words, uint64_t size,
		  char *to)
{
	uint64_t narrow[32];
	unsigned i, w;
	int whole = 1;

	if (size == 8)
		return port_words(p, port, seq, first, n, (uint64_t *)to, 1);
	if (size > 8) {
		for (w = 0; w < words; ++w)
			whole &= port_words(p, port, seq, first + w * n, n,
					    (uint64_t *)to + w, words);
		return whole;
	}
	whole = port_words(p, port, seq, first, n, narrow, 1);
	if (size == 4)
		for (i = 0; i < n; ++i)
			((uint32_t *)to)[i] = (uint32_t)narrow[i];
	else
		for (i = 0; i < n; ++i)
			memcpy(to + i * size, &narrow[i], size);
	return whole;
}

static void scatter(struct run *r, const struct entry *e, unsigned good,
		    int status)
{
	struct ports *p = r->batch.image->ports;
	const struct revoff_column *c = r->batch.result;
	const struct shape *f =
		&r->batch.image->functions[r->batch.index].shape;
	struct request q = { .seq = e->seq, .lanes = e->lanes };
	uint64_t words[32] = { 0 };
	const char *from = c ? (const char *)c->data + e->first * c->stride
			     : NULL;
	unsigned i;

	if (good >= e->first + e->lanes && f->result_words <= 1) {
		if (f->result == 8) {
			ports_reply_all(p, &q, e->port, REVOFF_OK,
					(const uint64_t *)from, 1);
			return;
		}
		if (f->result == 4)
			for (i = 0; i < e->lanes; ++i)
				words[i] = ((const uint32_t *)from)[i];
		else if (f->result)
			for (i = 0; i < e->lanes; ++i)
				memcpy(&words[i], from + i * c->stride,
				       f->result);
		ports_reply_all(p, &q, e->port, REVOFF_OK, words, 1);
		return;
	}
	p->owed[e->port] = (uint8_t)e->lanes;
	for (i = 0; i < e->lanes; ++i) {
		unsigned at = e->first + i;
		int mine = at < good	? REVOFF_OK
			   : at == good ? status
					: REVOFF_ABORTED;

		words[0] = 0;
		if (mine == REVOFF_OK && f->result <= 8)
			memcpy(words, from + i * c->stride, f->result);
		ports_reply(p, e->port, i, e->lanes, e->seq, mine,
			    f->result > 8
				    ? (const uint64_t *)(from + i * c->stride)
				    : words,
			    f->result > 8 ? f->result_words : 1);
	}
}

/* Ports whose memory is on its way while one is read or written. */
#define AHEAD 16

static void prefetch_reply(struct ports *p, const struct entry *e)
{
	char *at = (char *)p->replies[e->port].word;
	char *end = (char *)(p->replies[e->port].word + e->lanes);

	for (; at < end; at += 64)
		__builtin_prefetch(at, 1, 2);
}

/* ---- running ------------------------------------------------------------------ */

/* To a handler that owes an answer for which nobody waits any more. */
static int call_off(struct revoff_launch *l, struct run *r,
		    struct revoff_later *later)
{
	int posted = r->batch.posted, left;

	r->batch.later = later;
	r->batch.posted = -1;
	enter_handler(l);
	r->bound.batch(&r->batch, r->bound.user);
	left = leave_handler(l);
	r->batch.later = NULL;
	r->batch.posted = posted;
	return left;
}

/* 0, REVOFF_LATER, or negative; *left: nothing may be answered. */
static int call_handler(struct revoff_launch *l, struct run *r, int *left)
{
	struct revoff_later *owed;
	int again = r->batch.later != NULL, rc;

	if (!again)
		__atomic_store_n(&l->batches, l->batches + 1, __ATOMIC_RELAXED);
	enter_handler(l);
	rc = r->bound.batch(&r->batch, r->bound.user);
	*left = leave_handler(l);
	owed = again ? NULL : r->single ? r->single->later : r->later;
	if (rc == REVOFF_LATER && owed && !*left)
		return REVOFF_LATER;
	if (rc && owed)
		*left |= call_off(l, r, owed);
	if (owed && !r->single) {
		later_cancel(owed);
		r->later = NULL;
	}
	if (*left)
		return -1;
	if (rc && r->batch.posted >= 0)
		launch_fail(l, REVOFF_EHANDLER, "the handler of %s failed",
			    l->image->functions[r->batch.index].name);
	return rc ? -1 : 0;
}

REVOFF_API struct revoff_later *revoff_batch_later(struct revoff_batch *batch)
{
	struct run *r = (struct run *)(uintptr_t)batch->callers;

	if (r->single)
		return revoff_call_later(&r->single->call);
	if (!r->later && !batch->later)
		r->later = later_new(batch->launch);
	return r->later;
}

/* What the handler kept is its own from here on. */
static void let_go(struct run *r)
{
	unsigned i;

	for (i = 0; i <= REVOFF_PACKET_MAPS; ++i)
		if (r->column[i].kept && r->room[i]) {
			r->room[i] = 0;
			r->column[i].kept = 0;
		}
}

/* After the handler: answers, or the promise of them. */
static int finish(struct revoff_launch *l, struct run *r, int rc, int left)
{
	struct revoff_batch *b = &r->batch;
	int status = b->posted < 0 ? REVOFF_ABORTED : REVOFF_HANDLER;
	unsigned good, i;

	if (rc == REVOFF_LATER) {
		later_keep_run(r->later, r);
		if (l->run == r)
			l->run = NULL;
		return (int)b->count;
	}
	if (left) {
		let_go(r);
		return 0;
	}
	good = !rc ? b->count : b->done < b->count ? b->done : b->count - 1;
	if (r->from == FROM_PORT) {
		for (i = 0; i < r->nentries; ++i) {
			if (i + AHEAD < r->nentries)
				prefetch_reply(l->image->ports,
					       &r->entries[i + AHEAD]);
			scatter(r, &r->entries[i], good, status);
		}
		__atomic_store_n(&l->calls, l->calls + b->count,
				 __ATOMIC_RELAXED);
		__atomic_store_n(&l->failed, l->failed + b->count - good,
				 __ATOMIC_RELAXED);
	}
	let_go(r);
	return (int)b->count;
}

static void prefetch(const struct ports *p, unsigned port, unsigned words)
{
	const char *at = (const char *)&p->requests[port];
	const char *end = (const char *)(p->requests[port].word + words * 32);

	for (; at < end; at += 64)
		__builtin_prefetch(at, 0, 2);
}

/* Take up found ports of the function, as many as fit in one batch. */
static unsigned take_up(struct revoff_launch *l, struct run *r, int index,
			unsigned most)
{
	struct ports *p = l->image->ports;
	const struct shape *f = &l->image->functions[index].shape;
	unsigned i, a, count = 0;

	for (i = 0; i < p->nfound && i < AHEAD; ++i)
		prefetch(p, p->found[i], f->words);
	for (i = 0; i < p->nfound && count + 32 <= most; ++i) {
		unsigned port = p->found[i];
		struct request q;
		struct entry *e;
		int whole = 1;

		if (i + AHEAD < p->nfound)
			prefetch(p, p->found[i + AHEAD], f->words);
		if (p->found_index[i] != index || !port_head(p, port, &q))
			continue;
		if (q.form != REVOFF_FORM_WORDS || q.words != f->words ||
		    !q.lanes || f->words * q.lanes > REVOFF_PORT_UNITS ||
		    (f->result_words > 1 &&
		     f->result_words * q.lanes > REVOFF_PORT_UNITS)) {
			p->found_index[i] = -1;
			p->seen[port] = (uint8_t)q.seq;
			launch_fail(l, REVOFF_ECALL,
				    "kernel %s: a call of %s with other "
				    "arguments than its signature has: it was "
				    "compiled with another pyrevoff.h, or its "
				    "memory is damaged",
				    l->kernel->name,
				    l->image->functions[index].name);
			ports_reply_all(p, &q, port, REVOFF_BADCALL, NULL,
					reply_words(l->image, &q));
			continue;
		}
		for (a = 0; a < f->nargs; ++a)
			whole &= gather(p, port, q.seq, f->at[a] * q.lanes,
					q.lanes, (unsigned)(f->size[a] + 7) / 8,
					f->size[a],
					(char *)r->column[a].data +
						count * r->column[a].stride);
		if (!whole)
			continue; /* at the next sweep */
		p->found_index[i] = -1;
		p->seen[port] = (uint8_t)q.seq;
		e = &r->entries[r->nentries++];
		*e = (struct entry){ q.mask, q.block_x, q.block_yz, q.thread,
				     port,   q.seq,	count,	    q.lanes };
		count += q.lanes;
	}
	return count;
}

/* A single call goes to the handler for single calls, if there is one. */
static int serve_alone(struct revoff_launch *l, struct run *r, int index)
{
	const struct shape *f = &l->image->functions[index].shape;
	const struct entry *e = &r->entries[0];
	uint64_t words[REVOFF_PORT_WORDS] = { 0 };
	struct service s;
	unsigned a, lane = (unsigned)__builtin_ctz(e->mask);

	for (a = 0; a < f->nargs; ++a)
		memcpy(words + f->at[a], r->column[a].data, f->size[a]);
	service_start(&s, l, index);
	s.from = FROM_PORT;
	s.port = e->port;
	s.lanes = 1;
	s.seq = e->seq;
	l->image->ports->owed[e->port] = 1;
	caller_of(e->block_x, e->block_yz, e->thread, lane, s.call.block,
		  s.call.thread);
	serve_words(&s, words);
	service_end(&s);
	return s.left ? 0 : 1;
}

/* Every found call of the function; calls served, or negative. */
int batch_serve(struct revoff_launch *l, int index)
{
	struct ports *p = l->image->ports;
	const struct shape *f = &l->image->functions[index].shape;
	int served = 0, rc, left;

	for (;;) {
		unsigned n = 0, lanes, a, count, i;
		unsigned most = l->bound[index].most;
		struct run *r = begin(l, index);

		if (!r)
			return REVOFF_ENOMEM;
		for (i = 0; i < p->nfound; ++i)
			n += p->found_index[i] == index;
		if (!n)
			return served;
		if (launch_given_up(l)) {
			/* Answered one by one, with that status. */
			return served;
		}
		if (!most || most > MOST)
			most = MOST;
		if (most < 32)
			most = 32;
		lanes = n > most / 32 ? most : n * 32;
		rc = entries(r, n);
		for (a = 0; a < f->nargs && !rc; ++a)
			rc = column(l->device, r, a, f->size[a], lanes);
		if (!rc && f->result)
			rc = column(l->device, r, REVOFF_PACKET_MAPS, f->result,
				    lanes);
		if (rc)
			return rc;
		count = take_up(l, r, index, lanes);
		if (!count)
			return served;
		if (count == 1 && r->bound.handler) {
			served += serve_alone(l, r, index);
			if (l->left)
				return served;
			continue;
		}
		r->from = FROM_PORT;
		r->batch.count = count;
		if (f->result)
			memset(r->column[REVOFF_PACKET_MAPS].data, 0,
			       count * r->column[REVOFF_PACKET_MAPS].stride);
		rc = call_handler(l, r, &left);
		served += finish(l, r, rc, left);
		if (left)
			return served;
	}
}

/*
 * count records in the ring, stride apart, of nheads posts from head first
 * on.  Returns them, or 0 if the launch was handed over meanwhile.
 */
int batch_posts(struct revoff_launch *l, int index, char *records,
		uint64_t stride, unsigned count, unsigned nheads,
		uint64_t first)
{
	struct ports *p = l->image->ports;
	const struct shape *f = &l->image->functions[index].shape;
	struct run *r = begin(l, index);
	struct revoff_column columns[REVOFF_PACKET_MAPS];
	unsigned a, i, at = 0;
	int rc, left;

	if (!r || entries(r, nheads))
		return REVOFF_ENOMEM;
	for (a = 0; a < f->nargs; ++a)
		columns[a] = (struct revoff_column){ records + f->at[a] * 8,
						     f->size[a], stride, 0, 0 };
	r->batch.arguments = r->batch.argument = columns;
	r->batch.result = NULL;
	r->batch.count = count;
	r->batch.posted = 1;
	r->from = FROM_POST;
	for (i = 0; i < nheads; ++i) {
		const struct revoff_post *h =
			&p->heads[(uint32_t)(first + i) & (p->nheads - 1)];
		unsigned n = (unsigned)__builtin_popcount(h->mask);

		r->entries[r->nentries++] = (struct entry){
			h->mask, h->block_x, h->block_yz, h->thread, 0, 0, at, n
		};
		at += n;
	}
	rc = call_handler(l, r, &left);
	/* If it answers later: not by what lies in the ring now. */
	r->batch.arguments = r->batch.argument = r->column;
	finish(l, r, rc, left);
	return left ? 0 : (int)count;
}

/* One call of a batch handler, whose words are in the scratch memory. */
int batch_of_one(struct service *s)
{
	struct revoff_launch *l = s->launch;
	const struct shape *f = &l->image->functions[s->call.index].shape;
	struct revoff_column columns[REVOFF_PACKET_MAPS], result;
	struct run *r = begin(l, (int)s->call.index);
	unsigned a;
	int rc, left;

	if (!r) {
		service_fail(s, REVOFF_HANDLER, "out of host memory");
		return -1;
	}
	for (a = 0; a < f->nargs; ++a)
		columns[a] = (struct revoff_column){
			f->size[a] <= 8 ? (void *)&l->list.words[a]
					: (void *)(uintptr_t)l->list.words[a],
			f->size[a], 8, 0, 0
		};
	result = (struct revoff_column){
		f->result <= 8 ? (void *)&s->call.result
			       : (void *)(uintptr_t)l->list.words[f->nargs],
		f->result, 8, 0, 0
	};
	r->batch.arguments = r->batch.argument = columns;
	r->batch.result = f->result ? &result : NULL;
	r->batch.count = 1;
	r->batch.posted = s->call.posted;
	r->batch.later = s->call.later;
	r->single = s;
	rc = call_handler(l, r, &left);
	r->single = NULL;
	if (left) {
		s->left = 1;
		return -1;
	}
	if (rc == REVOFF_LATER)
		return rc;
	if (rc && s->status == REVOFF_OK)
		s->status = REVOFF_HANDLER;
	return rc;
}

/* The handler of a deferred batch once more; ready 0: the launch is given up. */
void batch_resume(struct revoff_launch *l, struct run *r, int ready)
{
	int rc, left = 0;

	r->batch.later = r->later;
	r->batch.done = 0;
	if (ready) {
		rc = call_handler(l, r, &left);
		finish(l, r, rc, left);
	} else {
		left = call_off(l, r, r->later);
		r->batch.posted = -1;
		r->batch.done = 0;
		finish(l, r, -1, left);
	}
	/* Its memory is for the next batch, if there is none for that yet. */
	r->later = NULL;
	if (l->run)
		run_free(r);
	else
		l->run = r;
}

/* ---- binding ------------------------------------------------------------------- */

REVOFF_API int revoff_image_bind_batch(struct revoff_image *image,
				       unsigned index,
				       revoff_batch_handler *handler,
				       revoff_handler *single, void *user,
				       unsigned most)
{
	struct function *f;
	struct bound b = { single, handler, user, most };

	if (index >= image_count(image))
		return fail(REVOFF_ENOTFOUND, "no reverse function %u", index);
	f = &image->functions[index];
	if (handler && (f->kind != REVOFF_FUNCTION_TYPED || !f->shape.in_words))
		return fail(REVOFF_EUNSUPPORTED,
			    "%s %s: batch handlers take functions of values, "
			    "of at most %d bytes in all",
			    f->name, f->signature, REVOFF_PORT_WORDS * 8);
	pthread_mutex_lock(&image->device->lock);
	f->bound = b;
	pthread_mutex_unlock(&image->device->lock);
	return 0;
}
