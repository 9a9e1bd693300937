/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call, from where it came in to its handler and back: the same for the
 * mailbox, ports and posts.
 *
 * Only the thread that waits for a launch serves the calls of its image, so
 * neither mailbox nor ports need a lock on the host: while a request is open
 * nobody else touches it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Innermost launch whose handler this thread is in. */
static __thread struct revoff_launch *innermost;

struct revoff_launch *serving(void)
{
	return innermost;
}

/* ---- failures ------------------------------------------------------------ */

static void failure(struct revoff_launch *l, int code, const char *format,
		    va_list ap)
{
	if (!l->has_failure) {
		l->failure = *error_slot();
		if (code != l->failure.code || !l->failure.driver_code) {
			memset(&l->failure, 0, sizeof(l->failure));
			l->failure.code = code;
		}
		vsnprintf(l->failure.text, sizeof(l->failure.text), format, ap);
		/* [failure store] */
		__atomic_store_n(&l->has_failure, 1, __ATOMIC_RELEASE);
	}
	revoff_launch_abort(l, REVOFF_ABORT_FAILED);
}

void launch_fail(struct revoff_launch *l, int code, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	failure(l, code, format, ap);
	va_end(ap);
}

void service_fail(struct service *s, int status, const char *format, ...)
{
	va_list ap;

	if (s->status == REVOFF_OK)
		s->status = status;
	va_start(ap, format);
	failure(s->launch,
		status == REVOFF_HANDLER      ? REVOFF_EHANDLER
		: status == REVOFF_COPYFAILED ? REVOFF_EDRIVER
					      : REVOFF_ECALL,
		format, ap);
	va_end(ap);
}

const char *service_name(const struct service *s)
{
	return s->launch->image->functions[s->call.index].name;
}

/* ---- copies -------------------------------------------------------------- */

static int copied(struct service *s, CUresult r, const char *entry,
		  uint64_t device, uint64_t size)
{
	if (!r)
		return 0;
	device_result(s->launch->device, r, entry, "copy");
	error_slot()->code = REVOFF_EDRIVER;
	service_fail(s, REVOFF_COPYFAILED,
		     "call of %s: copy of %llu bytes at device address 0x%llx "
		     "failed: %s gave %d (%s). Is it memory of this device, "
		     "and not of the device heap?",
		     service_name(s), (unsigned long long)size,
		     (unsigned long long)device, entry, r,
		     error_slot()->driver_name);
	return -1;
}

/* Large copies go in pieces, so that other calls of the driver get through. */
static CUresult pieces(struct revoff_device *d, uint64_t to, uint64_t from,
		       char *host, uint64_t size)
{
	CUresult r = 0;
	uint64_t at;

	for (at = 0; at < size && !r; at += REVOFF_COPY_PIECE) {
		uint64_t n = size - at;

		if (n > REVOFF_COPY_PIECE)
			n = REVOFF_COPY_PIECE;
		if (to)
			r = d->drv->cuMemcpyHtoDAsync(to + at, host + at, n,
						      d->copy_stream);
		else
			r = d->drv->cuMemcpyDtoHAsync(host + at, from + at, n,
						      d->copy_stream);
	}
	return r;
}

int service_copy_in(struct service *s, void *to, uint64_t from, uint64_t size,
		    int wait)
{
	CUresult r;

	if (!size)
		return 0;
	r = pieces(s->launch->device, 0, from, to, size);
	if (copied(s, r, "cuMemcpyDtoHAsync", from, size))
		return -1;
	return wait ? service_copy_wait(s) : 0;
}

int service_copy_out(struct service *s, uint64_t to, const void *from,
		     uint64_t size)
{
	if (!size)
		return 0;
	return copied(s, pieces(s->launch->device, to, 0, (char *)from, size),
		      "cuMemcpyHtoDAsync", to, size);
}

