/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a kernel sees the launch's geometry in every thread, once each,
 * and the parameters as they were when cuLaunchKernel was called.
 */
#include "cpu_module.h"

static const char source[] =
	"struct s { char c; double d; short e; };\n"
	"extern \"C\" __global__ void k(unsigned *seen, s v, char c, float4 f) {\n"
	"	unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);\n"
	"	unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
	"	unsigned n = blockDim.x * blockDim.y * blockDim.z;\n"
	"	if (v.c == 1 && v.d == 2.5 && v.e == 3 && c == 4 && f.w == 5)\n"
	"		atomicAdd(&seen[b * n + t], 1u);\n"
	"} REVOFF_CPU_KERNEL(k)\n";

struct s {
	char c;
	double d;
	short e;
};

int main(void)
{
	const unsigned shapes[][6] = {
		{ 1, 1, 1, 1, 1, 1 },	 { 7, 5, 3, 2, 3, 5 },
		{ 2, 1, 1, 1024, 1, 1 }, { 1, 3, 1, 1, 16, 64 },
		{ 40, 1, 1, 33, 1, 1 },
	};
	_Alignas(16) float f[4] = { 0, 0, 0, 5 };
	unsigned i, j, total, *seen;
	size_t offset, size;
	CUfunction k;
	CUmodule m;

	t_cpu_open();
	m = t_cpu_load(source);
	k = t_cpu_kernel(m, "k");
	t_ok(D->cuFuncLoad(k));
	t_ok(D->cuFuncGetParamInfo(k, 0, &offset, &size));
	t_check(offset == 0 && size == 8);
	t_ok(D->cuFuncGetParamInfo(k, 1, &offset, &size));
	t_check(offset == 8 && size == 24);
	t_ok(D->cuFuncGetParamInfo(k, 2, &offset, &size));
	t_check(offset == 32 && size == 1);
	t_ok(D->cuFuncGetParamInfo(k, 3, &offset, &size));
	t_check(offset == 48 && size == 16);
	t_check(D->cuFuncGetParamInfo(k, 4, &offset, &size) ==
		CUDA_ERROR_INVALID_VALUE);
	seen = t_cpu_pinned(4096 * sizeof(*seen));
	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i) {
		const unsigned *g = shapes[i];
		struct s v = { 1, 2.5, 3 };
		char c = 4;
		void *p[] = { &seen, &v, &c, f };

		total = g[0] * g[1] * g[2] * g[3] * g[4] * g[5];
		memset(seen, 0, 4096 * sizeof(*seen));
		t_ok(D->cuLaunchKernel(k, g[0], g[1], g[2], g[3], g[4], g[5], 0,
				       NULL, p, NULL));
		memset(&v, 0, sizeof(v));
		c = 0;
		t_ok(D->cuStreamSynchronize(NULL));
		for (j = 0; j < 4096; ++j)
			t_check(seen[j] == (j < total));
	}
	t_check(D->cuLaunchKernel(k, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) ==
		CUDA_ERROR_INVALID_VALUE);
	t_check(D->cuLaunchKernel(k, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL,
				  NULL) == CUDA_ERROR_INVALID_VALUE);
	t_check(D->cuLaunchKernel(k, 1, 1, 1, 64, 64, 1, 0, NULL, NULL, NULL) ==
		CUDA_ERROR_INVALID_VALUE);
	t_check(D->cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 227 * 1024 + 1, NULL,
				  NULL, NULL) == CUDA_ERROR_INVALID_VALUE);
	t_check(D->cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) ==
		CUDA_ERROR_INVALID_VALUE);
	t_ok(D->cuModuleUnload(m));
	t_cpu_close();
	return T_PASS;
}
