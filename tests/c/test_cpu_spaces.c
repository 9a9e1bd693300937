/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: the kernel can tell global, shared and local memory apart;
 * static and dynamic shared memory belong to one block; copies reach neither
 * shared nor local memory.
 */
#include "cpu_module.h"

static const char source[] =
	"__device__ int g; __constant__ int c[3];\n"
	"extern \"C\" __global__ void k(unsigned *bad, int *heap, void **leak, unsigned n) {\n"
	"	__shared__ unsigned s[100];\n"
	"	unsigned *d = revoff_cpu_dynamic_shared<unsigned>();\n"
	"	unsigned here = blockIdx.x * 7 + 1;\n"
	"	if (__isGlobal(&here) || !__isLocal(&here) || __isShared(&here)) atomicAdd(bad, 1u);\n"
	"	if (__isGlobal(s) || !__isShared(s) || __isLocal(s + 99)) atomicAdd(bad, 1u);\n"
	"	if (__isGlobal(d) || !__isShared(d + n - 1)) atomicAdd(bad, 1u);\n"
	"	if (!__isGlobal(heap) || !__isGlobal(&g) || !revoff_cpu_is_global(c) || __isShared(heap)) atomicAdd(bad, 1u);\n"
	"	for (unsigned i = threadIdx.x; i < n; i += blockDim.x) d[i] = here + i;\n"
	"	if (threadIdx.x < 100) s[threadIdx.x] = here;\n"
	"	__syncthreads();\n"
	"	for (int i = 0; i < 50; ++i) __nanosleep(0);\n"
	"	for (unsigned i = threadIdx.x; i < n; i += blockDim.x) if (d[n - 1 - i] != here + n - 1 - i) atomicAdd(bad, 1u);\n"
	"	if (s[99 - threadIdx.x % 100] != here) atomicAdd(bad, 1u);\n"
	"	if (blockIdx.x == 0 && threadIdx.x == 0) { leak[0] = &here; leak[1] = s; leak[2] = d; }\n"
	"} REVOFF_CPU_KERNEL(k)\n";

int main(void)
{
	unsigned *bad, n = 227 * 1024 / 4;
	void **leak, *p[] = { &bad, NULL, &leak, &n };
	CUdeviceptr heap;
	char bytes[8];
	CUfunction k;
	int i;

	t_cpu_open();
	k = t_cpu_kernel(t_cpu_load(source), "k");
	bad = t_cpu_pinned(sizeof(*bad));
	leak = t_cpu_pinned(3 * sizeof(*leak));
	t_ok(D->cuMemAlloc(&heap, 64));
	p[1] = &heap;
	t_ok(D->cuLaunchKernel(k, 20, 1, 1, 128, 1, 1, n * 4, NULL, p, NULL));
	t_ok(D->cuStreamSynchronize(NULL));
	t_check(!*bad);
	for (i = 0; i < 3; ++i) {
		t_check(leak[i]);
		t_check(D->cuMemcpyDtoHAsync(bytes, (uintptr_t)leak[i], 8,
					     NULL) == CUDA_ERROR_INVALID_VALUE);
	}
	t_cpu_close();
	return T_PASS;
}
