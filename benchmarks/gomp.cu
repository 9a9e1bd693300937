/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls through libgomp's own entry, as code made by GCC makes them.  The
 * table's name has a $ in it, which NVRTC does not take.
 */
#include <pyrevoff.h>

extern "C" {
__device__ void region(void *)
{
}
#ifdef REVOFF_CPU_DEVICE
__device__ void (*table[1])(void *) asm("$offload_func_table") = { region };
#else
__device__ void (*$offload_func_table[1])(void *) = { region };
#endif

__device__ unsigned long long cell;
__device__ void *addrs[1];
__device__ size_t sizes[1] = { 8 };
__device__ unsigned short kinds[1] = { REVOFF_MAP_FORCE_TOFROM | 3 << 8 };

__global__ void k_gomp(void *fn, int n)
{
	for (int i = 0; i < n; ++i)
		GOMP_target_ext(-2, fn, 0, 0, 0, 0, 0, 0, 0);
}

/* In global memory, as on libgomp's soft stack: the host copies it. */
__global__ void k_gomp8(void *fn, int n)
{
	addrs[0] = &cell;
	for (int i = 0; i < n; ++i)
		GOMP_target_ext(-2, fn, 1, addrs, sizes, kinds, 0, 0, 0);
}
}
