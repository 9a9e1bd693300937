/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a block reduction through shared memory, barriers and shuffles
 * is right in every run, for 4- and 8-byte values.
 */
#include "cpu_module.h"

static const char source[] =
	"template <class T> __device__ void sum(T *x) {\n"
	"	__shared__ T s[256];\n"
	"	unsigned t = threadIdx.x;\n"
	"	s[t] = x[blockIdx.x * 256 + t];\n"
	"	__syncthreads();\n"
	"	for (unsigned k = 128; k >= 32; k /= 2) {\n"
	"		if (t < k) s[t] += s[t + k];\n"
	"		__syncthreads();\n"
	"	}\n"
	"	if (t < 32) {\n"
	"		T v = s[t];\n"
	"		for (int k = 16; k; k /= 2) v += __shfl_down_sync(~0u, v, k);\n"
	"		if (!t) x[blockIdx.x * 256] = v;\n"
	"	}\n"
	"}\n"
	"extern \"C\" __global__ void sums(float *x, double *y) { sum(x); sum(y); }\n"
	"REVOFF_CPU_KERNEL(sums)\n";

int main(void)
{
	enum {
		BLOCKS = 12,
		N = BLOCKS * 256
	};
	double *y, want;
	unsigned i, run;
	CUfunction k;
	float *x;

	t_cpu_open();
	k = t_cpu_kernel(t_cpu_load(source), "sums");
	x = t_cpu_pinned(N * sizeof(*x));
	y = t_cpu_pinned(N * sizeof(*y));
	for (run = 0; run < 20; ++run) {
		void *p[] = { &x, &y };

		for (i = 0; i < N; ++i)
			x[i] = (float)(y[i] = i % 256 + i / 256 + run);
		t_ok(t_cpu_run(k, BLOCKS, 256, p));
		for (i = 0; i < BLOCKS; ++i) {
			want = 255 * 128 + 256.0 * (i + run);
			t_check(x[i * 256] == (float)want);
			t_check(y[i * 256] == want);
		}
	}
	t_cpu_close();
	return T_PASS;
}
