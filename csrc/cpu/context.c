/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, primary contexts, each thread's context stack, and handles. */
#include "cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct CUctx_st contexts[CPU_MAX_DEVICES] = {
	[0 ... CPU_MAX_DEVICES - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER },
};

#define STACK_DEPTH 32 /* thread-local memory is scarce in a library */
static __thread CUcontext stack[STACK_DEPTH];
static __thread unsigned depth;

/* Threads do not survive a fork; a child is refused, as CUDA refuses it. */
static _Atomic(int) forked;

static void in_child(void)
{
	atomic_store(&forked, 1);
}

static void register_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

void cpu_watch_forks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_fork);
}

size_t cpu_env(const char *name, size_t otherwise, size_t low, size_t high)
{
	const char *text = getenv(name);
	unsigned long long value;
	char *end;

	if (!text || !*text)
		return otherwise;
	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || *end || end == text || strchr(text, '-'))
		return otherwise;
	return value < low ? low : value > high ? high : (size_t)value;
}

static int device_count(void)
{
	return (int)cpu_env("PYREVOFF_CPU_DEVICES", 1, 1, CPU_MAX_DEVICES);
}

/* At least two, so that blocks do run at the same time everywhere. */
unsigned cpu_workers(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	n = n < 2 ? 2 : n > 4 ? 4 : n;
	return (unsigned)cpu_env("PYREVOFF_CPU_WORKERS", (size_t)n, 1,
				 CPU_MAX_WORKERS);
}

static int is_device(CUdevice device)
{
	return device >= 0 && device < device_count();
}

static int is_context(CUcontext context)
{
	uintptr_t at = (uintptr_t)context - (uintptr_t)contexts;

	return at < sizeof(contexts) && at % sizeof(contexts[0]) == 0 &&
	       atomic_load(&context->alive);
}

CUresult cpu_enter(CUcontext *context)
{
	CUcontext current = depth ? stack[depth - 1] : NULL;

	if (atomic_load_explicit(&forked, memory_order_relaxed))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!current || !atomic_load(&current->alive))
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = current;
	return atomic_load(&current->failed);
}

CUresult cpu_cuDeviceGetCount(int *count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = device_count();
	return CUDA_SUCCESS;
}

CUresult cpu_cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cpu_cuDeviceGetName(char *name, int size, CUdevice device)
{
	if (!name || size < 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)size, "CPU device (%u workers)", cpu_workers());
	return CUDA_SUCCESS;
}

CUresult cpu_cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case 2: /* max block x */
	case 3: /* max block y */
		*value = CPU_MAX_THREADS;
		break;
	case 4: /* max block z */
		*value = 64;
		break;
	case 5: /* max grid x */
		*value = 0x7fffffff;
		break;
	case 6: /* max grid y */
	case 7: /* max grid z */
		*value = 65535;
		break;
	case 8:	 /* shared memory per block */
	case 97: /* the same after opting in */
		*value = CPU_DYNAMIC_SHARED;
		break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		*value = REVOFF_CPU_WARP;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = (int)cpu_workers();
		break;
	case 31: /* concurrent kernels */
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
		*value = 1;
		break;
	/*
	 * A kernel could read any host address, but it should not: the same
	 * program would fail on most GPUs.
	 */
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = 0;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult cpu_cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = pages > 0 ? (size_t)pages * (size_t)page : 0;
	return CUDA_SUCCESS;
}

CUresult cpu_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUcontext c;

	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (atomic_load(&forked))
		return CUDA_ERROR_NOT_INITIALIZED;
	c = &contexts[device];
	pthread_mutex_lock(&c->lock);
	if (c->retained++ == 0) {
		c->ordinal = device;
		atomic_store(&c->failed, 0);
		atomic_store(&c->alive, 1);
	}
	pthread_mutex_unlock(&c->lock);
	*context = c;
	return CUDA_SUCCESS;
}

/*
 * The last release ends everything of the context: kernels at their next
 * wait, then streams, modules and memory.
 */
CUresult cpu_cuDevicePrimaryCtxRelease(CUdevice device)
{
	CUresult result = CUDA_SUCCESS;
	CUcontext c;

	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (atomic_load(&forked))
		return CUDA_ERROR_NOT_INITIALIZED;
	c = &contexts[device];
	pthread_mutex_lock(&c->lock);
	if (c->retained == 0) {
		result = CUDA_ERROR_INVALID_CONTEXT;
	} else if (--c->retained == 0) {
		atomic_store(&c->alive, 0);
		atomic_store(&c->dying, 1);
		cpu_streams_reset(c);
		cpu_module_reset(c);
		cpu_memory_reset(c);
		atomic_store(&c->dying, 0);
	}
	pthread_mutex_unlock(&c->lock);
	return result;
}

CUresult cpu_cuCtxPushCurrent(CUcontext context)
{
	if (!is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth == STACK_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult cpu_cuCtxPopCurrent(CUcontext *context)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	--depth;
	if (context)
		*context = stack[depth];
	return CUDA_SUCCESS;
}

CUresult cpu_cuCtxGetCurrent(CUcontext *context)
{
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = depth ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

/* ---- handles ------------------------------------------------------------- */

/*
 * A handle is the address of a slot in one reserved range, so any bit pattern
 * can be checked without touching foreign memory.  Slots are reused oldest
 * first: a stale handle stays invalid as long as that can be had.
 */
struct slot {
	_Atomic(int) kind;
	_Atomic(void *) object;
	struct slot *next;
};
#define NSLOTS ((size_t)1 << 20)

static pthread_mutex_t slot_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct slot *) slots;
static size_t used;
static struct slot *oldest, **newest = &oldest;
static size_t nfree;

void *cpu_handle_new(enum cpu_kind kind, void *object)
{
	struct slot *s = NULL, *base;

	pthread_mutex_lock(&slot_lock);
	base = atomic_load(&slots);
	if (!base) {
		base = mmap(NULL, NSLOTS * sizeof(*s), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (base == MAP_FAILED)
			base = NULL;
		atomic_store(&slots, base);
	}
	if (base && (nfree >= 4096 || used == NSLOTS) && oldest) {
		s = oldest;
		oldest = s->next;
		if (!oldest)
			newest = &oldest;
		--nfree;
	} else if (base && used < NSLOTS) {
		s = &base[used++];
	}
	if (s) {
		atomic_store(&s->object, object);
		atomic_store(&s->kind, kind);
	}
	pthread_mutex_unlock(&slot_lock);
	return s;
}

void cpu_handle_drop(void *handle)
{
	struct slot *s = handle;

	pthread_mutex_lock(&slot_lock);
	atomic_store(&s->kind, CPU_FREE);
	s->next = NULL;
	*newest = s;
	newest = &s->next;
	++nfree;
	pthread_mutex_unlock(&slot_lock);
}

void *cpu_handle_object(const void *handle, enum cpu_kind kind)
{
	struct slot *base, *s = (struct slot *)(uintptr_t)handle;
	uintptr_t at;

	base = atomic_load_explicit(&slots, memory_order_acquire);
	at = (uintptr_t)handle - (uintptr_t)base;
	if (!base || at >= NSLOTS * sizeof(*s) || at % sizeof(*s) ||
	    atomic_load_explicit(&s->kind, memory_order_acquire) != (int)kind)
		return NULL;
	return atomic_load_explicit(&s->object, memory_order_acquire);
}