int service_copy_wait(struct service *s)
{
	struct revoff_device *d = s->launch->device;

	return copied(s, d->drv->cuStreamSynchronize(d->copy_stream),
		      "cuStreamSynchronize", 0, 0);
}

/* The two copy functions that the patch hands to target_rev. */
void service_dev_to_host(void *to, const void *from, size_t size, void *token)
{
	service_copy_in(token, to, (uint64_t)(uintptr_t)from, size, 1);
}

void service_host_to_dev(void *to, const void *from, size_t size, void *token)
{
	struct service *s = token;

	if (!service_copy_out(s, (uint64_t)(uintptr_t)to, from, size))
		service_copy_wait(s);
}

/* ---- items --------------------------------------------------------------- */

int scratch_reserve(struct scratch *list, uint64_t n)
{
	size_t m = list->mitems ? list->mitems : REVOFF_PACKET_MAPS + 1;
	char *block;

	if (n <= list->mitems)
		return 0;
	while (m < n)
		m *= 2;
	block = malloc(m * (3 * sizeof(uint64_t) + sizeof(uint16_t) + 2) +
		       2 * REVOFF_PORT_WORDS * sizeof(uint64_t));
	if (!block)
		return fail(REVOFF_ENOMEM, "out of host memory");
	free(list->addrs);
	list->addrs = (uint64_t *)block;
	list->sizes = list->addrs + m;
	list->words = list->sizes + m;
	list->values = list->words + m;
	list->kinds = (uint16_t *)(list->values + 2 * REVOFF_PORT_WORDS);
	list->kept = (uint8_t *)(list->kinds + m);
	list->keepable = list->kept + m;
	list->mitems = (unsigned)m;
	return 0;
}

/* Room for the lists of a message with n items, if there may be so many. */
int service_reserve(struct service *s, uint64_t n)
{
	if (n > REVOFF_MAX_MAPNUM) {
		service_fail(s, REVOFF_BADMAP,
			     "call of %s: %llu map items (at most %d)",
			     service_name(s), (unsigned long long)n,
			     REVOFF_MAX_MAPNUM);
		return -1;
	}
	if (scratch_reserve(&s->launch->list, n)) {
		service_fail(s, REVOFF_BADMAP, "out of host memory");
		return -1;
	}
	return 0;
}

void *service_view(const struct service *s, uint64_t address, uint64_t size)
{
	uint64_t at = address - s->area.address;

	if (at < s->area.size && size <= s->area.size - at)
		return s->area.host + at;
	if (s->stream && address & REVOFF_STREAM)
		return stream_view(s->stream, address & ~REVOFF_STREAM, size);
	return NULL;
}

/* Copy one list of the message to scratch: 1 if a copy is under way. */
static int list(struct service *s, void *to, uint64_t from, uint64_t bytes)
{
	const void *view;

	if (!bytes)
		return 0;
	view = service_view(s, from, bytes);
	if (view) {
		memcpy(to, view, bytes);
		return 0;
	}
	return service_copy_in(s, to, from, bytes, 0) ? -1 : 1;
}

/* The three lists of a message, in this launch's scratch memory. */
static int fetch_lists(struct service *s, uint64_t n, uint64_t addrs,
		       uint64_t sizes, uint64_t kinds)
{
	struct revoff_launch *l = s->launch;
	int a, b, c;

	if (service_reserve(s, n))
		return -1;
	a = list(s, l->list.addrs, addrs, n * sizeof(uint64_t));
	b = list(s, l->list.sizes, sizes, n * sizeof(uint64_t));
	c = list(s, l->list.kinds, kinds, n * sizeof(uint16_t));
	if (a < 0 || b < 0 || c < 0) {
		/* The lists are used again: nothing may arrive later. */
		l->device->drv->cuStreamSynchronize(l->device->copy_stream);
		return -1;
	}
	/* Asking the driver costs a microsecond: only if there is a reason. */
	return a | b | c ? service_copy_wait(s) : 0;
}

