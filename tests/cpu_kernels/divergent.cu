// SPDX-License-Identifier: Apache-2.0
// launch odd 6 1024 0
// launch exits 6 200 0
// launch elected 6 96 0
#define CHECK(x) ((x) ? (void)0 : (void)atomicAdd(errors, 1u))

extern "C" __global__ void odd(unsigned *errors, unsigned *threads)
{
	unsigned lane = threadIdx.x % warpSize;
	for (unsigned i = 0; i < lane % 3; ++i)
		__nanosleep(20);
	if (lane & 1) {
		for (int i = 0; i < 9; ++i)
			CHECK(__ballot_sync(0xaaaaaaaa, 1) == 0xaaaaaaaa);
	} else if (lane & 2) {
		CHECK(__ballot_sync(0x44444444, lane < 16) == 0x4444);
	}
	__syncthreads();
	CHECK(__all_sync(0xffffffff, 1));
	atomicAdd(threads, 1u);
}

extern "C" __global__ void exits(unsigned *errors, unsigned *threads)
{
	__shared__ unsigned n;
	atomicAdd(threads, 1u);
	if (threadIdx.x == 0)
		n = 0;
	if (threadIdx.x >= 150)
		return;
	__syncthreads();
	if (threadIdx.x % 10 == 3)
		return;
	atomicAdd(&n, 1u);
	__syncthreads();
	CHECK(n == 135);
	CHECK(__syncthreads_count(threadIdx.x % 2) == 60);
}

/* "The active lanes" may be any that are here: each thread must be served. */
extern "C" __global__ void elected(unsigned *errors, unsigned *threads)
{
	unsigned active = __activemask(), lane = threadIdx.x % warpSize;
	CHECK(active >> lane & 1);
	int leader = __ffs(active) - 1;
	if ((int)lane == leader)
		atomicAdd(threads, (unsigned)__popc(active));
	__syncwarp(active);
}
