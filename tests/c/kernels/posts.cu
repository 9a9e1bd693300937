/* SPDX-License-Identifier: Apache-2.0 */
/* Posts of records of one and of several slots, and those that do not wait. */
#include <pyrevoff.h>

REVOFF_FUNCTION(small, void(revoff_u64, revoff_u64, revoff_u64));
REVOFF_FUNCTION(large,
		void(revoff_u64, revoff_u64, revoff_u64, revoff_u64, revoff_u64,
		     revoff_u64, revoff_u64, revoff_u64, revoff_u64));
REVOFF_FUNCTION(text, void(revoff_u64, revoff_u64, revoff::to<char>));

__device__ inline revoff_u64 mix(revoff_u64 x)
{
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

extern "C" {
/* n posts of each thread, its number first, then their count. */
__global__ void stream(int n, int kinds)
{
	revoff_u64 t = blockIdx.x * blockDim.x + threadIdx.x;

	for (revoff_u64 i = 0; i < (revoff_u64)n; ++i) {
		revoff_u64 h = mix(t << 32 | i);
		char bytes[200];

		if (kinds < 2 || i % 3 == 0) {
			small.post(t, i, h);
		} else if (kinds < 3 || i % 3 == 1) {
			large.post(t, i, h, h + 1, h + 2, h + 3, h + 4, h + 5,
				   h + 6);
		} else {
			revoff_u64 size = (t * 13 + i) % 200;
			for (revoff_u64 k = 0; k < size; ++k)
				bytes[k] = (char)(h + k);
			text.post(t, i, revoff::to<char>(bytes, size));
		}
	}
}

/*
 * One post whose handler waits for go; meanwhile as many as there is no room
 * for.  sent[0] counts those that went.
 */
__global__ void try_all(int n, const revoff_u32 *entered, revoff_u32 *go,
			revoff_u64 *sent)
{
	revoff_u64 ok = 0;

	small.post(0, 0, mix(0));
	while (!revoff::wire::load_acquire(entered))
		revoff::wire::pause(100);
	for (revoff_u64 i = 1; i < (revoff_u64)n; ++i)
		ok += small.try_post(0, i, mix(i));
	*sent = ok;
	revoff::wire::store_release(go, 1u);
}

/* Until the host says so; for a thread that plays the device. */
__global__ void deaf(revoff_u32 *started, const revoff_u32 *go)
{
	revoff::wire::store_release(started, 1u);
	while (!revoff::wire::load_acquire(go))
		revoff::wire::pause(100);
}
}
