/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a stack is used again far more often than a sanitizer's tables
 * are long, by threads that end at once and by threads that were switched.
 */
#include "cpu_module.h"

static const char source[] = "extern \"C\" __global__ void k(unsigned *n) {\n"
			     "	if (threadIdx.x % 2) __nanosleep(1);\n"
			     "	atomicAdd(n, 1u);\n"
			     "} REVOFF_CPU_KERNEL(k)\n";

int main(void)
{
	unsigned i, *n;
	CUfunction k;
	void *p[] = { &n };

	setenv("PYREVOFF_CPU_WORKERS", "2", 1);
	t_cpu_open();
	k = t_cpu_kernel(t_cpu_load(source), "k");
	n = t_cpu_pinned(sizeof(*n));
	for (i = 0; i < 4; ++i)
		t_ok(t_cpu_run(k, 100000, 2, p));
	t_check(*n == 800000);
	t_cpu_close();
	return T_PASS;
}
