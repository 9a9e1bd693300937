/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default target_rev: bring the items of a libgomp call to the host, run
 * its handler with host addresses, take them back.  The kinds and what is
 * right for each: docs/protocol.md, "Map kinds".
 *
 * Where GCC 13 to 16 differ from the meaning of a kind, this follows the
 * meaning: firstprivate data of any alignment is copied; declare target
 * variables count as present; a range that is mapped in part is refused; a
 * pointer is set to its target less the bias, at its own address; the
 * device's own pointers are put back before a block is copied back.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* What became of one item. */
struct item {
	uint64_t device; /* start of the device range, as sent */
	uint64_t size;	 /* bytes the host memory holds */
	char *host;	 /* NULL: none */
	char *block;	 /* ours to free, or NULL */
	uint8_t back;	 /* copy to the device afterwards */
	uint8_t present; /* host memory is the user's */
};

/* A device pointer that was replaced by a host pointer for the call. */
struct attached {
	char *at;
	uint64_t device_pointer;
};

struct mapping {
	struct service *s;
	revoff_copy_fn *in, *out;
	void *token;
	struct item *items;
	struct attached *attached;
	unsigned n, nattached;
	int own; /* the copies are ours: queue them, wait once */
	int queued;
	const uint64_t *addrs, *sizes;
	const uint16_t *kinds;
};

/* Their size is a bias. */
static int is_pointer(unsigned kind)
{
	return kind == REVOFF_MAP_POINTER || kind == REVOFF_MAP_ATTACH ||
	       kind == REVOFF_MAP_ALWAYS_POINTER ||
	       kind == REVOFF_MAP_POINTER_ZERO_LEN ||
	       kind == REVOFF_MAP_ATTACH_ZERO_LEN;
}

static unsigned kind_at(const struct mapping *m, unsigned i)
{
	unsigned kind = m->kinds[i] & REVOFF_KIND_MASK;

	/*
	 * The IMPLICIT bits mark a mapping that no clause asked for.  A kind
	 * has a meaning of its own only if both are set on top of a plain one.
	 */
	if ((kind & REVOFF_MAP_IMPLICIT) == REVOFF_MAP_IMPLICIT)
		kind &= ~(unsigned)REVOFF_MAP_IMPLICIT;
	return kind;
}

static int refuse(struct mapping *m, unsigned i, const char *why)
{
	service_fail(m->s, REVOFF_BADMAP,
		     "call of %s: map item %u of %u (kind 0x%02x, %llu bytes "
		     "at device address 0x%llx) %s",
		     service_name(m->s), i, m->n,
		     m->kinds[i] & REVOFF_KIND_MASK,
		     (unsigned long long)m->sizes[i],
		     (unsigned long long)m->addrs[i], why);
	return -1;
}

static int settle(struct mapping *m)
{
	if (m->queued)
		service_copy_wait(m->s);
	m->queued = 0;
	return m->s->status == REVOFF_OK ? 0 : -1;
}

static int bring(struct mapping *m, void *to, uint64_t from, uint64_t size)
{
	if (!size)
		return 0;
	if (m->own) {
		m->queued = 1;
		return service_copy_in(m->s, to, from, size, 0);
	}
	m->in(to, (const void *)(uintptr_t)from, size, m->token);
	return m->s->status == REVOFF_OK ? 0 : -1;
}

static int take(struct mapping *m, uint64_t to, const void *from, uint64_t size)
{
	if (!size)
		return 0;
	if (m->own) {
		m->queued = 1;
		return service_copy_out(m->s, to, from, size);
	}
	m->out((void *)(uintptr_t)to, from, size, m->token);
	return m->s->status == REVOFF_OK ? 0 : -1;
}

/*
 * 1: [address, +size) lies in [start, +length); -1: overlaps in part.  No
 * bytes lie in a range if they could be the start of some: not at its end,
 * where another one may begin.
 */
