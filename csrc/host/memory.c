/* SPDX-License-Identifier: Apache-2.0 */
/* Staging blocks, device memory, and OpenMP's present table. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

/*
 * Staging blocks: host memory for the arrays of a call.  Two sizes lie in an
 * arena that is registered with the driver at open, so that copies run at full
 * speed and serving allocates nothing; what exceeds them comes from malloc.
 * A handler may keep a block, even beyond its device: the arena is our own
 * memory, only registered, and goes when its last block has come back.
 */
#define SMALL  (64u << 10)
#define LARGE  (2u << 20)
#define NSMALL 16
#define NLARGE 3
#define HEADER 64
#define MAGIC  0x6b636f6c62766572ull

struct block {
	uint64_t magic;
	struct pool *pool; /* NULL: malloc */
	struct block *next;
	void *base; /* what free() gets */
	int large;
};
_Static_assert(sizeof(struct block) <= HEADER, "a block's header is 64 bytes");

struct pool {
	pthread_mutex_t lock;
	char *arena;
	size_t size;
	struct block *small, *large;
	unsigned out;
	int registered;
	int closed;
};

static struct block *carve(struct pool *p, char **at, size_t bytes, int large)
{
	struct block *b = (struct block *)*at;

	b->magic = MAGIC;
	b->pool = p;
	b->large = large;
	*at += HEADER + bytes;
	return b;
}

int pool_create(struct revoff_device *device)
{
	struct pool *p = calloc(1, sizeof(*p));
	char *at;
	int i;

	if (!p)
		return fail(REVOFF_ENOMEM, "out of host memory");
	p->size = NSMALL * (SMALL + HEADER) + NLARGE * (LARGE + HEADER);
	p->size = (p->size + 4095) & ~(size_t)4095;
	p->arena = mmap(NULL, p->size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->arena == MAP_FAILED) {
		int rc = fail(REVOFF_ENOMEM, "no %zu bytes for staging",
			      p->size);

		free(p);
		return rc;
	}
	pthread_mutex_init(&p->lock, NULL);
	/* Without it everything works, copies are only slower. */
	if (device->drv->cuMemHostRegister &&
	    device->drv->cuMemHostUnregister &&
	    !device->drv->cuMemHostRegister(p->arena, p->size,
					    CU_MEMHOSTALLOC_PORTABLE))
		p->registered = 1;
	at = p->arena;
	for (i = 0; i < NLARGE; ++i) {
		struct block *b = carve(p, &at, LARGE, 1);

		b->next = p->large;
		p->large = b;
	}
	for (i = 0; i < NSMALL; ++i) {
		struct block *b = carve(p, &at, SMALL, 0);

		b->next = p->small;
		p->small = b;
	}
	device->pool = p;
	return 0;
}

