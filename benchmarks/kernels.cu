/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels that are measured.  Each checks what it got back and counts in
 * `wrong` what is not as it should be, so that no number comes from a handler
 * that did not run.  A reply feeds the next request where that costs nothing.
 */
#include <pyrevoff.h>

typedef unsigned long long u64;

struct B16 {
	u64 w[2];
};
struct B32 {
	u64 w[4];
};
struct B64 {
	u64 w[8];
};
struct B128 {
	u64 w[16];
};
struct Record {
	u64 lane, number, a, b;
};
REVOFF_STRUCT(B16, w)
REVOFF_STRUCT(B32, w)
REVOFF_STRUCT(B64, w)
REVOFF_STRUCT(B128, w)
REVOFF_STRUCT(Record, lane, number, a, b)

REVOFF_FUNCTION(nothing, void());
REVOFF_FUNCTION(up, double(double));
REVOFF_FUNCTION(up16, B16(B16));
REVOFF_FUNCTION(up32, B32(B32));
REVOFF_FUNCTION(up64, B64(B64));
REVOFF_FUNCTION(up128, B128(B128));
REVOFF_FUNCTION(array, void(revoff::tofrom<unsigned>));
REVOFF_FUNCTION(text, void(revoff::str));
REVOFF_FUNCTION(twice, double(double));
REVOFF_FUNCTION(product, double(double, double));
REVOFF_FUNCTION(note, void(u64, u64, u64, u64));
REVOFF_FUNCTION(record, void(Record));

extern "C" {
__device__ unsigned wrong;
__device__ unsigned data[1 << 22];
}

__device__ static u64 now_ns()
{
#ifdef REVOFF_CPU_DEVICE
	return revoff_cpu_clock_ns();
#else
	u64 t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
#endif
}

__device__ static unsigned lane_id()
{
	return blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ static void count_wrong(unsigned n)
{
	if (n)
		atomicAdd(&wrong, n);
}

template <class Block_, class Function_>
__device__ static void ping(const Function_ &function, int n)
{
	Block_ b;
	unsigned bad = 0;

	for (unsigned j = 0; j < sizeof(b) / 8; ++j)
		b.w[j] = j;
	for (int i = 0; i < n; ++i)
		b = function(b);
	for (unsigned j = 0; j < sizeof(b) / 8; ++j)
		bad += b.w[j] != j + (u64)n;
	count_wrong(bad);
}

extern "C" {

/* ---- one call and its answer ------------------------------------------------ */

__global__ void k_nothing(int n)
{
	for (int i = 0; i < n; ++i)
		count_wrong(nothing.try_call() != revoff::ok);
}

__global__ void k_up(int n)
{
	double x = 0;

	for (int i = 0; i < n; ++i)
		x = up(x);
	count_wrong(x != n);
}

__global__ void k_up16(int n)
{
	ping<B16>(up16, n);
}

__global__ void k_up32(int n)
{
	ping<B32>(up32, n);
}

__global__ void k_up64(int n)
{
	ping<B64>(up64, n);
}

__global__ void k_up128(int n)
{
	ping<B128>(up128, n);
}

__global__ void k_array(int n, int count)
{
	for (int i = 0; i < n; ++i)
		count_wrong(array.try_call(revoff::tofrom<unsigned>(
				    data, (u64)count)) != revoff::ok);
}

__global__ void k_text(int n)
{
	for (int i = 0; i < n; ++i)
		count_wrong(text.try_call("a line of text from a kernel") !=
			    revoff::ok);
}

/* ---- many callers ----------------------------------------------------------- */

__global__ void k_twice(int n)
{
	double x = lane_id() + 0.5;
	unsigned bad = 0;

	for (int i = 0; i < n; ++i, x += 1)
		bad += twice(x) != 2 * x;
	count_wrong(bad);
}

__global__ void k_product(int n)
{
	double x = lane_id() + 0.5;
	unsigned bad = 0;

	for (int i = 0; i < n; ++i, x += 1)
		bad += product(x, 2) != 2 * x;
	count_wrong(bad);
}

/* For any function of one number: the host compares y with its own. */
__global__ void k_apply(int n, const double *x, double *y)
{
	unsigned i = lane_id();
	double v = 0;

	for (int k = 0; k < n; ++k)
		v = twice(x[i]);
	y[i] = v;
}

/* ---- posts ------------------------------------------------------------------ */

__global__ void k_note(int n)
{
	u64 lane = lane_id();

	for (u64 i = 0; i < (u64)n; ++i)
		note.post(lane, i, lane ^ i, lane + i);
}

__global__ void k_record(int n)
{
	u64 lane = lane_id();

	for (u64 i = 0; i < (u64)n; ++i)
		record.post(Record{ lane, i, lane ^ i, lane + i });
}

/* ---- silence ---------------------------------------------------------------- */

__global__ void k_quiet(u64 ns)
{
	u64 end = now_ns() + ns;

	while (now_ns() < end)
		;
}

/* How long a call takes that comes after a time without any, n times. */
__global__ void k_first(u64 ns, int n, u64 *took)
{
	for (int i = 0; i < n; ++i) {
		u64 start = now_ns();

		while (now_ns() - start < ns)
			;
		start = now_ns();
		nothing();
		took[i] = now_ns() - start;
	}
}

/* The same, once for each block: a warp that has not called before. */
__global__ void k_first_of_each(u64 ns, u64 *took)
{
	u64 start = now_ns();

	if (threadIdx.x)
		return;
	ns *= blockIdx.x + 1;
	while (now_ns() - start < ns)
		;
	start = now_ns();
	nothing();
	took[blockIdx.x] = now_ns() - start;
}

/* The smallest step of the clock above. */
__global__ void k_tick(u64 *step)
{
	u64 least = ~0ull, last = now_ns(), end = last + 1000000;

	while (last < end) {
		u64 t = now_ns();

		if (t != last && t - last < least)
			least = t - last;
		last = t;
	}
	*step = least;
}

} /* extern "C" */