static int within(uint64_t address, uint64_t size, uint64_t start,
		  uint64_t length)
{
	uint64_t at = address - start;

	if (address >= start && at <= length && size <= length - at &&
	    (at < length || !length))
		return 1;
	return address < start + length && start < address + size ? -1 : 0;
}

/*
 * Host address of a device range, or NULL.  Earlier items of the call come
 * first: they may be temporary copies of what lies in a mapped array.
 */
static char *find(struct mapping *m, unsigned before, uint64_t address,
		  uint64_t size, int *partly, int *present)
{
	struct revoff_device *d = m->s->launch->device;
	struct present *p;
	char *host = NULL;
	unsigned i;

	*partly = *present = 0;
	for (i = before; i-- > 0;) {
		struct item *it = &m->items[i];
		int w;

		if (!it->host || !it->device)
			continue;
		w = within(address, size, it->device, it->size);
		if (w > 0) {
			*present = it->present;
			return it->host + (address - it->device);
		}
		/* A later, smaller item may still hold it: look on. */
		if (w < 0)
			*partly = 1;
	}
	if (*partly)
		return NULL;
	pthread_mutex_lock(&d->lock);
	p = present_find(d, address);
	if (p) {
		if (within(address, size, p->device, p->size) > 0) {
			host = (char *)p->host + (address - p->device);
			*present = 1;
		} else {
			*partly = 1;
		}
	} else {
		*partly = present_begins_in(d, address, size);
	}
	pthread_mutex_unlock(&d->lock);
	return host;
}

static char *block_for(struct mapping *m, unsigned i, uint64_t size)
{
	unsigned log2 = m->kinds[i] >> 8;
	uint64_t align = log2 < 32 ? 1ull << log2 : 0;
	char *block;

	if (size > REVOFF_MAX_SIZE) {
		refuse(m, i, "is larger than any memory");
		return NULL;
	}
	/* Blocks are aligned to 64 bytes; ask for slack beyond that. */
	block = block_alloc(m->s->launch->device,
			    (size ? size : 1) + (align > 64 ? align : 0));
	if (!block) {
		refuse(m, i, "does not fit in host memory");
		return NULL;
	}
	m->items[i].block = block;
	if (align > 64)
		block = (char *)(((uintptr_t)block + align - 1) & ~(align - 1));
	return block;
}

/* FIRSTPRIVATE: always a copy, whatever its alignment. */
static int firstprivate(struct mapping *m, unsigned i)
{
	struct item *it = &m->items[i];

	if (!m->addrs[i])
		return 0;
	it->host = block_for(m, i, m->sizes[i]);
	if (!it->host)
		return -1;
	return bring(m, it->host, m->addrs[i], m->sizes[i]);
}

/* Where item i lies on the host, if it does; a range held in part is refused. */
static int locate(struct mapping *m, unsigned i, int *present)
{
	struct item *it = &m->items[i];
	int partly;

	it->device = m->addrs[i];
	it->size = m->sizes[i];
	it->host = find(m, i, it->device, it->size, &partly, present);
	return partly ? refuse(m, i, "is mapped in part only") : 0;
}

/* alloc, to, from, tofrom and their force, always and present forms. */
static int data(struct mapping *m, unsigned i, unsigned kind, int must_be)
{
	struct item *it = &m->items[i];
	int always = kind & (REVOFF_MAP_FORCE_ALLOC | 0x10);
	unsigned way = kind & REVOFF_MAP_TOFROM;
	int present;

	if (m->sizes[i] > REVOFF_MAX_SIZE)
		return refuse(m, i, "is larger than any memory");
	if (locate(m, i, &present))
		return -1;
	if (it->host && present) {
		it->present = 1;
		if (!always)
			return 0;
		it->back = (way & REVOFF_MAP_FROM) != 0;
		return way & REVOFF_MAP_TO
			       ? bring(m, it->host, it->device, it->size)
			       : 0;
	}
	if (!it->host && must_be)
		return refuse(m, i,
			      "is not present: no mapping of run() holds it");
	if (!it->host) {
		it->host = block_for(m, i, it->size);
		if (!it->host)
			return -1;
		/* The whole block goes back: begin with what is there. */
		if (!way)
			memset(it->host, 0, it->size);
	}
	it->back = (way & REVOFF_MAP_FROM) != 0;
	return way ? bring(m, it->host, it->device, it->size) : 0;
}