static void pool_free(struct pool *p)
{
	munmap(p->arena, p->size);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void pool_close(struct revoff_device *device)
{
	struct pool *p = device->pool;
	unsigned out;

	if (!p)
		return;
	/* Memory that the driver does not let go of must stay where it is. */
	if (p->registered && device->drv->cuMemHostUnregister(p->arena)) {
		pthread_mutex_lock(&p->lock);
		p->out++;
		pthread_mutex_unlock(&p->lock);
	}
	pthread_mutex_lock(&p->lock);
	p->closed = 1;
	out = p->out;
	pthread_mutex_unlock(&p->lock);
	if (!out)
		pool_free(p);
	device->pool = NULL;
}

void *block_alloc(struct revoff_device *device, size_t size)
{
	struct pool *p = device->pool;
	struct block *b = NULL;
	char *base;

	if (size <= LARGE) {
		pthread_mutex_lock(&p->lock);
		if (size <= SMALL && p->small) {
			b = p->small;
			p->small = b->next;
		} else if (p->large) {
			b = p->large;
			p->large = b->next;
		}
		if (b)
			p->out++;
		pthread_mutex_unlock(&p->lock);
		if (b)
			return (char *)b + HEADER;
	}
	base = NULL;
	if (size > SIZE_MAX - 2 * HEADER ||
	    posix_memalign((void **)&base, HEADER, size + HEADER))
		return NULL;
	b = (struct block *)base;
	b->magic = MAGIC;
	b->pool = NULL;
	b->base = base;
	return base + HEADER;
}

REVOFF_API void revoff_block_free(void *memory)
{
	struct block *b;
	struct pool *p;
	int last;

	if (!memory)
		return;
	b = (struct block *)((char *)memory - HEADER);
	if (b->magic != MAGIC)
		return;
	p = b->pool;
	if (!p) {
		b->magic = 0;
		free(b->base);
		return;
	}
	pthread_mutex_lock(&p->lock);
	if (b->large) {
		b->next = p->large;
		p->large = b;
	} else {
		b->next = p->small;
		p->small = b;
	}
	last = --p->out == 0 && p->closed;
	pthread_mutex_unlock(&p->lock);
	if (last)
		pool_free(p);
}

/*
 * Device memory.  cuMemFree waits for running kernels, so memory is kept for
 * the next request, and given back only while nothing runs.
 */
#define CACHE_BYTES (256u << 20)

static int cache_put(struct revoff_device *d, uint64_t address, size_t size)
{
	if (d->ncache == d->mcache) {
		unsigned m = d->mcache ? 2 * d->mcache : 16;
		struct cached *c = realloc(d->cache, m * sizeof(*c));

		if (!c)
			return -1;
		d->cache = c;
		d->mcache = m;
	}
	d->cache[d->ncache].address = address;
	d->cache[d->ncache++].size = size;
	d->cache_bytes += size;
	return 0;
}

static void cache_trim(struct revoff_device *d, size_t keep)
{
	while (d->ncache && d->cache_bytes > keep) {
		d->ncache--;
		d->cache_bytes -= d->cache[d->ncache].size;
		d->drv->cuMemFree(d->cache[d->ncache].address);
	}
}

/* What is handed out, so that revoff_free needs no size. */
struct owned {
	uint64_t address;
	size_t size;
	struct owned *next;
	struct revoff_device *device;
};
#define BUCKETS 1024
static struct owned *owners[BUCKETS];
static pthread_mutex_t owners_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned bucket(uint64_t address)
{
	return (unsigned)(address >> 9) % BUCKETS;
}

static int remember(struct revoff_device *d, uint64_t address, size_t size)
{
	struct owned *o = malloc(sizeof(*o));

	if (!o)
		return -1;
	o->address = address;
	o->size = size;
	o->device = d;
	pthread_mutex_lock(&owners_lock);
	o->next = owners[bucket(address)];
	owners[bucket(address)] = o;
	pthread_mutex_unlock(&owners_lock);
	return 0;
}

/* Take the record out; -1 if there is none. */
static int size_of(struct revoff_device *d, uint64_t address, size_t *size)
{
	struct owned **at, *o = NULL;

	pthread_mutex_lock(&owners_lock);
	for (at = &owners[bucket(address)]; *at; at = &(*at)->next) {
		if ((*at)->address == address && (*at)->device == d) {
			o = *at;
			*at = o->next;
			break;
		}
	}
	pthread_mutex_unlock(&owners_lock);
	if (!o)
		return -1;
	*size = o->size;
	free(o);
	return 0;
}

REVOFF_API int revoff_alloc(struct revoff_device *device, size_t size,
			    uint64_t *address)
{
	size_t rounded = (size + 511) & ~(size_t)511;
	CUdeviceptr p = 0;
	unsigned i, best = 0;
	int found = 0, rc;
	CUresult r;

	*address = 0;
	if (!size)
		return 0;
	if (size > REVOFF_MAX_SIZE)
		return fail(REVOFF_ENOMEM,
			    "%zu bytes of device memory: no "
			    "device has that much",
			    size);
	rc = device_enter(device, 0, "device memory");
	if (rc)
		return rc;
	pthread_mutex_lock(&device->lock);
	for (i = 0; i < device->ncache; ++i) {
		size_t s = device->cache[i].size;

		if (s >= rounded && s / 2 <= rounded &&
		    (!found || s < device->cache[best].size)) {
			best = i;
			found = 1;
		}
	}
	if (found) {
		p = device->cache[best].address;
		rounded = device->cache[best].size;
		device->cache_bytes -= rounded;
		device->cache[best] = device->cache[--device->ncache];
	}
	pthread_mutex_unlock(&device->lock);
	if (!found) {
		r = device->drv->cuMemAlloc(&p, rounded);
		if (r == CUDA_ERROR_OUT_OF_MEMORY && device->ncache) {
			pthread_mutex_lock(&device->lock);
			if (!device->nlaunches)
				cache_trim(device, 0);
			pthread_mutex_unlock(&device->lock);
			r = device->drv->cuMemAlloc(&p, rounded);
		}
		rc = device_result(device, r, "cuMemAlloc", "no device memory");
	}
	if (!rc && remember(device, p, rounded)) {
		device->drv->cuMemFree(p);
		rc = fail(REVOFF_ENOMEM, "out of host memory");
	}
	device_leave(device);
	if (!rc)
		*address = p;
	return rc;
}

REVOFF_API int revoff_free(struct revoff_device *device, uint64_t address)
{
	size_t size;
	int rc;

	if (!address)
		return 0;
	rc = device_enter(device, 0, "free");
	if (rc)
		return rc;
	if (size_of(device, address, &size)) {
		device_leave(device);
		return fail(REVOFF_EINVAL,
			    "0x%llx is not device memory of pyrevoff, or was "
			    "freed already",
			    (unsigned long long)address);
	}
	pthread_mutex_lock(&device->lock);
	if (cache_put(device, address, size) && !device->nlaunches)
		device->drv->cuMemFree(address);
	if (!device->nlaunches)
		cache_trim(device, CACHE_BYTES);
	pthread_mutex_unlock(&device->lock);
	device_leave(device);
	return 0;
}

void memory_close(struct revoff_device *device)
{
	unsigned i;

	cache_trim(device, 0);
	pthread_mutex_lock(&owners_lock);
	for (i = 0; i < BUCKETS; ++i) {
		struct owned **at = &owners[i];

		while (*at) {
			struct owned *o = *at;

			if (o->device != device) {
				at = &o->next;
				continue;
			}
			*at = o->next;
			device->drv->cuMemFree(o->address);
			free(o);
		}
	}
	pthread_mutex_unlock(&owners_lock);
}

/* Copies of users: in pieces, on a stream of their own. */
static int copy_pieces(struct revoff_device *d, uint64_t to_device,
		       uint64_t from_device, char *host, size_t size)
{
	const char *entry = "";
	CUresult r = 0;
	size_t at;

	for (at = 0; at < size && !r; at += REVOFF_COPY_PIECE) {
		size_t n = size - at;

		if (n > REVOFF_COPY_PIECE)
			n = REVOFF_COPY_PIECE;
		entry = to_device ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync";
		if (to_device)
			r = d->drv->cuMemcpyHtoDAsync(to_device + at, host + at,
						      n, d->map_stream);
		else
			r = d->drv->cuMemcpyDtoHAsync(
				host + at, from_device + at, n, d->map_stream);
		if (!r) {
			entry = "cuStreamSynchronize";
			r = d->drv->cuStreamSynchronize(d->map_stream);
		}
	}
	return device_result(d, r, entry, "copy");
}

static int copy_checked(struct revoff_device *d, uint64_t to_device,
			uint64_t from_device, void *host, size_t size)
{
	int rc;

	if (!size)
		return 0;
	if (size > REVOFF_MAX_SIZE || !host || !(to_device | from_device))
		return fail(REVOFF_EINVAL,
			    "copy of %zu bytes between host %p and device "
			    "0x%llx",
			    size, host,
			    (unsigned long long)(to_device | from_device));
	rc = device_enter(d, 0, "copy");
	if (rc)
		return rc;
	rc = copy_pieces(d, to_device, from_device, host, size);
	device_leave(d);
	return rc;
}

REVOFF_API int revoff_copy_to_device(struct revoff_device *device, uint64_t to,
				     const void *from, size_t size)
{
	return copy_checked(device, to, 0, (void *)from, size);
}

REVOFF_API int revoff_copy_from_device(struct revoff_device *device, void *to,
				       uint64_t from, size_t size)
{
	return copy_checked(device, 0, from, to, size);
}

/*
 * The present table: sorted by device address, so that a reverse call finds an
 * item by bisection.  The few look-ups by host address walk it.
 */
static unsigned lower_bound(struct revoff_device *d, uint64_t address)
{
	unsigned lo = 0, hi = d->npresent;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (d->present[mid].device <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo; /* first entry that starts after address */
}

struct present *present_find(struct revoff_device *device, uint64_t address)
{
	unsigned at = lower_bound(device, address);
	struct present *p;

	if (!at)
		return NULL;
	p = &device->present[at - 1];
	return address - p->device < p->size ||
			       (!p->size && address == p->device)
		       ? p
		       : NULL;
}

int present_begins_in(struct revoff_device *device, uint64_t address,
		      uint64_t size)
{
	unsigned at = lower_bound(device, address);

	return at < device->npresent &&
	       device->present[at].device - address < size;
}

static int present_insert(struct revoff_device *d, const struct present *p)
{
	unsigned at;

	if (d->npresent == d->mpresent) {
		unsigned m = d->mpresent ? 2 * d->mpresent : 16;
		struct present *t = realloc(d->present, m * sizeof(*t));

		if (!t)
			return fail(REVOFF_ENOMEM, "out of host memory");
		d->present = t;
		d->mpresent = m;
	}
	at = lower_bound(d, p->device);
	memmove(d->present + at + 1, d->present + at,
		(d->npresent - at) * sizeof(*p));
	d->present[at] = *p;
	d->npresent++;
	return 0;
}

static void present_remove(struct revoff_device *d, struct present *p)
{
	unsigned at = (unsigned)(p - d->present);

	d->npresent--;
	memmove(p, p + 1, (d->npresent - at) * sizeof(*p));
}

/* 1: holds it wholly; -1: overlaps in part; 0: apart. */
static int holds(const struct present *p, uintptr_t host, size_t size)
{
	if (host >= p->host && size <= p->size &&
	    host - p->host <= p->size - size)
		return 1;
	return host < p->host + p->size && p->host < host + size ? -1 : 0;
}

static struct present *find_host(struct revoff_device *d, uintptr_t host,
				 size_t size, int *partly)
{
	unsigned i;

	*partly = 0;
	for (i = 0; i < d->npresent; ++i) {
		int h = holds(&d->present[i], host, size);

		if (h > 0)
			return &d->present[i];
		if (h < 0)
			*partly = 1;
	}
	return NULL;
}

REVOFF_API int revoff_map_enter(struct revoff_device *device, void *host,
				size_t size, int kind, uint64_t *address)
{
	struct present p = { .host = (uintptr_t)host,
			     .size = size,
			     .count = 1 };
	struct present *found;
	int partly, rc;

	*address = 0;
	if (!size)
		return 0;
	if (!host || kind < REVOFF_MAP_ALLOC || kind > REVOFF_MAP_TOFROM)
		return fail(REVOFF_EINVAL,
			    "map of %zu bytes at %p with kind 0x%x", size, host,
			    kind);
	pthread_mutex_lock(&device->lock);
	found = find_host(device, (uintptr_t)host, size, &partly);
	if (found) {
		found->count++;
		*address = found->device + ((uintptr_t)host - found->host);
	}
	pthread_mutex_unlock(&device->lock);
	if (found)
		return 0;
	if (partly)
		return fail(REVOFF_EINVAL,
			    "%zu bytes at %p overlap a mapping in part: map "
			    "the whole array once",
			    size, host);
	rc = revoff_alloc(device, size, &p.device);
	if (!rc && (kind & REVOFF_MAP_TO))
		rc = revoff_copy_to_device(device, p.device, host, size);
	if (!rc) {
		pthread_mutex_lock(&device->lock);
		rc = present_insert(device, &p);
		pthread_mutex_unlock(&device->lock);
	}
	if (rc) {
		struct revoff_error kept = *error_slot();

		revoff_free(device, p.device);
		*error_slot() = kept;
		return rc;
	}
	*address = p.device;
	return 0;
}

REVOFF_API int revoff_map_exit(struct revoff_device *device, void *host,
			       size_t size, int kind)
{
	struct present gone = { 0 }, *found;
	int partly, rc = 0, freed;

	if (!size)
		return 0;
	pthread_mutex_lock(&device->lock);
	found = find_host(device, (uintptr_t)host, size, &partly);
	if (!found || found->associated) {
		pthread_mutex_unlock(&device->lock);
		return fail(REVOFF_EINVAL, "%zu bytes at %p are not mapped",
			    size, host);
	}
	if (--found->count == 0) {
		gone = *found;
		present_remove(device, found);
	}
	pthread_mutex_unlock(&device->lock);
	if (!gone.device)
		return 0;
	if (kind & REVOFF_MAP_FROM)
		rc = revoff_copy_from_device(
			device, host,
			gone.device + ((uintptr_t)host - gone.host), size);
	if (rc) {
		struct revoff_error kept = *error_slot();

		revoff_free(device, gone.device);
		*error_slot() = kept;
		return rc;
	}
	freed = revoff_free(device, gone.device);
	return freed;
}

REVOFF_API int revoff_map_associate(struct revoff_device *device, void *host,
				    uint64_t address, size_t size)
{
	struct present p = { .device = address,
			     .host = (uintptr_t)host,
			     .size = size,
			     .count = 1,
			     .associated = 1 };
	int partly, rc;

	if (!host || !address || !size)
		return fail(REVOFF_EINVAL,
			    "associate %zu bytes at %p with device 0x%llx",
			    size, host, (unsigned long long)address);
	pthread_mutex_lock(&device->lock);
	if (find_host(device, (uintptr_t)host, size, &partly) || partly)
		rc = fail(REVOFF_EINVAL, "%zu bytes at %p are mapped already",
			  size, host);
	else
		rc = present_insert(device, &p);
	pthread_mutex_unlock(&device->lock);
	return rc;
}

REVOFF_API int revoff_map_disassociate(struct revoff_device *device, void *host)
{
	int rc = 0;
	unsigned i;

	pthread_mutex_lock(&device->lock);
	for (i = 0; i < device->npresent; ++i)
		if (device->present[i].host == (uintptr_t)host &&
		    device->present[i].associated)
			break;
	if (i == device->npresent)
		rc = fail(REVOFF_EINVAL, "%p is not associated", host);
	else
		present_remove(device, &device->present[i]);
	pthread_mutex_unlock(&device->lock);
	return rc;
}