/* Let the handler's view of the call be this launch's scratch memory. */
void service_prepare(struct service *s, uint64_t n)
{
	struct revoff_launch *l = s->launch;

	memset(l->list.kept, 0, n);
	memset(l->list.keepable, 0, n);
	s->call.nargs = (unsigned)n;
	s->call.words = l->list.words;
	s->call.sizes = l->list.sizes;
	s->call.kinds = l->list.kinds;
	s->call.addresses = l->list.addrs;
	s->call.kept = l->list.kept;
	s->call.keepable = l->list.keepable;
}

/* ---- typed functions ------------------------------------------------------ */

static int bad_item(struct service *s, unsigned i, const char *why)
{
	service_fail(s, REVOFF_BADMAP,
		     "call of %s: argument %u (kind 0x%02x, %llu bytes at "
		     "0x%llx) %s",
		     service_name(s), i, s->launch->list.kinds[i],
		     (unsigned long long)s->launch->list.sizes[i],
		     (unsigned long long)s->launch->list.addrs[i], why);
	return -1;
}

/* An array in device memory: a block of host memory holds it for the call. */
static int array_in(struct service *s, unsigned i, unsigned kind)
{
	struct revoff_launch *l = s->launch;
	void *block = block_alloc(l->device, l->list.sizes[i]);

	if (!block)
		return bad_item(s, i, "does not fit in host memory");
	l->list.words[i] = (uint64_t)(uintptr_t)block;
	l->list.keepable[i] = 1;
	if (kind == REVOFF_MAP_FORCE_ALLOC) {
		memset(block, 0, l->list.sizes[i]);
		return 0;
	}
	/* Also for "from": what the handler leaves alone must come back. */
	return service_copy_in(s, block, l->list.addrs[i], l->list.sizes[i], 0);
}

static int item_in(struct service *s, unsigned i)
{
	struct revoff_launch *l = s->launch;
	unsigned kind = l->list.kinds[i] & REVOFF_KIND_MASK;
	void *view;

	l->list.words[i] = 0;
	if (kind == REVOFF_MAP_FIRSTPRIVATE_INT) {
		l->list.words[i] = l->list.addrs[i];
		return 0;
	}
	if (l->list.sizes[i] > REVOFF_MAX_SIZE)
		return bad_item(s, i, "is larger than any memory");
	if (!l->list.addrs[i])
		return l->list.sizes[i] ? bad_item(s, i, "is NULL") : 0;
	view = service_view(s, l->list.addrs[i], l->list.sizes[i]);
	if (view) {
		l->list.words[i] = (uint64_t)(uintptr_t)view;
		return 0;
	}
	switch (kind) {
	case REVOFF_MAP_FORCE_TO:
	case REVOFF_MAP_FORCE_FROM:
	case REVOFF_MAP_FORCE_TOFROM:
	case REVOFF_MAP_FORCE_ALLOC:
		return array_in(s, i, kind);
	}
	return bad_item(s, i, "has a kind that typed functions do not use");
}

static void typed_back(struct service *s)
{
	struct revoff_launch *l = s->launch;
	unsigned i, sent = 0;

	for (i = 0; i < s->call.nargs && s->status == REVOFF_OK; ++i) {
		unsigned kind = l->list.kinds[i] & REVOFF_KIND_MASK;

		if (!l->list.keepable[i] || (kind != REVOFF_MAP_FORCE_FROM &&
					     kind != REVOFF_MAP_FORCE_TOFROM))
			continue;
		sent += !service_copy_out(s, l->list.addrs[i],
					  (void *)(uintptr_t)l->list.words[i],
					  l->list.sizes[i]);
	}
	/* The answer must not overtake the data. */
	if (sent)
		service_copy_wait(s);
}

