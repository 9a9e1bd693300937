/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: warp votes, shuffles, matches and reductions give CUDA's
 * results, also with sub-masks in divergent code, short warps and lanes that
 * have exited.
 */
#include "cpu_module.h"

static const char source[] =
	"#define CHECK(x) do { if (!(x)) atomicAdd(bad, 1u); } while (0)\n"
	"extern \"C\" __global__ void all(unsigned *bad) {\n"
	"	int lane = threadIdx.x & 31; unsigned full = ~0u;\n"
	"	CHECK(__ballot_sync(full, lane % 3 == 0) == 0x49249249u);\n"
	"	CHECK(__any_sync(full, lane == 7) && !__any_sync(full, 0));\n"
	"	CHECK(__all_sync(full, 1) && !__all_sync(full, lane != 31));\n"
	"	CHECK(__shfl_sync(full, lane * 2, 5) == 10);\n"
	"	CHECK(__shfl_sync(full, lane, 1, 8) == (lane & ~7) + 1);\n"
	"	CHECK(__shfl_up_sync(full, lane, 3) == (lane < 3 ? lane : lane - 3));\n"
	"	CHECK(__shfl_down_sync(full, lane, 3, 16) == ((lane & 15) > 12 ? lane : lane + 3));\n"
	"	CHECK(__shfl_xor_sync(full, (double)lane, 16) == (lane ^ 16));\n"
	"	CHECK(__shfl_sync(full, make_float2(lane, -lane), 9).y == -9);\n"
	"	CHECK(__match_any_sync(full, lane / 16) == (lane < 16 ? 0xffffu : 0xffff0000u));\n"
	"	int same; CHECK(__match_all_sync(full, 5, &same) == full && same);\n"
	"	CHECK(__match_all_sync(full, lane, &same) == 0 && !same);\n"
	"	CHECK(__reduce_add_sync(full, lane) == 496);\n"
	"	CHECK(__reduce_max_sync(full, -lane) == 0 && __reduce_min_sync(full, -lane) == -31);\n"
	"	CHECK(__activemask() == 1u << lane);\n"
	"} REVOFF_CPU_KERNEL(all)\n"
	"extern \"C\" __global__ void split(unsigned *bad) {\n"
	"	int lane = threadIdx.x & 31;\n"
	"	for (int i = 0; i < 10 + (lane & 1) * 7; ++i) {\n"
	"		if (lane & 1)\n"
	"			CHECK(__ballot_sync(0xaaaaaaaau, 1) == 0xaaaaaaaau);\n"
	"		else\n"
	"			CHECK(__ballot_sync(0x55555555u, lane % 4 == 0) == 0x11111111u);\n"
	"		__nanosleep(0);\n"
	"	}\n"
	"	__syncwarp();\n"
	"	if (lane < 8) CHECK(__shfl_sync(0xffu, lane, 3) == 3);\n"
	"	if (lane == 9) CHECK(__ballot_sync(1u << 9, 1) == 1u << 9);\n"
	"} REVOFF_CPU_KERNEL(split)\n"
	"extern \"C\" __global__ void leave(unsigned *bad) {\n"
	"	int lane = threadIdx.x & 31;\n"
	"	if (lane >= 20) return;\n"
	"	unsigned here = blockDim.x - threadIdx.x / 32 * 32 < 20 ?\n"
	"		(1u << blockDim.x % 32) - 1 : (1u << 20) - 1;\n"
	"	CHECK(__ballot_sync(~0u, 1) == here);\n"
	"	if (lane == 2) return;\n"
	"	here &= ~4u;\n"
	"	CHECK(__ballot_sync(~0u, 1) == here && __all_sync(~0u, 1));\n"
	"} REVOFF_CPU_KERNEL(leave)\n";

int main(void)
{
	const char *names[] = { "all", "split", "leave" };
	const unsigned blocks[][3] = { { 32, 64, 256 },
				       { 32, 64, 1024 },
				       { 32, 45, 104 } };
	unsigned i, j, *bad;
	CUmodule m;

	t_cpu_open();
	m = t_cpu_load(source);
	bad = t_cpu_pinned(sizeof(*bad));
	for (i = 0; i < 3; ++i) {
		CUfunction k = t_cpu_kernel(m, names[i]);
		void *p[] = { &bad };

		for (j = 0; j < 3; ++j) {
			t_ok(t_cpu_run(k, 6, blocks[i][j], p));
			if (*bad)
				fprintf(stderr, "%s, %u threads: %u wrong\n",
					names[i], blocks[i][j], *bad);
			t_check(!*bad);
		}
	}
	t_cpu_close();
	return T_PASS;
}
