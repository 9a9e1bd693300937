/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device half of the mailbox transport: lock, fill, publish, wait,
 * release; and libgomp's entry, over either transport.  Header only, so
 * that an image made by any front end that compiles CUDA C++ carries it;
 * csrc/device/pyrevoff.cu makes the same code a library.
 */
#ifndef REVOFF_DEVICE_H
#define REVOFF_DEVICE_H

#include <revoff/ports.h>

namespace revoff
{
namespace wire
{

/*
 * fn, mapnum, addrs, sizes in two 16-byte looks that travel together: the one
 * with fn is last and acquires.
 */
__device__ inline void look(const rev_offload *r, revoff_u64 *state)
{
#if defined(__CUDA_ARCH__)
	/* [result load] */
	asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%4+16];\n\t"
		     "ld.acquire.sys.v2.u64 {%2, %3}, [%4];" /* [answer load] */
		     : "=&l"(state[2]), "=&l"(state[3]), "=&l"(state[0]),
		       "=&l"(state[1])
		     : "l"(r)
		     : "memory");
#else
	state[0] = load_acquire(&r->fn);     /* [cpu-answer load] */
	state[1] = load_relaxed(&r->mapnum); /* [cpu-status load] */
	state[2] = load_relaxed(&r->addrs);  /* [cpu-result load] */
	state[3] = load_relaxed(&r->sizes);  /* [cpu-mark load] */
#endif
}

__device__ inline bool try_lock(revoff_u32 *lock)
{
	/* [lock load] [lock atomic] */
	return local_relaxed(lock) == 0 && exchange_acquire(lock, 1u) == 0;
}

/*
 * The device-wide lock for whoever is at the head of its gate.  The sleeps
 * grow with the time waited.  The abort word is in host memory, each look a
 * PCIe round trip: it is read seldom.
 */
__device__ inline bool wait_for_lock(revoff_u32 *lock)
{
	unsigned ns = 64;
	for (unsigned turn = 1; !try_lock(lock); ++turn) {
		/* [abort load] */
		if (turn % 16 == 0 && load_relaxed(&control()->abort))
			return false;
		pause(ns);
		if (ns < 8192)
			ns *= 2;
	}
	return true;
}

/*
 * One caller of the device at a time.  *g is the gate to leave afterwards, or
 * 0 if the lock was free: then there is no queue to join.
 */
__device__ inline bool acquire(revoff_gate **g)
{
	revoff_u32 *lock = lock_word();
	*g = 0;
	if (!try_lock(lock)) {
		*g = gate();
		enter(*g, 4096);
		if (!wait_for_lock(lock)) {
			leave(*g);
			return false;
		}
	}
	/*
	 * The patch's own lock costs what it costs there, but it never has to
	 * decide: without PCIe atomics an exchange in host memory is a read
	 * and a write of the device's L2, and can be lost.
	 */
	if (__revoff_link.flags & REVOFF_LINK_LOCK)
		/* [patch-lock atomic] */
		exchange_sys(&__gomp_rev_offload_var->call.lock, 1u);
	progress();
	return true;
}

__device__ inline void release(revoff_gate *g)
{
	if (__revoff_link.flags & REVOFF_LINK_LOCK)
		/* [patch-unlock atomic] */
		exchange_sys(&__gomp_rev_offload_var->call.lock, 0u);
	local_release(lock_word(), 0u); /* [lock store] */
	leave(g);
}

/* What the host put in place of the message. */
struct answer {
	bool given;
	revoff_i32 status;
	revoff_u64 result;
};

/*
 * Hand the filled mailbox over and wait for it to come back.  The release
 * store of fn publishes every store before it, the packet included; the
 * acquire load that sees 0 makes all that the host did before visible.
 *
 * Status and result stand in the words beside fn.  They are asked for together
 * with it, because each further look at host memory costs a PCIe round trip;
 * if they were read too early (the mark is missing) they are read again.
 *
 * given is false if the host said that no answer will come.  It then frees
 * the mailbox itself, since it may still write a late answer into it.
 */
__device__ inline answer exchange(revoff_mailbox *m, const void *fn)
{
	revoff_control *c = control();
	rev_offload *r = &m->call;
	revoff_u64 state[4];
	store_release(&r->fn, (revoff_u64)fn); /* [fn store] */
	for (unsigned turn = 1;; ++turn) {
		look(r, state);
		if (state[0] == 0)
			break;
		/* [leave load] */
		if (turn % 32 == 0 && load_acquire(&c->leave)) {
			/* An answer given before "leave" counts. */
			if (load_acquire(&r->fn) == 0) /* [fn-again load] */
				continue;
			/* None of its stores may come after the reset. */
			fence_system();	     /* [deserted fence] */
			count(&c->deserted); /* [deserted atomic] */
			return answer{ false, REVOFF_ABORTED, 0 };
		}
#if defined(REVOFF_CPU_DEVICE)
		pause(0);
#endif
	}
	progress();
	if ((state[1] & state[3] & REVOFF_ANSWER_MARK) == 0)
		look(r, state);
	return answer{ true, (revoff_i32)(state[1] & 0xffffffffu), state[2] };
}

/*
 * The lanes of a warp that come here together call one after the other, and
 * the rest of them waits at a barrier, not at the lock.  Lanes elsewhere
 * (divergent code) form groups of their own; nobody waits for them.
 */
