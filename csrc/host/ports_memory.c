/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of ports: what host and device share, and what is the device's
 * own.  Each image that can call has a set, kept for the next image.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define MAX_PORTS    8192u
#define SLOTS	     256u
#define HEADS	     32768u
#define RECORDS	     (1u << 18)
#define CPU_PORTS    256u
#define CPU_SLOTS    32u
#define CPU_HEADS    1024u
#define CPU_RECORDS  8192u
#define WARPS_PER_SM 64u

static size_t line(size_t n)
{
	return (n + 4095) & ~(size_t)4095;
}

/* How much of everything; powers of two. */
static void plan(struct revoff_device *d, struct ports *p)
{
	int cpu = d->platform == REVOFF_PLATFORM_CPU;
	unsigned warps = (unsigned)d->info.multiprocessors * WARPS_PER_SM;

	p->nheads = cpu ? CPU_HEADS : HEADS;
	p->nrecords = cpu ? CPU_RECORDS : RECORDS;
	if (d->options.transport != REVOFF_TRANSPORT_PORTS)
		return;
	p->nslots = cpu ? CPU_SLOTS : SLOTS;
	p->nports = CPU_PORTS;
	while (!cpu && p->nports < MAX_PORTS && p->nports * 2 <= warps)
		p->nports *= 2;
}

/* Lay the shared block out: sizes first (base 0), then addresses. */
static size_t lay_out(struct ports *p, char *base, uint64_t address)
{
	size_t at = 0;

#define PART(host, device, bytes)              \
	do {                                   \
		p->host = (void *)(base + at); \
		p->link.device = address + at; \
		at += line(bytes);             \
	} while (0)
	PART(requests, requests, p->nports * sizeof(*p->requests));
	PART(replies, replies, p->nports * sizeof(*p->replies));
	PART(bells, bells, p->nports);
	PART(slots, slots, (size_t)p->nslots * REVOFF_SLOT_BYTES);
	PART(heads, heads, p->nheads * sizeof(*p->heads));
	PART(records, records, (size_t)p->nrecords * REVOFF_RECORD);
	PART(done, done, sizeof(*p->done));
#undef PART
	return at;
}

static int clear(struct revoff_device *d, struct ports *p)
{
	CUresult r;

	memset(p->bells, 0, p->nports);
	memset(p->requests, 0, p->nports * sizeof(*p->requests));
	memset(p->replies, 0, p->nports * sizeof(*p->replies));
	memset(p->heads, 0, p->nheads * sizeof(*p->heads));
	memset(p->seen, 0, p->nports);
	memset(p->answered, 0, p->nports * sizeof(*p->answered));
	memset(p->owed, 0, p->nports);
	*p->done = 0;
	p->next = 0;
	p->dirty = 0;
	r = d->drv->cuMemsetD8Async(p->own_address, 0, p->own_size,
				    d->copy_stream);
	if (r)
		return device_result(d, r, "cuMemsetD8Async", "ports");
	r = d->drv->cuStreamSynchronize(d->copy_stream);
	return device_result(d, r, "cuStreamSynchronize", "ports");
}

/*
 * A batch goes through megabytes, a page or two for each port: with small
 * pages the walks for their addresses cost more than the data.
 */
