/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel with the three parameters that libgomp's launches have. */
#include <pyrevoff.h>

struct vars {
	unsigned *blocks, *threads, *bad;
};

extern "C" {
__device__ void region()
{
}
extern void *offload_func_table[] __asm__("$offload_func_table");
__attribute__((used)) void *offload_func_table[] = { 0, (void *)region, 0 };
__device__ int variable[6] = { 1 };

/* Each warp owns `size` bytes of the stacks. */
__global__ void entry(vars *v, char *stacks, unsigned long long size)
{
	unsigned warp = blockIdx.x * blockDim.y + threadIdx.y;

	if (threadIdx.x == 0) {
		char *mine = stacks + warp * size;

		for (unsigned long long i = 0; i < size; i += 1024)
			mine[i] = (char)warp;
		mine[size - 1] = (char)warp;
		for (unsigned long long i = 0; i < size; i += 1024)
			if (mine[i] != (char)warp)
				atomicAdd(v->bad, 1u);
		atomicAdd(v->threads, 1u);
		if (threadIdx.y == 0)
			atomicAdd(v->blocks, 1u);
	}
}
__global__ void calls(vars *v, char *stacks, unsigned long long size)
{
	(void)stacks;
	(void)size;
	void *addrs[1] = { v->bad };
	size_t sizes[1] = { 4 };
	unsigned short kinds[1] = { 0x203 };
	GOMP_target_ext(-2, (void *)region, 1, addrs, sizes, kinds, 0, 0, 0);
}
}