/* Lists that came in a message: to scratch, with their data, to the handler. */
static void serve_typed(struct service *s, const struct rev_offload *m)
{
	struct revoff_launch *l = s->launch;
	unsigned i, n = 0;

	if (fetch_lists(s, m->mapnum, m->addrs, m->sizes, m->kinds))
		return;
	service_prepare(s, m->mapnum);
	/* n counts the items whose block has to be freed. */
	while (n < s->call.nargs && s->status == REVOFF_OK)
		item_in(s, n++);
	if (s->status == REVOFF_OK)
		for (i = 0; i < n; ++i)
			if (l->list.keepable[i]) {
				service_copy_wait(s);
				break;
			}
	if (s->status != REVOFF_OK)
		/* A queued copy must not land in memory given back. */
		l->device->drv->cuStreamSynchronize(l->device->copy_stream);
	else
		run_handler(s);
}

/*
 * Words of a port or of a post: by the signature, values up to 8 bytes are the
 * word itself, larger ones lie in the scratch memory of the launch.
 */
void serve_words(struct service *s, const uint64_t *words)
{
	struct revoff_launch *l = s->launch;
	const struct shape *f = &l->image->functions[s->call.index].shape;
	struct scratch *list = &l->list;
	unsigned i, large = f->result > 8;

	service_prepare(s, f->nargs + large);
	for (i = 0; i < f->nargs; ++i) {
		uint64_t word = words[f->at[i]];

		list->sizes[i] = f->size[i];
		list->kinds[i] = f->kind[i];
		list->addrs[i] = word;
		if (f->size[i] > 8) {
			memcpy(list->values + f->at[i], words + f->at[i],
			       f->size[i]);
			word = (uint64_t)(uintptr_t)(list->values + f->at[i]);
		}
		list->words[i] = word;
	}
	if (large) {
		uint64_t *result = list->values + REVOFF_PORT_WORDS;

		memset(result, 0, f->result_words * sizeof(*result));
		list->sizes[i] = f->result;
		list->kinds[i] = f->result_kind;
		list->addrs[i] = 0;
		list->words[i] = (uint64_t)(uintptr_t)result;
	}
	run_handler(s);
}

/* ---- serving -------------------------------------------------------------- */

int launch_given_up(const struct revoff_launch *l)
{
	return l->image->control &&
	       /* [abort load] */
	       __atomic_load_n(&l->image->control->abort, __ATOMIC_RELAXED);
}

int enter_handler(struct revoff_launch *l)
{
	l->outer = innermost;
	innermost = l;
	pthread_mutex_lock(&l->m);
	l->in_handler = 1;
	pthread_mutex_unlock(&l->m);
	return 0;
}

/* 1 if the launch was handed over while its handler ran. */
int leave_handler(struct revoff_launch *l)
{
	int left;

	pthread_mutex_lock(&l->m);
	l->in_handler = 0;
	left = l->left;
	pthread_mutex_unlock(&l->m);
	innermost = l->outer;
	return left;
}

/* To a handler that owes an answer for which nobody waits any more. */
static void call_off(struct service *s, struct revoff_later *later)
{
	int posted = s->call.posted;

	s->call.later = later;
	s->call.posted = -1;
	enter_handler(s->launch);
	s->bound.handler(&s->call, s->bound.user);
	s->left |= leave_handler(s->launch);
	s->call.later = NULL;
	s->call.posted = posted;
}

/*
 * Run the handler, with no lock held.  If the launch was handed over
 * meanwhile, its callers have been told to leave, or been answered: nothing
 * may be answered here.
 */
int run_handler(struct service *s)
{
	struct revoff_launch *l = s->launch;
	int rc;

	if (s->bound.handler) {
		enter_handler(l);
		rc = s->bound.handler(&s->call, s->bound.user);
		/* Its kernel may be gone, and with it the memory it passed. */
		s->left = leave_handler(l);
		if (s->later && rc && (rc != REVOFF_LATER || s->left))
			call_off(s, s->later);
	} else {
		rc = batch_of_one(s);
	}
	if (rc == REVOFF_LATER && s->later && !s->left)
		return REVOFF_LATER;
	if (s->later) {
		later_cancel(s->later);
		s->later = NULL;
	}
	if (s->left)
		return -1;
	if (!rc)
		return 0;
	service_fail(s, REVOFF_HANDLER, "the handler of %s failed",
		     service_name(s));
	return -1;
}

