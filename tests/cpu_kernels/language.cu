// SPDX-License-Identifier: Apache-2.0
// launch types 1 32 0
// launch constants 3 40 0
// launch inner 3 40 0
// launch _ZN5outer5innerEPjS0_ 3 40 0
// launch filled<float,%3> 2 33 0
// launch many 400 250 0
// launch arithmetic 1 32 0
#include <cmath>
#include <cstdio>

#define CHECK(x) ((x) ? (void)0 : (void)atomicAdd(errors, 1u))

struct pair_of {
	int a;
	float4 b;
};

extern "C" __global__ void types(unsigned *errors, unsigned *threads)
{
	CHECK(sizeof(int2) == 8 && alignof(int2) == 8 && alignof(int4) == 16);
	CHECK(sizeof(float3) == 12 && alignof(float3) == 4 &&
	      sizeof(float4) == 16);
	CHECK(alignof(double2) == 16 && sizeof(uchar4) == 4 &&
	      alignof(uchar4) == 4);
	CHECK(sizeof(pair_of) == 32 && sizeof(dim3) == 12);
	double2 d = make_double2(1, 2);
	dim3 g(4);
	CHECK(d.x + d.y == 3 && g.x == 4 && g.y == 1 && g.z == 1);
	dim3 b = blockDim;
	uint3 t = threadIdx;
	auto x = threadIdx.x;
	static_assert(sizeof(x) == 4, "threadIdx.x is unsigned");
	char text[32];
	snprintf(text, sizeof text, "%u %u", threadIdx.x, blockDim.x);
	CHECK(b.x == 32 && t.x == x &&
	      text[0] == (char)('0' + (x < 10 ? x : x / 10)));
	atomicAdd(threads, 1u);
}

__constant__ int table[4] = { 1, 2, 3, 4 };
__device__ float scale = 2.5f;

__device__ __forceinline__ float scaled(int i)
{
	return scale * __ldg(&table[i & 3]);
}

__global__ void constants(unsigned *errors, unsigned *threads)
{
	CHECK(scaled(threadIdx.x) == 2.5f * (1 + (threadIdx.x & 3)));
	atomicAdd(threads, 1u);
}

namespace outer
{
__global__ void inner(unsigned *errors, unsigned *threads)
{
	CHECK(gridDim.x == 3 && blockDim.y == 1);
	atomicAdd(threads, 1u);
}
} // namespace outer

template <class T, int N>
__global__ void filled(unsigned *errors, unsigned *threads)
{
	__shared__ T s[N];
	if (threadIdx.x < N)
		s[threadIdx.x] = T(blockIdx.x + 1);
	__syncthreads();
	CHECK(s[threadIdx.x % N] == T(blockIdx.x + 1));
	atomicAdd(threads, 1u);
}
template __global__ void filled<float, 3>(unsigned *, unsigned *);

#if 0
__global__ void not_there(undeclared *x) { }
#endif

extern "C" __global__ void many(unsigned *errors, unsigned *threads)
{
	CHECK(blockIdx.x < 400 && threadIdx.x < 250);
	atomicAdd_system(threads, 1u);
}

extern "C" __global__ void arithmetic(unsigned *errors, unsigned *threads)
{
	unsigned u = 5, lane = threadIdx.x;
	unsigned long long l = 1;
	float f = 1.5f;
	double d = 2;
	int i = -7;
	CHECK(atomicCAS(&u, 5u, 9u) == 5 && u == 9 &&
	      atomicCAS(&u, 5u, 1u) == 9);
	CHECK(atomicExch(&u, 3u) == 9 && atomicMax(&u, 8u) == 3 &&
	      atomicMin(&i, -9) == -7);
	CHECK(atomicOr(&u, 16u) == 8 && atomicAnd(&u, 24u) == 24 &&
	      atomicXor(&u, 8u) == 24 && u == 16);
	CHECK(atomicAdd(&f, 0.5f) == 1.5f && f == 2 &&
	      atomicAdd(&d, 1.0) == 2 && d == 3);
	CHECK(atomicAdd_block(&l, 4ull) == 1 && atomicSub(&i, 1) == -9 &&
	      i == -10);
	u = 2;
	CHECK(atomicInc(&u, 2u) == 2 && u == 0 && atomicDec(&u, 7u) == 0 &&
	      u == 7);
	CHECK(__popc(0xf0f0u) == 8 && __ffs(0x10) == 5 && __ffs(0) == 0 &&
	      __clz(1) == 31 && __clz(0) == 32);
	CHECK(__popcll(~0ull) == 64 && __clzll(1) == 63 &&
	      __ffsll(1ll << 40) == 41 && __brev(1) == 0x80000000u);
	CHECK(__umulhi(1u << 31, 4) == 2 &&
	      __byte_perm(0x03020100, 0x07060504, 0x7531) == 0x07050301);
	CHECK(min(3, 4) == 3 && max(3.0f, 4.0f) == 4.0f &&
	      min(2ull, 1ull) == 1);
	CHECK(std::fabs(rsqrtf(4.0f) - 0.5f) < 1e-6f && sqrt(9.0) == 3 &&
	      fabsf(__expf(0.0f) - 1) < 1e-6f);
	CHECK(__float_as_int(1.0f) == 0x3f800000 &&
	      __int_as_float(0x40000000) == 2.0f && __float2int_rn(2.5f) == 2);
	long long before = clock64();
	__threadfence_system();
	__nanosleep(10);
	CHECK(clock64() >= before && (lane & 31) == lane);
	atomicAdd(threads, 1u);
}
