/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device, pinned and managed memory.  All of it is plain host memory, but the
 * device's copies take only what was allocated as such, so that a program that
 * mixes addresses up fails here as it would on a GPU.
 */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct range {
	uintptr_t start;
	size_t size;
	enum cpu_memory kind;
	CUcontext context;
};

/* Sorted by start; ranges do not overlap. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct range *ranges;
static size_t nranges, capacity;

/* Larger allocations are mapped: pages that nobody touches cost nothing. */
#define MAP_FROM  ((size_t)1 << 20)
#define ALIGNMENT 256

/* Number of ranges that start at or before address. */
static size_t before(uintptr_t address)
{
	size_t low = 0, high = nranges;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ranges[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The range that holds all of [address, address + size), or NULL. */
static struct range *find(uintptr_t address, size_t size)
{
	size_t at = before(address);
	struct range *r;

	if (!at)
		return NULL;
	r = &ranges[at - 1];
	if (address - r->start >= r->size ||
	    size > r->size - (address - r->start))
		return NULL;
	return r;
}

int cpu_range_add(uintptr_t start, size_t size, enum cpu_memory kind,
		  CUcontext context)
{
	size_t at;

	pthread_rwlock_wrlock(&lock);
	at = before(start);
	if ((at && start - ranges[at - 1].start < ranges[at - 1].size) ||
	    (at < nranges && ranges[at].start - start < size)) {
		pthread_rwlock_unlock(&lock);
		return CPU_ERROR_ALREADY_REGISTERED;
	}
	if (nranges == capacity) {
		size_t more = capacity ? capacity * 2 : 64;
		struct range *grown = realloc(ranges, more * sizeof(*grown));

		if (!grown) {
			pthread_rwlock_unlock(&lock);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		ranges = grown;
		capacity = more;
	}
	memmove(&ranges[at + 1], &ranges[at], (nranges - at) * sizeof(*ranges));
	ranges[at] = (struct range){ start, size, kind, context };
	++nranges;
	pthread_rwlock_unlock(&lock);
	return CUDA_SUCCESS;
}

/* Under the write lock. */
static void take_out(struct range *r, struct range *copy)
{
	size_t at = (size_t)(r - ranges);

	*copy = *r;
	--nranges;
	memmove(&ranges[at], &ranges[at + 1], (nranges - at) * sizeof(*ranges));
}

/* Forget the range that starts at start if its kind is one of kinds. */
static int remove_kind(uintptr_t start, unsigned kinds, struct range *copy)
{
	struct range *r;
	int found = 0;

	pthread_rwlock_wrlock(&lock);
	r = find(start, 0);
	if (r && r->start == start && kinds >> r->kind & 1) {
		take_out(r, copy);
		found = 1;
	}
	pthread_rwlock_unlock(&lock);
	return found;
}

void cpu_range_remove(uintptr_t start)
{
	struct range copy;

	remove_kind(start, ~0u, &copy);
}

CUresult cpu_range_check(uintptr_t address, size_t size, int write)
{
	struct range *r;
	int good;

	pthread_rwlock_rdlock(&lock);
	r = find(address, size);
	good = r && !(write && r->kind == CPU_READONLY_IMAGE);
	pthread_rwlock_unlock(&lock);
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cpu_range_is_pinned(uintptr_t address, size_t size)
{
	struct range *r;
	int pinned;

	pthread_rwlock_rdlock(&lock);
	r = find(address, size);
	pinned = r && (r->kind == CPU_HOST_MEMORY ||
		       r->kind == CPU_REGISTERED_MEMORY ||
		       r->kind == CPU_MANAGED_MEMORY);
	pthread_rwlock_unlock(&lock);
	return pinned;
}

/*
 * Memory ends where an unmapped page begins, and another lies before it, so
 * that a kernel that runs past its array faults instead of writing over what
 * belongs to the process.  AddressSanitizer does that better, to the byte, for
 * memory of malloc's.
 */
#ifdef __SANITIZE_ADDRESS__
#define GUARDED_FROM MAP_FROM
#else
#define GUARDED_FROM 1
#endif
#define PAGE 4096ul

static size_t pages_of(size_t size)
{
	return (size + PAGE - 1) & ~(PAGE - 1);
}

static void *map_guarded(size_t size)
{
	size_t kept = (size + ALIGNMENT - 1) & ~((size_t)ALIGNMENT - 1);
	size_t inner = pages_of(kept);
	char *p;

	if (size > SIZE_MAX / 2)
		return NULL;
	p = mmap(NULL, inner + 2 * PAGE, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p + PAGE, inner, PROT_READ | PROT_WRITE)) {
		munmap(p, inner + 2 * PAGE);
		return NULL;
	}
	return p + PAGE + (inner - kept);
}

static void release(const struct range *r)
{
	uintptr_t first = r->start & ~(PAGE - 1);

	if (r->kind > CPU_MANAGED_MEMORY)
		return;
	if (r->size >= GUARDED_FROM)
		munmap((void *)(first - PAGE),
		       pages_of(r->start - first + r->size) + 2 * PAGE);
	else
		free((void *)r->start);
}

static CUresult allocate(void **pointer, size_t size, enum cpu_memory kind)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct range r = { .size = size, .kind = kind };
	void *p;

	if (result)
		return result;
	if (!pointer || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size >= GUARDED_FROM) {
		p = map_guarded(size);
		if (!p)
			return CUDA_ERROR_OUT_OF_MEMORY;
	} else if (posix_memalign(&p, ALIGNMENT, size)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r.start = (uintptr_t)p;
	result = cpu_range_add(r.start, size, kind, context);
	if (result) {
		release(&r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pointer = p;
	return CUDA_SUCCESS;
}

static CUresult deallocate(uintptr_t start, unsigned kinds)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct range r;

	if (result)
		return result;
	if (!remove_kind(start, kinds, &r))
		return CUDA_ERROR_INVALID_VALUE;
	release(&r);
	return CUDA_SUCCESS;
}

void cpu_memory_reset(CUcontext context)
{
	size_t i, kept = 0;

	pthread_rwlock_wrlock(&lock);
	for (i = 0; i < nranges; ++i) {
		if (ranges[i].context == context)
			release(&ranges[i]);
		else
			ranges[kept++] = ranges[i];
	}
	nranges = kept;
	if (!nranges) {
		free(ranges);
		ranges = NULL;
		capacity = 0;
	}
	pthread_rwlock_unlock(&lock);
}

CUresult cpu_cuMemAlloc(CUdeviceptr *address, size_t size)
{
	void *p = NULL;
	CUresult result =
		allocate(address ? &p : NULL, size, CPU_DEVICE_MEMORY);

	if (!result)
		*address = (uintptr_t)p;
	return result;
}

CUresult cpu_cuMemAllocManaged(CUdeviceptr *address, size_t size,
			       unsigned flags)
{
	void *p = NULL;
	CUresult result;

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != 2 /* attach to host */)
		return CUDA_ERROR_INVALID_VALUE;
	result = allocate(address ? &p : NULL, size, CPU_MANAGED_MEMORY);
	if (!result)
		*address = (uintptr_t)p;
	return result;
}

CUresult cpu_cuMemFree(CUdeviceptr address)
{
	if (!address)
		return CUDA_SUCCESS;
	return deallocate((uintptr_t)address,
			  1u << CPU_DEVICE_MEMORY | 1u << CPU_MANAGED_MEMORY);
}

CUresult cpu_cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
	if (flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	return allocate(pointer, size, CPU_HOST_MEMORY);
}

CUresult cpu_cuMemFreeHost(void *pointer)
{
	return deallocate((uintptr_t)pointer, 1u << CPU_HOST_MEMORY);
}

CUresult cpu_cuMemHostGetDevicePointer(CUdeviceptr *address, void *pointer,
				       unsigned flags)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);

	if (result)
		return result;
	if (!address || flags || !cpu_range_is_pinned((uintptr_t)pointer, 0))
		return CUDA_ERROR_INVALID_VALUE;
	*address = (uintptr_t)pointer;
	return CUDA_SUCCESS;
}

CUresult cpu_cuMemHostRegister(void *pointer, size_t size, unsigned flags)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);

	if (result)
		return result;
	if (!pointer || !size || flags & ~15u ||
	    size > UINTPTR_MAX - (uintptr_t)pointer)
		return CUDA_ERROR_INVALID_VALUE;
	return cpu_range_add((uintptr_t)pointer, size, CPU_REGISTERED_MEMORY,
			     context);
}

CUresult cpu_cuMemHostUnregister(void *pointer)
{
	CUresult result =
		deallocate((uintptr_t)pointer, 1u << CPU_REGISTERED_MEMORY);

	return result == CUDA_ERROR_INVALID_VALUE ? CPU_ERROR_NOT_REGISTERED
						  : result;
}