/* Zero-length section: an address, if the device range is mapped. */
static int zero_length(struct mapping *m, unsigned i, int make)
{
	struct item *it = &m->items[i];
	int partly, present;

	it->device = m->addrs[i];
	it->host = find(m, i, it->device, 0, &partly, &present);
	it->present = 1;
	if (!it->host && make) {
		it->present = 0;
		it->host = block_for(m, i, 0);
		return it->host ? 0 : -1;
	}
	return 0;
}

/* The members of a struct lie in one block, as the struct itself does. */
static int structure(struct mapping *m, unsigned i)
{
	struct item *it = &m->items[i];
	uint64_t n = m->sizes[i], start, end, k;
	int partly, present;

	if (n > m->n - i - 1)
		return refuse(m, i, "announces more members than follow");
	if (!n)
		return 0;
	start = m->addrs[i + 1];
	end = start;
	for (k = i + 1; k <= i + n; ++k) {
		unsigned kind = kind_at(m, (unsigned)k);
		uint64_t size = is_pointer(kind) ? sizeof(uint64_t)
						 : m->sizes[k];

		if (size > REVOFF_MAX_SIZE || m->addrs[k] > UINT64_MAX - size)
			return refuse(m, (unsigned)k,
				      "is larger than any memory");
		if (m->addrs[k] < start)
			start = m->addrs[k];
		if (m->addrs[k] + size > end)
			end = m->addrs[k] + size;
	}
	/* The struct's own address may lie before its first mapped member. */
	if (m->addrs[i] && m->addrs[i] < start && start - m->addrs[i] < 4096)
		start = m->addrs[i];
	if (end - start > REVOFF_MAX_SIZE)
		return refuse(m, i, "has members that lie too far apart");
	it->device = start;
	it->size = end - start;
	it->host = find(m, i, start, it->size, &partly, &present);
	if (it->host) {
		it->present = (uint8_t)present;
		return 0;
	}
	if (partly)
		return refuse(m, i, "is mapped in part only");
	it->host = block_for(m, i, it->size);
	if (!it->host)
		return -1;
	memset(it->host, 0, it->size);
	return 0;
}

static void set_pointer(struct mapping *m, char *at, uint64_t value)
{
	struct attached *a = &m->attached[m->nattached++];

	a->at = at;
	memcpy(&a->device_pointer, at, sizeof(a->device_pointer));
	memcpy(at, &value, sizeof(value));
}

/*
 * POINTER, ATTACH: let the pointer at addrs[i] point to the host's copy of
 * what item i - 1 mapped.  A pointer in the user's own (present) memory is
 * right already.
 */
static int pointer(struct mapping *m, unsigned i, int zero_len)
{
	struct item *it = &m->items[i];
	struct item *target = i ? &m->items[i - 1] : NULL;
	int partly, present;
	uint64_t value = 0;

	it->device = m->addrs[i];
	it->size = sizeof(uint64_t);
	it->host = find(m, i, it->device, it->size, &partly, &present);
	if (partly)
		return refuse(m, i, "is a pointer that is mapped in part only");
	if (it->host && present) {
		it->present = 1;
		return 0;
	}
	if (!it->host) {
		it->host = block_for(m, i, it->size);
		if (!it->host || bring(m, it->host, it->device, it->size))
			return -1;
	}
	if (target && target->host)
		value = (uint64_t)(uintptr_t)target->host - m->sizes[i] +
			(target->device ? m->addrs[i - 1] - target->device : 0);
	else if (!zero_len && target && m->addrs[i - 1])
		return refuse(m, i, "is a pointer whose target is not mapped");
	/* A queued copy must not land on top of it. */
	if (settle(m))
		return -1;
	set_pointer(m, it->host, value);
	return 0;
}

