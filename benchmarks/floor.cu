/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floors that pyrevoff is measured against.  A shared object, so that floor
 * and product run in one process, on one context, minutes apart at most.  Every
 * spin has a limit in time.
 */
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#define API	 extern "C" __attribute__((visibility("default")))
#define LIMIT_NS 5000000000ull

static double now_us()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static double median(std::vector<double> v)
{
	std::sort(v.begin(), v.end());
	return v.empty() ? -1 : v[v.size() / 2];
}

__device__ static unsigned long long clock_ns()
{
	unsigned long long t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

/* A word for each lane of a warp, both ways on lines of their own. */
struct flags {
	unsigned long long to_host[32];
	unsigned long long to_device[32];
};

/* The compiler wants the orders as literals. */
template <bool ORDERED>
__device__ static void put(unsigned long long *to, unsigned long long v)
{
	if (ORDERED)
		__nv_atomic_store_n(to, v, __NV_ATOMIC_RELEASE,
				    __NV_THREAD_SCOPE_SYSTEM);
	else
		__nv_atomic_store_n(to, v, __NV_ATOMIC_RELAXED,
				    __NV_THREAD_SCOPE_SYSTEM);
}

template <bool ORDERED>
__device__ static unsigned long long get(unsigned long long *from)
{
	return ORDERED ? __nv_atomic_load_n(from, __NV_ATOMIC_ACQUIRE,
					    __NV_THREAD_SCOPE_SYSTEM)
		       : __nv_atomic_load_n(from, __NV_ATOMIC_RELAXED,
					    __NV_THREAD_SCOPE_SYSTEM);
}

template <bool ORDERED> __global__ void ping(flags *f, unsigned long long n)
{
	unsigned long long end = clock_ns() + LIMIT_NS;
	unsigned lane = threadIdx.x;

	for (unsigned long long i = 1; i <= n; ++i) {
		put<ORDERED>(&f->to_host[lane], i);
		while (get<ORDERED>(&f->to_device[lane]) != i)
			if (clock_ns() > end)
				return;
	}
}

/* The host's part: answer n times.  Gives the time from the first to the last. */
static double pong_us(flags *f, int lanes, int n)
{
	double start = 0, limit = now_us() + 4e6;

	for (int i = 1; i <= n; ++i) {
		unsigned long long v = i;

		for (int k = 0; k < lanes; ++k)
			while (__atomic_load_n(&f->to_host[k],
					       __ATOMIC_ACQUIRE) != v)
				if (now_us() > limit)
					return -1;
		/* The first answer starts the clock: no launch time in it. */
		if (i == 1)
			start = now_us();
		for (int k = 0; k < lanes; ++k)
			__atomic_store_n(&f->to_device[k], v, __ATOMIC_RELEASE);
	}
	return now_us() - start;
}

/*
 * Median over rounds of n round trips of a word for each of up to 32 lanes of
 * one warp, in pinned memory; us, or -1.  A round trip is over when all lanes
 * have their answer.
 */
API double floor_pingpong_us(int ordered, int lanes, int n, int rounds)
{
	flags *f;
	cudaStream_t s;
	std::vector<double> v;

	if (lanes < 1 || lanes > 32 || n < 2 ||
	    cudaHostAlloc(&f, sizeof(*f), cudaHostAllocMapped))
		return -1;
	cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
	for (int r = 0; r < rounds + 1; ++r) {
		memset(f, 0, sizeof(*f));
		if (ordered)
			ping<true><<<1, lanes, 0, s>>>(f, n);
		else
			ping<false><<<1, lanes, 0, s>>>(f, n);
		double us = pong_us(f, lanes, n);
		/* Its own limit ends the kernel before its memory goes. */
		if (cudaStreamSynchronize(s) || us < 0)
			return -1;
		if (r)
			v.push_back(us / (n - 1));
	}
	cudaStreamDestroy(s);
	cudaFreeHost(f);
	return median(v);
}

/* What one usleep(1) takes, us. */
API double floor_usleep_us(int n)
{
	double start = now_us();

	for (int i = 0; i < n; ++i)
		usleep(1);
	return (now_us() - start) / n;
}

/* One copy with its synchronise, us. */
API double floor_copy_us(size_t bytes, int to_device, int n)
{
	void *d, *h;
	cudaStream_t s;
	std::vector<double> v;

	if (cudaMalloc(&d, bytes) || cudaMallocHost(&h, bytes))
		return -1;
	cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
	for (int i = 0; i < n + 5; ++i) {
		double start = now_us();
		if (to_device)
			cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice, s);
		else
			cudaMemcpyAsync(h, d, bytes, cudaMemcpyDeviceToHost, s);
		cudaStreamSynchronize(s);
		if (i >= 5)
			v.push_back(now_us() - start);
	}
	cudaStreamDestroy(s);
	cudaFreeHost(h);
	cudaFree(d);
	return median(v);
}

/*
 * Plain launch and synchronise against the product's run, alternating so that
 * both see the same machine.  The product is called through pointers: the
 * library is loaded by the Python process already.
 */
typedef int cu_launch(void *f, unsigned, unsigned, unsigned, unsigned, unsigned,
		      unsigned, unsigned, void *stream, void **, void **);
typedef int cu_sync(void *stream);
typedef int product_run(void *kernel, const void *config, uint64_t timeout,
			void *stats);

API int compare_launch(cu_launch *launch, cu_sync *sync, void *function,
		       void *stream, void **params, product_run *run,
		       void *kernel, const void *config, int n,
		       double *plain_us, double *product_us)
{
	std::vector<double> a, b;

	/* Whoever comes second finds warmer caches: take turns. */
	for (int i = 0; i < n + 100; ++i) {
		for (int k = 0; k < 2; ++k) {
			bool plain = (i + k) % 2 == 0;
			double t0 = now_us();

			if (plain) {
				if (launch(function, 1, 1, 1, 1, 1, 1, 0,
					   stream, params, nullptr) ||
				    sync(stream))
					return 1;
			} else if (run(kernel, config, ~0ull, nullptr)) {
				return 2;
			}
			if (i >= 100)
				(plain ? a : b).push_back(now_us() - t0);
		}
	}
	*plain_us = median(a);
	*product_us = median(b);
	return 0;
}
