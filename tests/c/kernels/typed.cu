/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of typed functions, in the ways that the C programs need. */
#include <pyrevoff.h>

struct wide {
	revoff_u64 counter, hash, more[6];
};

REVOFF_FUNCTION(next, revoff_u64(revoff_u64, revoff_u64));
REVOFF_FUNCTION(echo, wide(wide));
REVOFF_FUNCTION(nothing, void());
REVOFF_FUNCTION(other, void());
REVOFF_FUNCTION(lane, revoff_u64(revoff_u64));
REVOFF_FUNCTION(change, int(revoff::tofrom<int>));
REVOFF_FUNCTION(keep, void(revoff::to<double>));

__device__ inline revoff_u64 mix(revoff_u64 x)
{
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

/* A word that the host may read meanwhile. */
__device__ inline void note(int *word, int value)
{
	revoff::wire::store_release((revoff_u32 *)word, (revoff_u32)value);
}

extern "C" {
__global__ void empty()
{
}

/* n calls in a row; *bad counts answers that are not the host's. */
__global__ void count(revoff_u64 *bad, int n)
{
	for (revoff_u64 i = 0; i < (revoff_u64)n; ++i)
		if (next(i, mix(i)) != mix(~i))
			++*bad;
}

/* The same with 64 bytes each way. */
__global__ void count_wide(revoff_u64 *bad, int n)
{
	for (revoff_u64 i = 0; i < (revoff_u64)n; ++i) {
		wide w = { i, mix(i), {} };
		for (int k = 0; k < 6; ++k)
			w.more[k] = mix(i + k);
		w = echo(w);
		bool ok = w.counter == ~i && w.hash == mix(~i);
		for (int k = 0; k < 6; ++k)
			ok = ok && w.more[k] == mix(~i - k);
		*bad += !ok;
	}
}

/* Every lane of the grid calls and checks its own answer. */
__global__ void lanes(revoff_u64 *bad)
{
	revoff_u64 i = blockIdx.x * blockDim.x + threadIdx.x;
	if (lane(i) != mix(i))
		atomicAdd(bad, 1ull);
}

/* The status of each of n calls. */
__global__ void statuses(int *status, int n)
{
	for (int i = 0; i < n; ++i)
		note(&status[i], nothing.try_call());
}

__global__ void two(int *status)
{
	status[0] = nothing.try_call();
	status[1] = other.try_call();
}

/* Until the host says so, or gives the launch up; calls at its end. */
__global__ void hold(revoff_u32 *started, const revoff_u32 *go, int calls)
{
	revoff::wire::store_release(started, 1u);
	while (!revoff::wire::load_acquire(go) && !revoff::aborted())
		revoff::wire::pause(100);
	for (int i = 0; i < calls; ++i)
		nothing();
}

/* Does not ask whether it was given up: only go ends it. */
__global__ void deaf(revoff_u32 *started, const revoff_u32 *go)
{
	revoff::wire::store_release(started, 1u);
	while (!revoff::wire::load_acquire(go))
		revoff::wire::pause(100);
}

/* Calls until the host gives up. */
__global__ void forever(int *last)
{
	int status;

	do
		status = nothing.try_call();
	while (status == revoff::ok);
	note(last, status);
}

__global__ void modify(int *array, int n, int *answer)
{
	*answer = change(revoff::tofrom<int>(array, n));
}

__global__ void give(const double *array, int n)
{
	keep(revoff::to<double>(array, n));
}

/* Device number and function that are no host's. */
__global__ void wrong(int device, int null)
{
	GOMP_target_ext(device, null ? 0 : (void *)&__revoff_fn_nothing, 0, 0,
			0, 0, 0, 0, 0);
}

/* A function that no image has. */
__global__ void stranger(void *fn)
{
	GOMP_target_ext(-2, fn, 0, 0, 0, 0, 0, 0, 0);
}
}
