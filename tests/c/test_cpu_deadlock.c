/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: threads of a block that wait for each other for ever end the
 * launch with an error that says so; the device works again after the context
 * was released.
 */
#include "cpu_module.h"

static const char source[] =
	"extern \"C\" __global__ void ballot() {\n"
	"	if (threadIdx.x == 3) __syncthreads();\n"
	"	else __ballot_sync(~0u, 1);\n"
	"} REVOFF_CPU_KERNEL(ballot)\n"
	"extern \"C\" __global__ void masks() {\n"
	"	__syncwarp(threadIdx.x == 0 ? 3u : ~0u);\n"
	"} REVOFF_CPU_KERNEL(masks)\n"
	"extern \"C\" __global__ void stranger() {\n"
	"	__ballot_sync(1u, 1);\n"
	"} REVOFF_CPU_KERNEL(stranger)\n"
	"extern \"C\" __global__ void fine(unsigned *n) { atomicAdd(n, 1u); }\n"
	"REVOFF_CPU_KERNEL(fine)\n";

int main(void)
{
	const char *names[] = { "ballot", "masks", "stranger" };
	const char *words[] = { "1 threads wait in __syncthreads and 31",
				"deadlock", "mask lacks the lane" };
	unsigned i, *n;

	for (i = 0; i < 3; ++i) {
		const char *text;
		uint64_t begin;
		CUmodule m;
		void *p[] = { &n };

		t_cpu_open();
		m = t_cpu_load(source);
		begin = t_now();
		t_check(t_cpu_run(t_cpu_kernel(m, names[i]), 3, 64, NULL) ==
			CUDA_ERROR_LAUNCH_FAILED);
		t_check(t_now() - begin < 5000000000u);
		t_ok(D->cuGetErrorString(CUDA_ERROR_LAUNCH_FAILED, &text));
		t_check(strstr(text, names[i]) && strstr(text, words[i]));
		t_cpu_close();

		t_cpu_open();
		m = t_cpu_load(source);
		n = t_cpu_pinned(sizeof(*n));
		t_ok(t_cpu_run(t_cpu_kernel(m, "fine"), 3, 64, p));
		t_check(*n == 192);
		t_cpu_close();
	}
	return T_PASS;
}