#define HUGE ((size_t)2 << 20)
static CUresult shared_map(struct revoff_device *d, struct ports *p,
			   size_t size)
{
	CUresult r = CUDA_ERROR_NOT_SUPPORTED;

	if (d->drv->cuMemHostRegister && d->drv->cuMemHostUnregister) {
		size_t want = (size + HUGE - 1) & ~(HUGE - 1);
		char *at = mmap(NULL, want + HUGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return CUDA_ERROR_OUT_OF_MEMORY;
		p->mapped = at;
		p->mapped_size = want + HUGE;
		p->shared = (void *)(((uintptr_t)at + HUGE - 1) & ~(HUGE - 1));
		/* Only a wish; and where none are left, small ones do. */
		madvise(p->shared, want, MADV_HUGEPAGE);
		/* A child after fork() must not get copies of what we share. */
		madvise(p->mapped, p->mapped_size, MADV_DONTFORK);
		memset(p->shared, 0, want);
		r = d->drv->cuMemHostRegister(
			p->shared, want,
			CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
		if (!r)
			return 0;
		munmap(p->mapped, p->mapped_size);
		p->mapped = NULL;
	}
	p->shared = NULL;
	r = d->drv->cuMemHostAlloc(&p->shared, size,
				   CU_MEMHOSTALLOC_PORTABLE |
					   CU_MEMHOSTALLOC_DEVICEMAP);
	if (r)
		p->shared = NULL;
	return r;
}

static void shared_unmap(struct revoff_device *d, struct ports *p)
{
	if (p->mapped) {
		/* What the driver does not let go of stays where it is. */
		if (!d->drv->cuMemHostUnregister(p->shared))
			munmap(p->mapped, p->mapped_size);
	} else if (p->shared) {
		d->drv->cuMemFreeHost(p->shared);
	}
}

static void destroy(struct revoff_device *d, struct ports *p)
{
	streams_close(p);
	if (p->own_address)
		d->drv->cuMemFree(p->own_address);
	shared_unmap(d, p);
	free(p->seen);
	free(p->answered);
	free(p->owed);
	free(p->rung);
	free(p->found);
	free(p->found_index);
	free(p);
}

static int create(struct revoff_device *d, struct ports *p)
{
	size_t size, states, slots;
	CUdeviceptr address = 0;
	CUresult r;

	plan(d, p);
	size = lay_out(p, NULL, 0);
	p->seen = calloc(p->nports + 1, 1);
	p->owed = calloc(p->nports + 1, 1);
	p->answered = calloc(p->nports + 1, sizeof(*p->answered));
	p->rung = calloc(p->nports + 1, sizeof(*p->rung));
	p->found = calloc(p->nports + 1, sizeof(*p->found));
	p->found_index = calloc(p->nports + 1, sizeof(*p->found_index));
	if (!p->seen || !p->owed || !p->answered || !p->rung || !p->found ||
	    !p->found_index)
		return fail(REVOFF_ENOMEM, "out of host memory");
	r = shared_map(d, p, size);
	if (r)
		return device_result(d, r, "cuMemHostAlloc",
				     "no mapped host memory for ports");
	r = d->drv->cuMemHostGetDevicePointer(&address, p->shared, 0);
	if (r)
		return device_result(d, r, "cuMemHostGetDevicePointer",
				     "ports");
	p->shared_address = address;
	lay_out(p, p->shared, address);
	memset(p->slots, 0, (size_t)p->nslots * REVOFF_SLOT_BYTES);
	memset(p->records, 0, (size_t)p->nrecords * REVOFF_RECORD);
	states = line(p->nports * sizeof(uint64_t));
	slots = line(p->nslots * sizeof(uint32_t));
	p->own_size = states + slots + 256;
	r = d->drv->cuMemAlloc(&address, p->own_size);
	if (r)
		return device_result(d, r, "cuMemAlloc",
				     "no device memory for ports");
	p->own_address = address;
	p->link.states = address;
	p->link.slot_states = address + states;
	/* In lines of their own: all who post use the one, few the other. */
	p->link.tail = address + states + slots;
	p->link.seen = p->link.tail + 128;
	p->link.nports = p->nports;
	p->link.nslots = p->nslots;
	p->link.nheads = p->nheads;
	p->link.nrecords = p->nrecords;
	return clear(d, p);
}

/* Ports for an image, with the links that it gets; context current. */
int ports_take(struct revoff_image *image)
{
	struct revoff_device *d = image->device;
	struct ports *p;
	int rc;

	pthread_mutex_lock(&d->lock);
	p = d->ports;
	if (p)
		d->ports = p->free_next;
	pthread_mutex_unlock(&d->lock);
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return fail(REVOFF_ENOMEM, "out of host memory");
		rc = create(d, p);
		if (rc) {
			struct revoff_error kept = *error_slot();

			destroy(d, p);
			*error_slot() = kept;
			return rc;
		}
	}
	p->free_next = NULL;
	p->last_index = -1;
	p->last_fn = 0;
	image->ports = p;
	return 0;
}

/* Device lock held. */
void ports_give(struct revoff_image *image)
{
	struct revoff_device *d = image->device;
	struct ports *p = image->ports;

	if (!p)
		return;
	image->ports = NULL;
	streams_close(p);
	/* It may have numbers of its own by now; zeros are safe for all. */
	p->dirty = 1;
	p->free_next = d->ports;
	d->ports = p;
}

void ports_close(struct revoff_device *d)
{
	while (d->ports) {
		struct ports *p = d->ports;

		d->ports = p->free_next;
		destroy(d, p);
	}
}

/* Before a launch, when no kernel of the image runs. */
int ports_begin(struct revoff_launch *l)
{
	struct ports *p = l->image->ports;

	if (!p)
		return 0;
	streams_close(p);
	p->nfound = 0;
	return p->dirty ? clear(l->device, p) : 0;
}
