/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device's floor: a flag ping-pong between two threads. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

static struct {
	uint64_t to_host __attribute__((aligned(128)));
	uint64_t to_device __attribute__((aligned(128)));
	int n;
} f;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* The other side is a thread of this process that can't be stuck. */
static void spin_until(const uint64_t *p, uint64_t v)
{
	unsigned turn;

	/* On a machine with few cores the other thread needs ours. */
	for (turn = 1; __atomic_load_n(p, __ATOMIC_ACQUIRE) != v; ++turn)
		if (turn % 64 == 0)
			sched_yield();
}

static void *device(void *arg)
{
	uint64_t i;

	(void)arg;
	for (i = 1; i <= (uint64_t)f.n; ++i) {
		__atomic_store_n(&f.to_host, i, __ATOMIC_RELEASE);
		spin_until(&f.to_device, i);
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median of rounds of n round trips; us, or -1.  One caller is all there is. */
API double floor_pingpong_us(int ordered, int lanes, int n, int rounds)
{
	double v[64];
	int r;

	(void)ordered;
	if (lanes != 1 || rounds < 1 || rounds > 64 || n < 2)
		return -1;
	for (r = 0; r < rounds; ++r) {
		pthread_t thread;
		double start = 0;
		uint64_t i;

		f.to_host = f.to_device = 0;
		f.n = n;
		if (pthread_create(&thread, NULL, device, NULL))
			return -1;
		for (i = 1; i <= (uint64_t)n; ++i) {
			spin_until(&f.to_host, i);
			if (i == 1)
				start = now_us();
			__atomic_store_n(&f.to_device, i, __ATOMIC_RELEASE);
		}
		v[r] = (now_us() - start) / (n - 1);
		pthread_join(thread, NULL);
	}
	qsort(v, (size_t)rounds, sizeof(v[0]), compare);
	return v[rounds / 2];
}

API double floor_usleep_us(int n)
{
	double start = now_us();
	int i;

	for (i = 0; i < n; ++i)
		usleep(1);
	return (now_us() - start) / n;
}