/*
 * TO_PSET: an array descriptor.  It is copied in, and the pointers in it,
 * which the following POINTER items name, are translated from what the device
 * has there; a NULL stays NULL (not allocated).
 */
static int descriptor(struct mapping *m, unsigned *at)
{
	unsigned i = *at, k;
	struct item *it = &m->items[i];
	int partly, present;

	if (locate(m, i, &present))
		return -1;
	if (it->host && present) {
		it->present = 1;
	} else {
		if (!it->host)
			it->host = block_for(m, i, it->size);
		if (!it->host || bring(m, it->host, it->device, it->size) ||
		    settle(m))
			return -1;
	}
	for (k = i + 1; k < m->n; ++k) {
		unsigned kind = kind_at(m, k);
		uint64_t value, off = m->addrs[k] - it->device;
		char *host;

		if ((kind != REVOFF_MAP_POINTER && kind != REVOFF_MAP_ATTACH) ||
		    it->size < 8 || off > it->size - 8)
			break;
		m->items[k].device = m->addrs[k];
		m->items[k].size = 8;
		m->items[k].host = it->host + off;
		m->items[k].present = it->present;
		*at = k;
		if (it->present)
			continue;
		memcpy(&value, it->host + off, sizeof(value));
		if (!value)
			continue;
		host = find(m, i, value + m->sizes[k], 0, &partly, &present);
		if (!host)
			return refuse(m, k,
				      "points from a descriptor to memory that "
				      "is not mapped");
		set_pointer(m, it->host + off,
			    (uint64_t)(uintptr_t)host - m->sizes[k]);
	}
	return 0;
}

static int map_item(struct mapping *m, unsigned *at)
{
	unsigned i = *at, kind = kind_at(m, i);

	if (kind == REVOFF_MAP_FIRSTPRIVATE_INT ||
	    kind == REVOFF_MAP_FIRSTPRIVATE)
		return 0;
	if (!m->addrs[i] && kind != REVOFF_MAP_STRUCT)
		return 0;
	switch (kind) {
	case REVOFF_MAP_ALLOC:
	case REVOFF_MAP_TO:
	case REVOFF_MAP_FROM:
	case REVOFF_MAP_TOFROM:
	case REVOFF_MAP_FORCE_ALLOC:
	case REVOFF_MAP_FORCE_TO:
	case REVOFF_MAP_FORCE_FROM:
	case REVOFF_MAP_FORCE_TOFROM:
	case REVOFF_MAP_ALWAYS_TO:
	case REVOFF_MAP_ALWAYS_FROM:
	case REVOFF_MAP_ALWAYS_TOFROM:
		return data(m, i, kind, 0);
	case REVOFF_MAP_FORCE_PRESENT:
		return data(m, i, REVOFF_MAP_ALLOC, 1);
	case REVOFF_MAP_ALWAYS_PRESENT_TO:
		return data(m, i, REVOFF_MAP_ALWAYS_TO, 1);
	case REVOFF_MAP_ALWAYS_PRESENT_FROM:
		return data(m, i, REVOFF_MAP_ALWAYS_FROM, 1);
	case REVOFF_MAP_ALWAYS_PRESENT_TOFROM:
		return data(m, i, REVOFF_MAP_ALWAYS_TOFROM, 1);
	case REVOFF_MAP_ZERO_LEN_ARRAY:
		return zero_length(m, i, 1);
	case REVOFF_MAP_DELETE:
	case REVOFF_MAP_RELEASE:
	case REVOFF_MAP_DELETE_ZERO_LEN:
		return zero_length(m, i, 0);
	case REVOFF_MAP_POINTER:
	case REVOFF_MAP_ATTACH:
	case REVOFF_MAP_ALWAYS_POINTER:
		return pointer(m, i, 0);
	case REVOFF_MAP_POINTER_ZERO_LEN:
	case REVOFF_MAP_ATTACH_ZERO_LEN:
		return pointer(m, i, 1);
	case REVOFF_MAP_TO_PSET:
		return descriptor(m, at);
	case REVOFF_MAP_STRUCT:
		return structure(m, i);
	}
	return refuse(m, i, "has a kind that is not supported");
}