static void serve_known(struct service *s, const struct rev_offload *m)
{
	struct revoff_launch *l = s->launch;
	const struct function *f = &l->image->functions[s->call.index];

	if (launch_given_up(l)) {
		s->status = REVOFF_ABORTED;
		return;
	}
	if (f->kind == REVOFF_FUNCTION_TYPED) {
		serve_typed(s, m);
		return;
	}
	/* [callback load] */
	__atomic_load_n(&l->device->target_rev, __ATOMIC_ACQUIRE)(
		m->fn, m->mapnum, m->addrs, m->sizes, m->kinds, m->dev_num,
		service_dev_to_host, service_host_to_dev, s);
}

/* A service of the index-th function; complains if nobody is bound to it. */
void service_start(struct service *s, struct revoff_launch *l, int index)
{
	const struct function *f = &l->image->functions[index];

	memset(s, 0, sizeof(*s));
	s->launch = l;
	s->call.device = l->device;
	s->call.image = l->image;
	s->call.launch = l;
	s->call.fn = f->fn;
	s->call.index = (unsigned)index;
	if ((unsigned)index < l->nbound)
		s->bound = l->bound[index];
	__atomic_store_n(&l->handler_index, (unsigned)index, __ATOMIC_RELAXED);
	if (f->kind != REVOFF_FUNCTION_TYPED || s->bound.handler ||
	    s->bound.batch)
		return;
	/* Of many at once the first has given the launch up. */
	if (launch_given_up(l))
		s->status = REVOFF_ABORTED;
	else
		service_fail(s, REVOFF_UNBOUND,
			     "kernel %s called %s, which has no handler: bind "
			     "one before run()",
			     l->kernel->name, f->name);
}

/* Serve a message: to the handler, back, and the answer. */
void serve_service(struct service *s, const struct rev_offload *m)
{
	if (s->status == REVOFF_OK)
		serve_known(s, m);
	service_end(s);
}

/*
 * After the handler: its data goes back, its memory is let go, the caller has
 * its answer; or, where the handler owes it, all is kept until then.
 */
void service_end(struct service *s)
{
	struct revoff_launch *l = s->launch;
	const struct function *f = &l->image->functions[s->call.index];
	const uint64_t *result = &s->call.result;
	unsigned i, words = 1;

	if (s->later && s->status == REVOFF_OK && !s->left && !s->call.later) {
		later_keep_service(s);
		return;
	}
	if (f->kind == REVOFF_FUNCTION_TYPED && s->call.nargs) {
		if (s->status == REVOFF_OK && !s->left)
			typed_back(s);
		for (i = 0; i < s->call.nargs; ++i)
			if (l->list.keepable[i] && !l->list.kept[i])
				revoff_block_free(
					(void *)(uintptr_t)l->list.words[i]);
	}
	if (s->from != FROM_POST) {
		__atomic_store_n(&l->calls, l->calls + 1, __ATOMIC_RELAXED);
		if (s->status != REVOFF_OK)
			__atomic_store_n(&l->failed, l->failed + 1,
					 __ATOMIC_RELAXED);
	}
	if (s->from == FROM_MAILBOX)
		l->mailbox_owed = 0;
	if (s->left || s->from == FROM_POST)
		return;
	if (s->from == FROM_MAILBOX) {
		s->rc = mailbox_answer(l->device, s->status, s->call.result,
				       s->payload);
		return;
	}
	/* A large result of words lies in scratch; of a frame, in the frame. */
	if (f->shape.result > 8 && f->shape.in_words) {
		words = f->shape.result_words;
		result = l->list.values + REVOFF_PORT_WORDS;
	}
	ports_reply(l->image->ports, s->port, s->rank, s->lanes, s->seq,
		    s->status, result, words);
}

