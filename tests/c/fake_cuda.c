/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 for tests: the CPU device under the names that the CUDA
 * driver exports.  The environment makes it worse than any driver is:
 *
 *   FAKE_CUDA_INIT=n           cuInit gives n
 *   FAKE_CUDA_MAJOR=n          compute capability n.0
 *   FAKE_CUDA_NO_MAPPING=1     no mapped host memory
 *   FAKE_CUDA_NO_CONCURRENT=1  no concurrent managed access
 *   FAKE_CUDA_DIRTY=1          fresh memory is not zero
 *   FAKE_CUDA_TORN=1           copies take the last word first, and their time
 *
 * Compiled with -DSYMBOL=absent, it lacks one.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

#define EXPORT __attribute__((visibility("default")))

static int asked(const char *what)
{
	const char *value = getenv(what);

	return value ? atoi(value) : 0;
}

static const struct revoff_driver *inner(void)
{
	return revoff_cpu_driver();
}

static CUresult fake_init(unsigned flags)
{
	int code = asked("FAKE_CUDA_INIT");

	return code ? code : inner()->cuInit(flags);
}

static CUresult fake_attribute(int *value, int attribute, CUdevice device)
{
	CUresult r = inner()->cuDeviceGetAttribute(value, attribute, device);
	int major = asked("FAKE_CUDA_MAJOR");

	if (r)
		return r;
	if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
		*value = major ? major : 9;
	if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
		*value = 0;
	if (attribute == CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY &&
	    asked("FAKE_CUDA_NO_MAPPING"))
		*value = 0;
	if (attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS &&
	    asked("FAKE_CUDA_NO_CONCURRENT"))
		*value = 0;
	return r;
}

static CUresult soiled(CUresult r, void *memory, size_t size)
{
	if (!r && asked("FAKE_CUDA_DIRTY"))
		memset(memory, 0xa5, size);
	return r;
}

static CUresult fake_alloc(CUdeviceptr *address, size_t size)
{
	CUresult r = inner()->cuMemAlloc(address, size);

	return soiled(r, (void *)(uintptr_t)*address, size);
}

static CUresult fake_host_alloc(void **pointer, size_t size, unsigned flags)
{
	CUresult r = inner()->cuMemHostAlloc(pointer, size, flags);

	return soiled(r, *pointer, size);
}

static CUresult fake_managed(CUdeviceptr *address, size_t size, unsigned flags)
{
	CUresult r = inner()->cuMemAllocManaged(address, size, flags);

	return soiled(r, (void *)(uintptr_t)*address, size);
}

/* What one copy of memory may see that is written meanwhile. */
static CUresult fake_from_device(void *to, CUdeviceptr from, size_t size,
				 CUstream stream)
{
	struct timespec t = { 0, 30000 };
	const uint64_t *words = (const uint64_t *)(uintptr_t)from;
	size_t i;

	if (!asked("FAKE_CUDA_TORN") || size % 8 || from % 8)
		return inner()->cuMemcpyDtoHAsync(to, from, size, stream);
	for (i = size / 8; i-- > 0;) {
		uint64_t word;

		if (!i && size > 8)
			nanosleep(&t, NULL);
		word = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
		memcpy((char *)to + i * 8, &word, 8);
	}
	return CUDA_SUCCESS;
}

/* Made once; several threads may do so, to the same effect. */
static const struct revoff_driver *table(void)
{
	static struct revoff_driver t;
	static int made;

	if (__atomic_load_n(&made, __ATOMIC_ACQUIRE))
		return &t;
	t = *inner();
	t.cuInit = fake_init;
	t.cuDeviceGetAttribute = fake_attribute;
	t.cuMemAlloc = fake_alloc;
	t.cuMemHostAlloc = fake_host_alloc;
	t.cuMemAllocManaged = fake_managed;
	t.cuMemcpyDtoHAsync = fake_from_device;
	__atomic_store_n(&made, 1, __ATOMIC_RELEASE);
	return &t;
}

#define REVOFF_DRIVER(name, symbol, need, parameters, arguments) \
	EXPORT CUresult symbol parameters;                       \
	EXPORT CUresult symbol parameters                        \
	{                                                        \
		return table()->name arguments;                  \
	}
#include "driver.def"
#undef REVOFF_DRIVER
