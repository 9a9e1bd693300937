/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: copies and fills take only ranges that were allocated; frees
 * take only their start, once; impossible sizes are refused; more memory than
 * is touched can be allocated.
 */
#include "cpu_module.h"

#define REFUSED(call) t_check((call) == CUDA_ERROR_INVALID_VALUE)

int main(void)
{
	const size_t big = (size_t)5 << 30;
	CUdeviceptr a, b, c, pinned;
	char bytes[256] = "hello", back[256] = "", local[64];
	void *host;

	t_cpu_open();
	t_ok(D->cuMemAlloc(&a, 100));
	t_check(a % 256 == 0);
	t_ok(D->cuMemcpyHtoDAsync(a, bytes, 100, NULL));
	t_ok(D->cuMemcpyDtoHAsync(back, a, 100, NULL));
	t_check(!strcmp(back, "hello"));
	t_ok(D->cuMemsetD8Async(a + 1, 'x', 99, NULL));
	t_ok(D->cuMemcpyDtoHAsync(back, a + 1, 99, NULL));
	t_check(back[0] == 'x' && back[98] == 'x');
	t_ok(D->cuMemcpyHtoDAsync(a + 100, bytes, 0, NULL));
	REFUSED(D->cuMemcpyHtoDAsync(a, bytes, 101, NULL));
	REFUSED(D->cuMemcpyDtoHAsync(back, a + 50, 51, NULL));
	REFUSED(D->cuMemcpyDtoHAsync(back, a + 100, 1, NULL));
	REFUSED(D->cuMemcpyDtoHAsync(back, a - 1, 2, NULL));
	REFUSED(D->cuMemcpyDtoHAsync(back, 0x1000, 8, NULL));
	REFUSED(D->cuMemcpyDtoHAsync(back, 0, 8, NULL));
	REFUSED(D->cuMemcpyDtoHAsync(back, a, (size_t)1 << 63, NULL));
	REFUSED(D->cuMemcpyDtoHAsync(back, a, SIZE_MAX, NULL));
	REFUSED(D->cuMemcpyDtoHAsync(back, a + 8, SIZE_MAX - 4, NULL));
	REFUSED(D->cuMemcpyHtoDAsync((uintptr_t)local, bytes, 8, NULL));
	REFUSED(D->cuMemsetD8Async(a, 0, 101, NULL));
	REFUSED(D->cuMemcpyHtoDAsync(a, NULL, 8, NULL));

	REFUSED(D->cuMemAlloc(&b, 0));
	t_check(D->cuMemAlloc(&b, (size_t)1 << 63) == CUDA_ERROR_OUT_OF_MEMORY);
	t_check(D->cuMemAlloc(&b, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
	t_check(D->cuMemHostAlloc(&host, SIZE_MAX - 100, 0) ==
		CUDA_ERROR_OUT_OF_MEMORY);
	t_ok(D->cuMemAlloc(&b, big));
	t_ok(D->cuMemcpyHtoDAsync(b + big - 6, bytes, 6, NULL));
	t_ok(D->cuMemcpyDtoHAsync(back, b + big - 6, 6, NULL));
	t_check(!strcmp(back, "hello"));
	REFUSED(D->cuMemcpyHtoDAsync(b + big - 5, bytes, 6, NULL));
	t_ok(D->cuMemFree(b));

	REFUSED(D->cuMemFree(a + 8));
	t_ok(D->cuMemFree(a));
	REFUSED(D->cuMemFree(a));
	REFUSED(D->cuMemcpyDtoHAsync(back, a, 8, NULL));
	t_ok(D->cuMemFree(0));

	t_ok(D->cuMemHostAlloc(&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	t_ok(D->cuMemHostGetDevicePointer(&pinned, host, 0));
	t_check(pinned == (uintptr_t)host);
	t_ok(D->cuMemcpyHtoDAsync(pinned, bytes, 64, NULL));
	REFUSED(D->cuMemFree(pinned));
	t_ok(D->cuMemFreeHost(host));
	REFUSED(D->cuMemFreeHost(host));
	REFUSED(D->cuMemHostGetDevicePointer(&pinned, local, 0));

	t_ok(D->cuMemAllocManaged(&c, 64, CU_MEM_ATTACH_GLOBAL));
	memset((void *)(uintptr_t)c, 1, 64);
	t_ok(D->cuMemcpyDtoHAsync(back, c, 64, NULL));
	t_check(back[63] == 1);
	t_ok(D->cuMemFree(c));

	t_ok(D->cuMemHostRegister(local, sizeof(local), 0));
	t_check(D->cuMemHostRegister(local + 8, 8, 0));
	t_ok(D->cuMemcpyHtoDAsync((uintptr_t)local, bytes, 8, NULL));
	t_ok(D->cuMemHostUnregister(local));
	t_check(D->cuMemHostUnregister(local));
	REFUSED(D->cuMemcpyHtoDAsync((uintptr_t)local, bytes, 8, NULL));
	t_cpu_close();
	return T_PASS;
}
