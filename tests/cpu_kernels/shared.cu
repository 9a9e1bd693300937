// SPDX-License-Identifier: Apache-2.0
// launch reduce 7 256 0
// launch dynamic 5 128 4096
// launch outer 5 96 4096
#include <cstdint>

template <class T, int N> struct buffer {
	T at[N];
};

extern "C" __global__ void __launch_bounds__(256)
	reduce(unsigned *errors, unsigned *threads)
{
	__shared__ float s[256];
	static __shared__ buffer<double, 256> d;
	unsigned t = threadIdx.x;
	s[t] = (float)t;
	d.at[t] = blockIdx.x;
	__syncthreads();
	for (unsigned k = blockDim.x / 2; k >= 32; k >>= 1) {
		if (t < k) {
			s[t] += s[t + k];
			d.at[t] += d.at[t + k];
		}
		__syncthreads();
	}
	if (t < warpSize) {
		float v = s[t];
		double w = d.at[t];
		for (int k = 16; k > 0; k /= 2) {
			v += __shfl_down_sync(0xffffffff, v, k);
			w += __shfl_down_sync(0xffffffff, w, k);
		}
		if (t == 0 && (v != 255 * 128 || w != 256.0 * blockIdx.x))
			atomicAdd(errors, 1u);
	}
	atomicAdd(threads, 1u);
}

extern "C" {
__global__ void dynamic(unsigned *errors, unsigned *threads)
{
	extern __shared__ __align__(16) unsigned char raw[];
	float4 *v = reinterpret_cast<float4 *>(raw);
	unsigned n = 4096 / sizeof(float4);
	for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
		v[i] = make_float4(i, blockIdx.x, 0, -1.0f * i);
	__syncthreads();
	unsigned i = n - 1 - threadIdx.x;
	if (v[i].x != i || v[i].y != blockIdx.x || v[i].w != -1.0f * i ||
	    (uintptr_t)raw % 16)
		atomicAdd(errors, 1u);
	atomicAdd(threads, 1u);
}
}

extern __shared__ int at_namespace_scope[];

__device__ __noinline__ int read_it(int i)
{
	return at_namespace_scope[i] + *(at_namespace_scope + i);
}

__global__ void outer(unsigned *errors, unsigned *threads)
{
	int t = threadIdx.x;
	at_namespace_scope[t] = t * 3;
	(&at_namespace_scope[0])[t] += 1;
	__syncthreads();
	int other = blockDim.x - 1 - t;
	if (read_it(other) != 2 * (other * 3 + 1))
		atomicAdd(errors, 1u);
	atomicAdd(threads, 1u);
}
