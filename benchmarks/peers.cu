/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CUDA itself has for "the kernel needs the host": split the kernel and
 * put a host function between the parts, and printf.  Nothing here waits for
 * the host inside a kernel, so nothing can spin for ever.
 */
#include <cuda_runtime.h>
#include <stdint.h>
#include <time.h>

#define API extern "C" __attribute__((visibility("default")))

static double now_us()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* Pinned: the request of a step and its reply. */
struct mail {
	unsigned long long request, reply;
};

__global__ void step(mail *m, unsigned long long *wrong, unsigned long long i)
{
	if (m->reply != 2 * i)
		++*wrong;
	m->request = i + 1;
}

static void CUDART_CB answer(void *user)
{
	mail *m = (mail *)user;

	m->reply = 2 * m->request;
}

/* us a step of n; -1: a call failed, -2: a kernel saw a wrong reply. */
API double peer_host_function_us(int n)
{
	mail *m;
	unsigned long long *wrong, found = 1;
	cudaStream_t s;
	double start = 0;

	if (cudaHostAlloc(&m, sizeof(*m), cudaHostAllocMapped) ||
	    cudaMalloc(&wrong, sizeof(*wrong)) ||
	    cudaMemset(wrong, 0, sizeof(*wrong)) ||
	    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking))
		return -1;
	/* The memset is on another stream. */
	if (cudaDeviceSynchronize())
		return -1;
	for (int round = 0; round < 2; ++round) {
		m->request = m->reply = 0;
		start = now_us();
		for (int i = 0; i < n; ++i) {
			step<<<1, 1, 0, s>>>(m, wrong, i);
			if (cudaLaunchHostFunc(s, answer, m))
				return -1;
		}
		if (cudaStreamSynchronize(s))
			return -1;
	}
	double us = (now_us() - start) / n;
	if (cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost))
		return -1;
	return found ? -2 : us;
}

extern "C" int printf(const char *, ...);

__global__ void lines(int n)
{
	for (int i = 0; i < n; ++i)
		printf("%d %d %d\n", blockIdx.x, threadIdx.x, i);
}

/*
 * us a line, of n lines by each of blocks x threads; -1: a call failed.  The
 * caller has pointed stdout somewhere, and counts what came.
 */
API double peer_printf_us(int blocks, int threads, int n)
{
	static bool ready;

	/* So large that no line is lost; only before the first printf. */
	if (!ready && cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 64u << 20))
		return -1;
	ready = true;
	double start = now_us();
	lines<<<blocks, threads>>>(n);
	if (cudaDeviceSynchronize())
		return -1;
	return (now_us() - start) / ((double)n * blocks * threads);
}