/*
 * Serve the call that the mailbox holds, known to be of this launch's image.
 * Returns 1, or 0 if nothing may be answered (the launch was handed over
 * while its handler ran), or negative if the device failed.
 */
static int serve_mine(struct revoff_launch *l, int index)
{
	struct revoff_device *d = l->device;
	struct service s;
	const struct rev_offload *call = &d->mailbox.host->call;
	struct revoff_packet *p = &d->mailbox.host->packet;
	struct rev_offload m;
	int rc = mailbox_fetch(d);

	if (rc)
		return rc;
	/*
	 * A private copy: the device cannot change it under our checks.  Not of
	 * fn, which others look at, and not of the lock, which others want.
	 */
	m.fn = l->image->functions[index].fn;
	m.mapnum = call->mapnum;
	m.addrs = call->addrs;
	m.sizes = call->sizes;
	m.kinds = call->kinds;
	m.dev_num = call->dev_num;
	service_start(&s, l, index);
	s.from = FROM_MAILBOX;
	s.area = mailbox_area(d);
	if (l->image->functions[index].kind == REVOFF_FUNCTION_TYPED) {
		memcpy(s.call.block, p->block, sizeof(p->block));
		memcpy(s.call.thread, p->thread, sizeof(p->thread));
		s.payload = p->payload_bytes;
		if (s.payload > REVOFF_PACKET_PAYLOAD)
			s.payload = REVOFF_PACKET_PAYLOAD;
	}
	l->mailbox_owed = 1;
	serve_service(&s, &m);
	if (s.left)
		return 0;
	return s.rc ? s.rc : 1;
}

/*
 * A function of no image with a launch under way.  Whoever gets the lock
 * looks again and answers, so that such a call is answered once.
 */
static int serve_stray(struct revoff_launch *l, uint64_t fn)
{
	static pthread_mutex_t stray = PTHREAD_MUTEX_INITIALIZER;
	struct revoff_device *d = l->device;
	struct revoff_image *image;
	int known = 0, running = 0, index, rc;
	uint64_t now;

	pthread_mutex_lock(&d->lock);
	for (image = d->images; image && !known; image = image->next) {
		if (!image->by_mailbox || image_find_fn(image, fn) < 0)
			continue;
		known = 1;
		running = image->launch != NULL;
	}
	pthread_mutex_unlock(&d->lock);
	if (running)
		return 0;
	if (!known) {
		index = image_adopt(l->image, fn);
		if (index >= 0)
			return serve_mine(l, index);
	}
	if (pthread_mutex_trylock(&stray))
		return 0;
	rc = mailbox_peek(d, &now);
	if (!rc && now == fn) {
		if (!known)
			launch_fail(l, REVOFF_ECALL,
				    "a kernel (perhaps %s) called the unknown "
				    "function 0x%llx: its image was not loaded "
				    "with it in the function table",
				    l->kernel->name, (unsigned long long)fn);
		rc = mailbox_answer(d, known ? REVOFF_ABORTED : REVOFF_UNKNOWN,
				    0, 0);
		if (!rc)
			rc = 1;
	}
	pthread_mutex_unlock(&stray);
	return rc;
}

int serve(struct revoff_launch *l, uint64_t fn)
{
	int index = image_find_fn(l->image, fn);

	return index >= 0 ? serve_mine(l, index) : serve_stray(l, fn);
}

/* ---- target_rev ------------------------------------------------------------ */

REVOFF_API void revoff_target_rev_fail(void *token, const char *text)
{
	struct service *s = token;

	service_fail(s, REVOFF_HANDLER, "%s", text);
}

REVOFF_API struct revoff_call *revoff_target_rev_call(void *token)
{
	return &((struct service *)token)->call;
}
