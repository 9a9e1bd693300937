/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: garbage and stale handles of every kind are refused, never
 * followed; calls without a context say so.
 */
#include "cpu_module.h"

static const char source[] =
	"extern \"C\" { __device__ int v; __shared__ int s; }\n"
	"extern \"C\" __global__ void k() { s = 1; }\n"
	"REVOFF_CPU_KERNEL(k)\n"
	"namespace n { __global__ void mangled(float *, int) {} REVOFF_CPU_KERNEL(mangled) }\n";

#define BAD CUDA_ERROR_INVALID_HANDLE

int main(void)
{
	uintptr_t garbage[] = { 8, 0x1234567, (uintptr_t)&garbage, ~7ul };
	CUfunction f, g;
	CUstream s;
	CUcontext c, d;
	CUdeviceptr a;
	size_t size;
	CUmodule m;
	unsigned i;
	int n;

	t_check(D->cuMemAlloc(&a, 8) == CUDA_ERROR_INVALID_CONTEXT);
	t_check(D->cuStreamQuery(NULL) == CUDA_ERROR_INVALID_CONTEXT);
	t_check(D->cuCtxPopCurrent(&c) == CUDA_ERROR_INVALID_CONTEXT);
	t_check(D->cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
	t_ok(D->cuCtxGetCurrent(&c));
	t_check(!c);
	t_check(D->cuDeviceGet(&n, 99) == CUDA_ERROR_INVALID_DEVICE);
	t_check(D->cuInit(1) == CUDA_ERROR_INVALID_VALUE);
	c = t_cpu_open();
	t_ok(D->cuCtxGetCurrent(&d));
	t_check(c == d);
	for (i = 0; i < 4; ++i) {
		void *h = (void *)garbage[i];

		t_check(D->cuCtxPushCurrent(h) == CUDA_ERROR_INVALID_CONTEXT);
		t_check(D->cuModuleUnload(h) == BAD);
		t_check(D->cuModuleGetFunction(&f, h, "k") == BAD);
		t_check(D->cuModuleGetGlobal(&a, &size, h, "v") == BAD);
		t_check(D->cuFuncLoad(h) == BAD);
		t_check(D->cuFuncGetAttribute(&n, 0, h) == BAD);
		t_check(D->cuLaunchKernel(h, 1, 1, 1, 1, 1, 1, 0, NULL, NULL,
					  NULL) == BAD);
		t_check(D->cuStreamQuery(h) == BAD);
		t_check(D->cuStreamSynchronize(h) == BAD);
		t_check(D->cuStreamDestroy(h) == BAD);
		t_check(D->cuLinkDestroy(h) == BAD);
	}
	m = t_cpu_load(source);
	f = t_cpu_kernel(m, "k");
	t_check(f == t_cpu_kernel(m, "k"));
	t_check(D->cuModuleGetFunction(&g, m, "v") == CUDA_ERROR_NOT_FOUND);
	t_check(D->cuModuleGetFunction(&g, m, "nope") == CUDA_ERROR_NOT_FOUND);
	t_ok(D->cuModuleGetFunction(&g, m, "mangled"));
	t_check(t_cpu_kernel(m, "_ZN1n7mangledEPfi") == g);
	t_check(D->cuModuleGetGlobal(&a, &size, m, "k") ==
		CUDA_ERROR_NOT_FOUND);
	t_check(D->cuModuleGetGlobal(&a, &size, m, "s") ==
		CUDA_ERROR_NOT_FOUND);
	t_check(D->cuModuleGetGlobal(&a, &size, m, "printf") ==
		CUDA_ERROR_NOT_FOUND);
	t_ok(D->cuModuleGetGlobal(&a, &size, m, "v"));
	t_check(size == 4);
	t_ok(D->cuMemsetD8Async(a, 1, 4, NULL));
	t_ok(D->cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
				   f));
	t_check(n == 1024);
	t_check(D->cuStreamQuery((CUstream)f) == BAD);
	t_check(D->cuFuncLoad((CUfunction)m) == BAD);
	t_ok(D->cuModuleUnload(m));
	t_check(D->cuModuleUnload(m) == BAD);
	t_check(D->cuFuncLoad(f) == BAD);
	t_check(D->cuMemsetD8Async(a, 1, 4, NULL) == CUDA_ERROR_INVALID_VALUE);
	t_ok(D->cuStreamCreate(&s, 0));
	t_ok(D->cuStreamDestroy(s));
	t_check(D->cuStreamQuery(s) == BAD);
	t_check(D->cuStreamDestroy(s) == BAD);
	t_cpu_close();
	return T_PASS;
}
