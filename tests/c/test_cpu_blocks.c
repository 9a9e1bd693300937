/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: as many blocks as workers run at the same time, and a grid far
 * over that runs to its end, each thread once, quickly.
 */
#include "cpu_module.h"

static const char source[] =
	"extern \"C\" __global__ void meet(unsigned *n) {\n"
	"	atomicAdd(n, 1u);\n"
	"	while (__atomic_load_n(n, __ATOMIC_ACQUIRE) < gridDim.x) __nanosleep(100);\n"
	"} REVOFF_CPU_KERNEL(meet)\n"
	"extern \"C\" __global__ void mark(unsigned char *seen, unsigned *n) {\n"
	"	seen[blockIdx.x * blockDim.x + threadIdx.x] += 1;\n"
	"	atomicAdd(n, 1u);\n"
	"} REVOFF_CPU_KERNEL(mark)\n";

int main(void)
{
	enum {
		N = 100000
	};
	const unsigned shapes[][2] = { { 400, 250 },
				       { 100, 1000 },
				       { 100000, 1 } };
	unsigned *n, i, j;
	CUfunction meet, mark;
	unsigned char *seen;
	uint64_t begin;
	CUmodule m;

	setenv("PYREVOFF_CPU_WORKERS", "6", 1);
	t_cpu_open();
	m = t_cpu_load(source);
	meet = t_cpu_kernel(m, "meet");
	mark = t_cpu_kernel(m, "mark");
	n = t_cpu_pinned(sizeof(*n));
	seen = t_cpu_pinned(N);
	for (i = 0; i < 20; ++i) {
		void *p[] = { &n };

		*n = 0;
		t_ok(t_cpu_run(meet, 6, 1, p));
		t_check(*n == 6);
	}
	for (i = 0; i < 3; ++i) {
		void *p[] = { &seen, &n };

		*n = 0;
		memset(seen, 0, N);
		begin = t_now();
		t_ok(t_cpu_run(mark, shapes[i][0], shapes[i][1], p));
		printf("%u x %u threads: %.1f ms\n", shapes[i][0], shapes[i][1],
		       (double)(t_now() - begin) / 1e6);
		/* Seconds, where milliseconds are usual: machines are busy. */
		t_check(t_now() - begin < 20000000000u);
		t_check(*n == N);
		for (j = 0; j < N; ++j)
			t_check(seen[j] == 1);
	}
	t_cpu_close();
	return T_PASS;
}
