/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: threads that have ended do not count at a barrier, whenever they
 * end, and the counting barriers give their results to every thread.
 */
#include "cpu_module.h"

static const char source[] =
	"extern \"C\" __global__ void k(unsigned *bad) {\n"
	"	__shared__ unsigned n;\n"
	"	unsigned t = threadIdx.x, size = blockDim.x;\n"
	"	if (t % 5 == 4) return;\n"
	"	unsigned left = size - size / 5;\n"
	"	if (t == 0) n = 0;\n"
	"	__syncthreads();\n"
	"	atomicAdd(&n, 1u);\n"
	"	__syncthreads();\n"
	"	if (n != left) atomicAdd(bad, 1u);\n"
	"	if (__syncthreads_count(t < 3) != 3) atomicAdd(bad, 1u);\n"
	"	if (__syncthreads_and(t != 1)) atomicAdd(bad, 1u);\n"
	"	if (!__syncthreads_and(1)) atomicAdd(bad, 1u);\n"
	"	if (!__syncthreads_or(t == 2) || __syncthreads_or(0)) atomicAdd(bad, 1u);\n"
	"	for (unsigned i = 0; i < t % 7; ++i) __nanosleep(0);\n"
	"	if (t >= size / 2) return; /* while the others wait */\n"
	"	for (int i = 0; i < 20; ++i) {\n"
	"		if (t == 0) n = i;\n"
	"		__syncthreads();\n"
	"		if (n != (unsigned)i) atomicAdd(bad, 1u);\n"
	"		__syncthreads();\n"
	"	}\n"
	"} REVOFF_CPU_KERNEL(k)\n";

int main(void)
{
	const unsigned sizes[] = { 10, 40, 100, 1020 };
	unsigned i, *bad;
	CUfunction k;

	t_cpu_open();
	k = t_cpu_kernel(t_cpu_load(source), "k");
	bad = t_cpu_pinned(sizeof(*bad));
	for (i = 0; i < 4; ++i) {
		void *p[] = { &bad };

		t_ok(t_cpu_run(k, 9, sizes[i], p));
		t_check(!*bad);
	}
	t_cpu_close();
	return T_PASS;
}
