/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of values of each size, called by all lanes. */
#include <pyrevoff.h>

struct sixteen {
	revoff_u64 a, b;
};

REVOFF_FUNCTION(one, unsigned char(unsigned char));
REVOFF_FUNCTION(two, unsigned short(unsigned short));
REVOFF_FUNCTION(four, unsigned(unsigned));
REVOFF_FUNCTION(eight, revoff_u64(revoff_u64));
REVOFF_FUNCTION(wide, sixteen(sixteen));
REVOFF_FUNCTION(all, revoff_u64(unsigned char, unsigned short, unsigned,
				revoff_u64, sixteen));
REVOFF_FUNCTION(none, void(unsigned));

__device__ inline void differ(unsigned *bad, bool yes)
{
	if (yes)
		atomicAdd(bad, 1u);
}

extern "C" {
/* n calls of each thread; *bad counts answers that are not v + 1. */
__global__ void sizes(unsigned *bad, int n)
{
	unsigned t = blockIdx.x * blockDim.x + threadIdx.x;

	for (int k = 0; k < n; ++k) {
		revoff_u64 v = t * 0x9e3779b97f4a7c15ull + (unsigned)k;
		sixteen s = { v, ~v }, r;

		differ(bad, one((unsigned char)v) != (unsigned char)(v + 1));
		differ(bad, two((unsigned short)v) != (unsigned short)(v + 1));
		differ(bad, four((unsigned)v) != (unsigned)(v + 1));
		differ(bad, eight(v) != v + 1);
		r = wide(s);
		differ(bad, r.a != s.a + 1 || r.b != s.b + 1);
		differ(bad, all((unsigned char)v, (unsigned short)v,
				(unsigned)v, v, s) != v + 1);
		none((unsigned)v);
	}
}

/* One call of each thread, and what came of it. */
__global__ void once(int *status, revoff_u64 *result)
{
	unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
	revoff_u64 r = 0;

	status[t] = eight.try_call(&r, t);
	result[t] = r;
}

/* n calls in a row, as far as they succeed. */
__global__ void row(int *status, revoff_u64 *bad, int n)
{
	unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
	int s = revoff::ok;

	for (int k = 0; k < n && s == revoff::ok; ++k) {
		revoff_u64 r = 0, v = (revoff_u64)t << 32 | (unsigned)k;

		s = eight.try_call(&r, v);
		if (s == revoff::ok && r != v + 1)
			atomicAdd(bad, 1ull);
	}
	status[t] = s;
}
}
