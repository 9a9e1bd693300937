/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a stack overflow, an unmapped address, a division by zero and a
 * compiler's trap in kernel code end the launch and not the process; a handler
 * that was there before still gets what is not a kernel's.
 */
#include <setjmp.h>
#include <signal.h>

#include "cpu_module.h"

static const char source[] =
	"__device__ __attribute__((noinline)) int deep(int n) {\n"
	"	volatile char room[600]; room[n % 600] = 1;\n"
	"	return n > 0 ? deep(n - 1) + room[n % 600] : 0;\n"
	"}\n"
	"extern \"C\" __global__ void overflow(int *x) { *x = deep(10000); }\n"
	"REVOFF_CPU_KERNEL(overflow)\n"
	"extern \"C\" __global__ void shallow(int *x) { *x = deep(20); }\n"
	"REVOFF_CPU_KERNEL(shallow)\n"
	"extern \"C\" __global__ void wild(int *x) { if (threadIdx.x == 9) *(volatile int *)(*x ? 16 : 8) = 1; }\n"
	"REVOFF_CPU_KERNEL(wild)\n"
	"extern \"C\" __global__ void divide(int *x) { *x = 7 / *x; }\n"
	"REVOFF_CPU_KERNEL(divide)\n"
	"extern \"C\" __global__ void ends(int *x) { if (!*x) __builtin_trap(); }\n"
	"REVOFF_CPU_KERNEL(ends)\n";

static sigjmp_buf back;

static void mine(int number)
{
	(void)number;
	siglongjmp(back, 1);
}

int main(void)
{
	static const struct {
		const char *name;
		int code;
		const char *word;
	} cases[] = {
		{ "overflow", CUDA_ERROR_LAUNCH_FAILED, "stack overflow" },
		{ "wild", CUDA_ERROR_ILLEGAL_ADDRESS, "thread (9,0,0)" },
		{ "divide", CUDA_ERROR_LAUNCH_FAILED, "division by zero" },
		{ "ends", CUDA_ERROR_LAUNCH_FAILED, "trap" },
	};
	volatile unsigned i;

#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || \
	defined(__SANITIZE_THREAD__)
	return T_SKIP;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	return T_SKIP;
#endif
#endif
	signal(SIGSEGV, mine);
	for (i = 0; i < 12; ++i) {
		const char *text;
		CUmodule m;
		int *x;
		void *p[] = { &x };

		t_cpu_open();
		m = t_cpu_load(source);
		x = t_cpu_pinned(sizeof(*x));
		t_ok(t_cpu_run(t_cpu_kernel(m, "shallow"), 2, 32, p));
		*x = 0;
		t_check(t_cpu_run(t_cpu_kernel(m, cases[i % 4].name), 2, 32,
				  p) == cases[i % 4].code);
		t_ok(D->cuGetErrorString(cases[i % 4].code, &text));
		if (!strstr(text, cases[i % 4].word))
			fprintf(stderr, "%s\n", text);
		t_check(strstr(text, cases[i % 4].word));
		t_cpu_close();
		if (!sigsetjmp(back, 1)) {
			*(volatile int *)(uintptr_t)(i * 0 + 16) = 1;
			t_check(!"the process's own fault was swallowed");
		}
	}
	return T_PASS;
}
