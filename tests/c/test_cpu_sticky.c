/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: __trap(), assert() and an exception end the launch with the
 * driver's error; the context then gives that error everywhere until it has
 * been released and retained; other streams' kernels end too.
 */
#include "cpu_module.h"

static const char source[] =
	"#include <cassert>\n"
	"#include <stdexcept>\n"
	"extern \"C\" __global__ void trap() { if (threadIdx.x == 5) __trap(); __syncthreads(); }\n"
	"REVOFF_CPU_KERNEL(trap)\n"
	"extern \"C\" __global__ void claim() { assert(threadIdx.x != 7); }\n"
	"REVOFF_CPU_KERNEL(claim)\n"
	"extern \"C\" __global__ void throws() { throw std::runtime_error(\"x\"); }\n"
	"REVOFF_CPU_KERNEL(throws)\n"
	"extern \"C\" __global__ void waits(unsigned *p) {\n"
	"	while (!__atomic_load_n(p, __ATOMIC_ACQUIRE)) __nanosleep(100);\n"
	"} REVOFF_CPU_KERNEL(waits)\n";

int main(void)
{
	const char *names[] = { "trap", "claim", "throws" };
	const int codes[] = { CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ASSERT,
			      CUDA_ERROR_LAUNCH_FAILED };
	const char *words[] = { "thread (5,0,0): __trap()",
				"assertion \"threadIdx.x != 7\" failed",
				"exception" };
	unsigned i;

	for (i = 0; i < 3; ++i) {
		CUstream other, late;
		const char *text;
		CUdeviceptr a;
		CUfunction k;
		unsigned *flag;
		CUmodule m;
		void *p[] = { &flag };

		t_cpu_open();
		m = t_cpu_load(source);
		k = t_cpu_kernel(m, "waits");
		flag = t_cpu_pinned(sizeof(*flag));
		t_ok(D->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
		t_ok(D->cuLaunchKernel(k, 1, 1, 1, 64, 1, 1, 0, other, p,
				       NULL));
		t_check(D->cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
		t_check(t_cpu_run(t_cpu_kernel(m, names[i]), 5, 64, NULL) ==
			codes[i]);
		t_ok(D->cuGetErrorString(codes[i], &text));
		if (!strstr(text, words[i]))
			fprintf(stderr, "%s\n", text);
		t_check(strstr(text, words[i]));
		t_check(D->cuStreamQuery(other) == codes[i]);
		t_check(D->cuStreamQuery(NULL) == codes[i]);
		t_check(D->cuMemAlloc(&a, 8) == codes[i]);
		t_check(D->cuStreamCreate(&late, 0) == codes[i]);
		t_check(D->cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, NULL, p,
					  NULL) == codes[i]);
		t_cpu_close();
		t_cpu_open();
		t_ok(D->cuMemAlloc(&a, 8));
		t_check(D->cuStreamQuery(other) == CUDA_ERROR_INVALID_HANDLE);
		t_cpu_close();
	}
	return T_PASS;
}
