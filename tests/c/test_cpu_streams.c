/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: streams run beside each other, a stream's operations in order;
 * a query never waits; a stream may be destroyed while it is busy.
 */
#include "cpu_module.h"

static const char source[] =
	"extern \"C\" __global__ void waits(unsigned *p, unsigned n) {\n"
	"	while (__atomic_load_n(p, __ATOMIC_ACQUIRE) < n) __nanosleep(100);\n"
	"} REVOFF_CPU_KERNEL(waits)\n"
	"extern \"C\" __global__ void add(unsigned *p, unsigned n) {\n"
	"	__atomic_fetch_add(p, n, __ATOMIC_RELEASE);\n"
	"} REVOFF_CPU_KERNEL(add)\n"
	"extern \"C\" __global__ void twice(unsigned *p) { *p *= 2; }\n"
	"REVOFF_CPU_KERNEL(twice)\n";

static void launch(CUfunction f, CUstream s, void **p)
{
	t_ok(D->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, p, NULL));
}

int main(void)
{
	unsigned *flag, *x, one = 1, pageable = 7, out = 0, i;
	CUfunction waits, add, twice;
	CUstream s[8], other;
	CUdeviceptr d;
	uint64_t begin;
	CUmodule m;

	t_cpu_open();
	m = t_cpu_load(source);
	waits = t_cpu_kernel(m, "waits");
	add = t_cpu_kernel(m, "add");
	twice = t_cpu_kernel(m, "twice");
	flag = t_cpu_pinned(sizeof(*flag));
	x = t_cpu_pinned(sizeof(*x));
	t_ok(D->cuMemAlloc(&d, 4));
	t_ok(D->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	for (i = 0; i < 8; ++i) {
		void *p[] = { &flag, &one };

		t_ok(D->cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
		launch(waits, s[i], p);
	}
	/* Behind the waiting kernel, in order; the source may change at once. */
	{
		void *p[] = { &d };

		t_ok(D->cuMemcpyHtoDAsync(d, &pageable, 4, s[0]));
		pageable = 0;
		launch(twice, s[0], p);
		launch(twice, s[0], p);
		t_ok(D->cuMemcpyDtoHAsync(&out, d, 4, s[0]));
		t_ok(D->cuMemsetD8Async(d, 0xff, 4, s[0]));
	}
	for (i = 0; i < 8; ++i)
		t_check(D->cuStreamQuery(s[i]) == CUDA_ERROR_NOT_READY);
	begin = t_now();
	for (i = 0; i < 100000; ++i)
		t_check(D->cuStreamQuery(s[i % 8]) == CUDA_ERROR_NOT_READY);
	t_check(t_now() - begin < 1000000000);
	t_check(out == 0);
	/* A kernel on one more stream lets them all go. */
	{
		void *p[] = { &flag, &one };

		launch(add, other, p);
	}
	for (i = 0; i < 8; ++i) {
		t_ok(D->cuStreamSynchronize(s[i]));
		t_ok(D->cuStreamQuery(s[i]));
	}
	t_check(out == 28);
	t_ok(D->cuMemcpyDtoHAsync(&out, d, 4, s[0]));
	t_check(out == ~0u);

	/* Destroyed while busy: the work is still done. */
	{
		unsigned two = 2;
		void *p[] = { &flag, &two }, *q[] = { &x, &one };

		launch(waits, s[0], p);
		launch(add, s[0], q);
		t_ok(D->cuStreamDestroy(s[0]));
		t_check(D->cuStreamQuery(s[0]) == CUDA_ERROR_INVALID_HANDLE);
		t_ok(D->cuModuleUnload(m));
		__atomic_store_n(flag, 2, __ATOMIC_RELEASE);
		begin = t_now();
		while (!__atomic_load_n(x, __ATOMIC_ACQUIRE))
			t_check(t_now() - begin < 10000000000u);
	}
	for (i = 1; i < 8; ++i)
		t_ok(D->cuStreamDestroy(s[i]));
	/* Finished streams are cleaned up as others come and go. */
	for (i = 0; i < 2000; ++i) {
		t_ok(D->cuStreamCreate(&s[0], 0));
		t_ok(D->cuStreamDestroy(s[0]));
	}
	t_cpu_close();
	return T_PASS;
}