static int map_in(struct mapping *m)
{
	unsigned i;

	for (i = 0; i < m->n; ++i)
		if (kind_at(m, i) == REVOFF_MAP_FIRSTPRIVATE &&
		    firstprivate(m, i))
			return -1;
	for (i = 0; i < m->n; ++i)
		if (map_item(m, &i))
			return -1;
	return settle(m);
}

static void map_back(struct mapping *m)
{
	unsigned i;

	while (m->nattached) {
		struct attached *a = &m->attached[--m->nattached];

		memcpy(a->at, &a->device_pointer, sizeof(a->device_pointer));
	}
	for (i = 0; i < m->n; ++i)
		if (m->items[i].back &&
		    take(m, m->items[i].device, m->items[i].host,
			 m->items[i].size))
			break;
	settle(m);
}

static void hand_over(struct mapping *m, struct revoff_launch *l)
{
	unsigned i;

	for (i = 0; i < m->n; ++i) {
		const struct item *it = &m->items[i];

		if (kind_at(m, i) == REVOFF_MAP_FIRSTPRIVATE_INT)
			l->list.words[i] = m->addrs[i];
		else
			l->list.words[i] = (uint64_t)(uintptr_t)it->host;
	}
}

static int fetch(struct mapping *m, void *to, uint64_t from, size_t size)
{
	const void *view = service_view(m->s, from, size);

	if (!view)
		return bring(m, to, from, size);
	memcpy(to, view, size);
	return 0;
}

REVOFF_API void revoff_target_rev(uint64_t fn_ptr, uint64_t mapnum,
				  uint64_t devaddrs_ptr, uint64_t sizes_ptr,
				  uint64_t kinds_ptr, int dev_num,
				  revoff_copy_fn *dev_to_host,
				  revoff_copy_fn *host_to_dev, void *token)
{
	struct service *s = token;
	struct revoff_launch *l = s->launch;
	struct mapping m = { .s = s,
			     .in = dev_to_host,
			     .out = host_to_dev,
			     .token = token,
			     .own = dev_to_host == service_dev_to_host &&
				    host_to_dev == service_host_to_dev,
			     .n = (unsigned)mapnum };
	unsigned i;

	(void)dev_num;
	if (!s->bound.handler) {
		service_fail(s, REVOFF_UNBOUND,
			     "kernel %s called %s (0x%llx), which has no "
			     "handler: bind one before run()",
			     l->kernel->name, service_name(s),
			     (unsigned long long)fn_ptr);
		return;
	}
	if (service_reserve(s, mapnum))
		return;
	m.items = calloc(mapnum + 1, sizeof(*m.items));
	m.attached = calloc(mapnum + 1, sizeof(*m.attached));
	if (!m.items || !m.attached) {
		service_fail(s, REVOFF_BADMAP, "out of host memory");
		goto out;
	}
	/* One wait for the three. */
	if (fetch(&m, l->list.addrs, devaddrs_ptr, mapnum * 8) ||
	    fetch(&m, l->list.sizes, sizes_ptr, mapnum * 8) ||
	    fetch(&m, l->list.kinds, kinds_ptr, mapnum * 2) || settle(&m)) {
		settle(&m);
		goto out;
	}
	m.addrs = l->list.addrs;
	m.sizes = l->list.sizes;
	m.kinds = l->list.kinds;
	service_prepare(s, mapnum);
	if (!map_in(&m)) {
		hand_over(&m, l);
		if (run_handler(s) == 0)
			map_back(&m);
	}
	/* After a failure too: a copy must not land in memory given back. */
	settle(&m);
	for (i = 0; i < mapnum; ++i)
		revoff_block_free(m.items[i].block);
out:
	free(m.items);
	free(m.attached);
}
