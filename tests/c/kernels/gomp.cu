/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as code made for libgomp makes them, from lists that the host wrote. */
#include <pyrevoff.h>

#ifndef TABLE_ENTRIES
#define TABLE_ENTRIES 0, (void *)region, (void *)region2
#endif

struct step {
	int device;
	int pad;
	void *fn;
	size_t mapnum;
	void **addrs;
	size_t *sizes;
	unsigned short *kinds;
};

extern "C" {
__device__ void region()
{
}
__device__ void region2()
{
}
/* libgomp's table: 0 for a kernel. */
extern void *offload_func_table[] __asm__("$offload_func_table");
__attribute__((used)) void *offload_func_table[] = { TABLE_ENTRIES };

__device__ int counter[4] = { 1, 2, 3, 4 };

__global__ void steps(const step *s, int n)
{
	for (int i = 0; i < n; ++i)
		GOMP_target_ext(s[i].device, s[i].fn, s[i].mapnum, s[i].addrs,
				s[i].sizes, s[i].kinds, 0, 0, 0);
}

/* All threads of a grid make the same call. */
__global__ void all(const step *s)
{
	GOMP_target_ext(s->device, s->fn, s->mapnum, s->addrs, s->sizes,
			s->kinds, 0, 0, 0);
}

__global__ void bump(int by)
{
	for (int i = 0; i < 4; ++i)
		counter[i] += by;
}
}
