/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each image carries, whatever its transport: the variables that the host
 * fills, and what kernels find through them.
 */
#ifndef REVOFF_IMAGE_H
#define REVOFF_IMAGE_H

#include <revoff/protocol.h>

#if !defined(REVOFF_CPU_DEVICE) && !defined(__CUDACC__)
#error "pyrevoff.h is device code: compile it with nvcc, NVRTC, or for the CPU device"
#endif

/*
 * A variable that the host finds by name.  With -rdc every translation unit
 * has it, so it must be weak; without, and on the CPU device, a plain
 * definition is wanted (an inline one would become STB_GNU_UNIQUE there, and
 * two loaded images would share it).
 */
#if defined(__CUDACC_RDC__) && !defined(REVOFF_CPU_DEVICE)
#define REVOFF_GLOBAL inline __device__
#else
#define REVOFF_GLOBAL __device__
#endif

#if defined(__CUDA_ARCH__)
#define REVOFF_UNROLL _Pragma("unroll")
#else
#define REVOFF_UNROLL
#endif

extern "C" {
REVOFF_GLOBAL struct revoff_mailbox *__gomp_rev_offload_var = 0;
/* clang-format off */
REVOFF_GLOBAL struct revoff_link __revoff_link = {
	REVOFF_ABI_VERSION, (revoff_u32)sizeof(struct revoff_link),
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
};
/* clang-format on */
REVOFF_GLOBAL struct revoff_icvs __gomp_additional_icvs = { 0, 0, 0, 0 };
}

#include <revoff/atomic.h>

namespace revoff
{
namespace wire
{

__device__ inline revoff_u32 *lock_word()
{
	return (revoff_u32 *)__revoff_link.lock;
}

__device__ inline revoff_control *control()
{
	return (revoff_control *)__revoff_link.control;
}

/*
 * A call that could not be sent leaves a note in mapped host memory, so that
 * run() can report it at no cost.  With no host at all there is nobody to tell
 * but the caller.
 */
__device__ inline revoff_i32 missed(const void *fn, revoff_i32 status)
{
	revoff_control *c = control();
	if (c) {
		/* [missed-fn store] */
		store_relaxed(&c->missed_fn, (revoff_u64)fn);
		/* [missed-status store] */
		store_relaxed((revoff_u32 *)&c->missed_status,
			      (revoff_u32)status);
		count(&c->missed); /* [missed atomic] */
	}
	return status;
}

/* The gate of this multiprocessor; the CPU device has one. */
__device__ inline revoff_gate *gate()
{
	unsigned at = 0;
#if defined(__CUDA_ARCH__)
	asm volatile("mov.u32 %0, %%smid;" : "=r"(at));
#endif
	return (revoff_gate *)__revoff_link.gates + at % REVOFF_GATES;
}

/*
 * Wait for one's turn at the gate.  Whoever is ahead needs some ns, so that
 * is how long to sleep before looking again: thousands of waiting warps ask
 * for little.  This wait needs no abort word of its own,
 * since the one ahead never stays: it makes its call, or leaves.
 */
__device__ inline void enter(revoff_gate *g, unsigned ns)
{
	revoff_u32 mine = fetch_add(&g->next, 1u); /* [gate atomic] */
	for (;;) {
		/* [gate load] */
		revoff_u32 ahead = mine - local_acquire(&g->serving);
		if (ahead == 0)
			return;
		pause(ahead < 128 ? ahead * ns : 128 * ns);
	}
}

/* Only the one whose turn it is writes this word.  No gate: nothing to do. */
__device__ inline void leave(revoff_gate *g)
{
	if (g)
		/* [gate store] [gate-own load] */
		local_release(&g->serving, local_relaxed(&g->serving) + 1);
}

__device__ inline bool connected()
{
	return __gomp_rev_offload_var != 0 && __revoff_link.lock != 0 &&
	       (__revoff_link.flags & REVOFF_LINK_CONNECTED);
}

} /* namespace wire */
} /* namespace revoff */

#endif /* REVOFF_IMAGE_H */
