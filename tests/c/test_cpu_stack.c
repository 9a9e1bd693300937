/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: PYREVOFF_CPU_STACK gives kernels that recurse deeply the stack
 * that they need.
 */
#include "cpu_module.h"

static const char source[] =
	"__device__ __attribute__((noinline)) int deep(int n) {\n"
	"	volatile char room[600]; room[n % 600] = 1;\n"
	"	return n > 0 ? deep(n - 1) + room[n % 600] : 0;\n"
	"}\n"
	"extern \"C\" __global__ void recurse(int *x) { x[threadIdx.x] = deep(10000); }\n"
	"REVOFF_CPU_KERNEL(recurse)\n";

int main(void)
{
	CUfunction f;
	int i, bytes, *x;
	void *p[] = { &x };

	setenv("PYREVOFF_CPU_STACK", "33554432", 1);
	t_cpu_open();
	f = t_cpu_kernel(t_cpu_load(source), "recurse");
	t_ok(D->cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
				   f));
	t_check(bytes == 33554432);
	x = t_cpu_pinned(8 * sizeof(*x));
	t_ok(t_cpu_run(f, 1, 8, p));
	for (i = 0; i < 8; ++i)
		t_check(x[i] == 10000);
	t_cpu_close();
	return T_PASS;
}