template <class Call_> __device__ inline void each_lane(Call_ f)
{
#if defined(__CUDA_ARCH__)
	unsigned mask = __activemask(), lane;
	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	for (unsigned todo = mask; todo; todo &= todo - 1) {
		if (lane == (unsigned)__ffs((int)todo) - 1)
			f();
		__syncwarp(mask);
	}
#else
	f();
#endif
}

/*
 * libgomp's lists go into the packet when they fit, which saves the host three
 * copies; it tells by their addresses.
 */
__device__ inline void fill(revoff_u64 mapnum, void **hostaddrs,
			    revoff_u64 *sizes, revoff_u16 *kinds)
{
	revoff_mailbox *m = __gomp_rev_offload_var;
	m->call.mapnum = mapnum; /* [words store] */
	m->call.dev_num = __gomp_additional_icvs.device_num;
	if (!(__revoff_link.flags & REVOFF_LINK_PACKET) ||
	    mapnum > REVOFF_PACKET_MAPS) {
		m->call.addrs = (revoff_u64)hostaddrs;
		m->call.sizes = (revoff_u64)sizes;
		m->call.kinds = (revoff_u64)kinds;
		return;
	}
	revoff_packet *p = &m->packet;
	p->payload_bytes = 0;
	for (unsigned i = 0; i < (unsigned)mapnum; ++i) {
		p->addrs[i] = (revoff_u64)hostaddrs[i];
		p->sizes[i] = sizes[i];
		p->kinds[i] = kinds[i];
	}
	m->call.addrs = (revoff_u64)p->addrs;
	m->call.sizes = (revoff_u64)p->sizes;
	m->call.kinds = (revoff_u64)p->kinds;
}

/*
 * libgomp's call through a port: its five words, and the lists in a slot when
 * they fit.
 */
__device__ inline void target_port(const void *fn, revoff_u64 mapnum,
				   void **hostaddrs, revoff_u64 *sizes,
				   revoff_u16 *kinds)
{
	group g = group_of(1u << lane_id());
	place here = where();
	port p;
	if (!p.claim(g, here))
		return;
	bool lists = (__revoff_link.flags & REVOFF_LINK_PACKET) && mapnum &&
		     mapnum <= REVOFF_PACKET_MAPS;
	revoff_u32 slot = 0;
	revoff_u64 words[5] = { mapnum, (revoff_u64)hostaddrs,
				(revoff_u64)sizes, (revoff_u64)kinds,
				(revoff_u32)__gomp_additional_icvs.device_num };
	if (lists) {
		slot = take_slot(g, here);
		revoff_packet *to = (revoff_packet *)slot_at(slot);
		for (unsigned i = 0; i < (unsigned)mapnum; ++i) {
			/* [frame-lists store] */
			to->addrs[i] = (revoff_u64)hostaddrs[i];
			to->sizes[i] = sizes[i];
			to->kinds[i] = kinds[i];
		}
		words[1] = (revoff_u64)to->addrs;
		words[2] = (revoff_u64)to->sizes;
		words[3] = (revoff_u64)to->kinds;
	}
	/* The mapped data, too, is the host's to copy from here on. */
	fence_system(); /* [frame fence] */
	ask<5>(g, p, here, fn, REVOFF_FORM_GOMP << 8, slot, words);
	await<0>(g, p, here);
	fence_system(); /* [frame-back fence] */
	if (lists)
		give_slot(g, slot);
	p.release(g);
}

/* libgomp's entry. */
__device__ inline void target(revoff_i32 device, const void *fn,
			      revoff_u64 mapnum, void **hostaddrs,
			      revoff_u64 *sizes, revoff_u16 *kinds)
{
	if (device != REVOFF_HOST_FALLBACK || fn == 0) {
		missed(fn, REVOFF_BADCALL);
		return;
	}
	if (!connected()) {
		missed(fn, REVOFF_UNCONNECTED);
		return;
	}
	each_lane([&] {
		revoff_gate *g;
		if (__revoff_link.flags & REVOFF_LINK_PORTS) {
			target_port(fn, mapnum, hostaddrs, sizes, kinds);
			return;
		}
		if (!acquire(&g))
			return;
		fill(mapnum, hostaddrs, sizes, kinds);
		if (exchange(__gomp_rev_offload_var, fn).given)
			release(g);
		else
			leave(g);
	});
}

} /* namespace wire */
} /* namespace revoff */

/*
 * Emitted by the library, inline (so only where used) in an image that is
 * compiled from source.  flags, depend and args are ignored, as in libgomp.
 */
#ifdef REVOFF_LIBRARY
#define REVOFF_ENTRY
#else
#define REVOFF_ENTRY inline
#endif
extern "C" REVOFF_ENTRY __device__ void
GOMP_target_ext(int device, void *fn, size_t mapnum, void **hostaddrs,
		size_t *sizes, unsigned short *kinds, unsigned flags,
		void **depend, void **args)
{
	(void)flags;
	(void)depend;
	(void)args;
	revoff::wire::target(device, fn, mapnum, hostaddrs, (revoff_u64 *)sizes,
			     kinds);
}

#endif /* REVOFF_DEVICE_H */
