/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device half of the ports transport: claim a port, say the request in
 * words, look at the reply, give the port back.  protocol.h, "ports", has the
 * layout; docs/memory-order.md names what each store and load here is for.
 */
#ifndef REVOFF_PORTS_H
#define REVOFF_PORTS_H

#include <revoff/image.h>

namespace revoff
{
namespace wire
{

/* ---- lanes that call together -------------------------------------------- */

struct group {
	unsigned mask; /* of lanes of the warp */
	unsigned n;    /* how many */
	unsigned rank; /* of this lane among them */
};

__device__ inline unsigned lane_id()
{
#if defined(__CUDA_ARCH__)
	unsigned lane;
	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane;
#elif defined(REVOFF_CPU_DEVICE)
	return __revoff_cpu_runtime->lane();
#else
	return 0;
#endif
}

__device__ inline unsigned bits(unsigned mask)
{
#if defined(__CUDA_ARCH__)
	return (unsigned)__popc(mask);
#else
	return (unsigned)__builtin_popcount(mask);
#endif
}

__device__ inline unsigned first_lane(unsigned mask)
{
#if defined(__CUDA_ARCH__)
	return (unsigned)__ffs((int)mask) - 1;
#else
	return (unsigned)__builtin_ctz(mask);
#endif
}

__device__ inline group group_of(unsigned mask)
{
	return group{ mask, bits(mask), bits(mask & ((1u << lane_id()) - 1u)) };
}

/*
 * The lanes that are here with the same key.  The compiler may have merged
 * calls of two functions into one place, so the key is compared.
 */
__device__ inline group converge(const void *key)
{
	unsigned mask = 1;
#if defined(__CUDA_ARCH__)
	mask = __activemask();
	if (mask & (mask - 1))
		mask = __match_any_sync(mask, (revoff_u64)key);
#elif defined(REVOFF_CPU_DEVICE)
	mask = revoff_cpu_together(key);
#else
	(void)key;
#endif
	return group_of(mask);
}

/* Those of rank first .. first + count - 1; n is 0 for all others. */
__device__ inline group part(group g, unsigned first, unsigned count)
{
	if (g.rank - first >= count)
		return group{ 0, 0, 0 };
	unsigned mask = g.mask, out = 0;
	for (unsigned i = 0; mask && i < first + count; ++i) {
		if (i >= first)
			out |= mask & (0u - mask);
		mask &= mask - 1;
	}
	return group_of(out);
}

__device__ inline void sync(group g)
{
#if defined(__CUDA_ARCH__) || defined(REVOFF_CPU_DEVICE)
	if (g.n > 1)
		__syncwarp(g.mask);
#else
	(void)g;
#endif
}

/* The value of the lane of rank 0. */
template <class Type_> __device__ inline Type_ spread(group g, Type_ v)
{
#if defined(__CUDA_ARCH__) || defined(REVOFF_CPU_DEVICE)
	if (g.n > 1)
		return __shfl_sync(g.mask, v, (int)first_lane(g.mask));
#else
	(void)g;
#endif
	return v;
}

__device__ inline unsigned largest(group g, unsigned v)
{
#if defined(__CUDA_ARCH__) || defined(REVOFF_CPU_DEVICE)
	if (g.n > 1) {
		unsigned most = v;
		for (unsigned rest = g.mask; rest; rest &= rest - 1) {
			unsigned other =
				__shfl_sync(g.mask, v, (int)first_lane(rest));
			most = other > most ? other : most;
		}
		return most;
	}
#else
	(void)g;
#endif
	return v;
}

/* ---- claiming ------------------------------------------------------------- */

struct place {
	revoff_u32 warp;   /* linear warp in its block */
	revoff_u32 home;   /* linear warp in the grid, cut to 32 bits */
	revoff_u32 thread; /* as in the heads of requests and posts */
	revoff_u32 warps;  /* in the grid, cut to 32 bits */
};

__device__ inline place where()
{
#if defined(__CUDA_ARCH__) || defined(REVOFF_CPU_DEVICE)
	revoff_u32 linear =
		(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x +
		threadIdx.x;
	revoff_u32 warps = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;
	revoff_u32 block =
		(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
	revoff_u32 warp = linear / 32;
	return place{ warp, block * warps + warp,
		      warp | blockDim.x << 5 | blockDim.y << 16,
		      gridDim.x * gridDim.y * gridDim.z * warps };
#else
	return place{ 0, 0, 0, 0 };
#endif
}

#define REVOFF_TAKEN 0x80000000u
#ifndef REVOFF_POST_TURN
#define REVOFF_POST_TURN 256 /* ns */
#endif

/*
 * A free port near the warp's own, for the lane of rank 0.  The first try
 * nearly always succeeds: there are as many ports as warps that can be
 * resident.  Gives the port's state with the number of the next request, or 0
 * if the host has given the launch up.
 */
__device__ inline revoff_u64 find_port(revoff_u32 home, revoff_u64 *states,
				       revoff_u32 *port)
{
	revoff_u32 last = __revoff_link.nports - 1;
	unsigned ns = 64;
	for (revoff_u32 turn = 1;; ++turn) {
		revoff_u32 at = home++ & last;
		revoff_u64 old =
			/* [port atomic] */
			fetch_or(states + at, (revoff_u64)REVOFF_TAKEN);
		/* A port that has used up its numbers stays taken. */
		if ((revoff_u32)old < REVOFF_SEQ_LAST) {
			*port = at;
			return old + 1;
		}
		if (turn % 64)
			continue;
		if (load_relaxed(&control()->abort)) /* [abort load] */
			return 0;
		pause(ns);
		if (ns < 8192)
			ns *= 2;
	}
}

/* A port, and the number of the request that is being made. */
struct port {
	revoff_u32 index, seq;
	revoff_u32 hint; /* clock cycles before the first look at the reply */
	/* Of the link, read once: loads that do not wait for each other. */
	revoff_request *requests;
	const revoff_reply *replies;
	revoff_u8 *bells;
	revoff_u64 *states;

	/* False if the host has given the launch up. */
	__device__ bool claim(group g, const place &here)
	{
		requests = (revoff_request *)__revoff_link.requests;
		replies = (const revoff_reply *)__revoff_link.replies;
		bells = (revoff_u8 *)__revoff_link.bells;
		states = (revoff_u64 *)__revoff_link.states;
		revoff_u64 state = 0;
		index = 0;
		if (g.rank == 0)
			state = find_port(here.home, states, &index);
		state = spread(g, state);
		index = spread(g, index);
		seq = (revoff_u32)state;
		hint = (revoff_u32)(state >> 32);
		return seq != 0;
	}
	__device__ void release(group g)
	{
		/* All lanes have their replies, or the next owner's would. */
		sync(g); /* [port barrier] */
		if (g.rank == 0)
			/* [port store] */
			give_back(states + index, seq | (revoff_u64)hint << 32);
	}
	__device__ revoff_request *request() const
	{
		return requests + index;
	}
	__device__ const revoff_reply *reply() const
	{
		return replies + index;
	}
};

/* ---- asking --------------------------------------------------------------- */

__device__ inline void say(revoff_unit *to, revoff_u64 word, revoff_u32 seq)
{
	revoff_u64 number = (revoff_u64)seq << 32;
	/* [request store] */
	store_unit(to, (word & 0xffffffffu) | number, word >> 32 | number);
}

/*
 * Every store carries the number, so their order does not matter; the bell
 * only tells the host where to look.
 */
template <unsigned Count_>
__device__ inline void ask(group g, const port &p, const place &here,
			   const void *fn, revoff_u32 form, revoff_u32 slot,
			   const revoff_u64 *words)
{
	revoff_request *r = p.request();
	if constexpr (Count_ > 0) {
		REVOFF_UNROLL
		for (unsigned w = 0; w < Count_; ++w)
			say(r->word + w * g.n + g.rank, words[w], p.seq);
	}
	(void)words;
	revoff_u64 head[REVOFF_HEAD_UNITS] = {
		(revoff_u64)fn,
		g.mask | (revoff_u64)(Count_ | form) << 32,
		blockIdx.x | (revoff_u64)(blockIdx.y | blockIdx.z << 16) << 32,
		here.thread | (revoff_u64)slot << 32,
	};
	/* Unrolled, so that the array needs no memory. */
	REVOFF_UNROLL
	for (unsigned k = 0; k < REVOFF_HEAD_UNITS; ++k)
		if (g.rank == (g.n >= REVOFF_HEAD_UNITS ? k : 0))
			say(r->head + k, head[k], p.seq);
	if (g.rank == 0)
		/* [bell store] */
		store_byte(p.bells + p.index, (revoff_u8)p.seq);
}

/* ---- the reply ------------------------------------------------------------ */

/* Does a unit belong to this reply, or tell that the call failed? */
__device__ inline bool is_reply(revoff_u64 lo, revoff_u64 hi, revoff_u32 seq)
{
	revoff_u32 number = (revoff_u32)(lo >> 32);
	return (number & ~REVOFF_SEQ_FAILED) == seq &&
	       (revoff_u32)(hi >> 32) == number;
}

/*
 * One look at the Count_ words of this lane; none of a void function, whose
 * reply is a zero.
 */
template <unsigned Words_> struct glance {
	static constexpr unsigned Count_ = Words_ ? Words_ : 1;
	revoff_u64 lo[Count_], hi[Count_];

	__device__ void take(const revoff_unit *at, unsigned step)
	{
		REVOFF_UNROLL
		for (unsigned w = 0; w < Count_; ++w)
			/* [reply load] */
			load_unit(at + w * step, lo + w, hi + w);
	}
	/* The same where several words lie in a line. */
	__device__ void take_lines(const revoff_unit *at, unsigned step)
	{
		if constexpr (Count_ == 1) {
			take(at, step);
		} else {
			fence_device(); /* [reply-lines fence] */
			REVOFF_UNROLL
			for (unsigned w = 0; w < Count_; ++w)
				/* [reply-lines load] */
				load_cached(at + w * step, lo + w, hi + w);
		}
	}
	/* All words are there, or the call failed. */
	__device__ bool complete(revoff_u32 seq) const
	{
		bool all = is_reply(lo[0], hi[0], seq);
		if (lo[0] >> 63)
			return all;
		REVOFF_UNROLL
		for (unsigned w = 1; w < Count_; ++w)
			all = all && (revoff_u32)(lo[w] >> 32) == seq &&
			      (revoff_u32)(hi[w] >> 32) == seq;
		return all;
	}
	__device__ revoff_u64 word(unsigned w) const
	{
		return (lo[w] & 0xffffffffu) | hi[w] << 32;
	}
};

/*
 * Wait for the reply.  This ends because the host answers every request, also
 * of a launch that it has given up.
 *
 * A look takes more than a microsecond, and one that starts at once arrives
 * just before the reply.  How long it is better to wait depends on the handler
 * and the machine, so each port learns it: somewhat less after each look that
 * saw the reply, more after one that came too early.
 *
 * After that rank 0 alone looks, and the more warps there are, the less often:
 * looks of thousands of them would fill the bus that the answers want.
 */
#define REVOFF_LOOK_FIRST 900u /* cycles, before anything is known */
#define REVOFF_LOOK_MOST  4000u
template <unsigned Words_>
__device__ inline glance<Words_> await(group g, port &p, const place &here)
{
	const revoff_unit *at = p.reply()->word + g.rank;
	glance<Words_> got;
	revoff_u32 ticks = p.hint ? p.hint : REVOFF_LOOK_FIRST;
	wait_ticks(ticks);
	got.take_lines(at, g.n);
	bool there = got.complete(p.seq), seen = there;
	if (g.rank == 0) {
		p.hint = there			    ? ticks - ticks / 64
			 : ticks < REVOFF_LOOK_MOST ? ticks + ticks / 8 + 8
						    : ticks;
		revoff_u32 most = here.warps < 2048 ? here.warps * 16 : 32768;
		for (unsigned ns = 0; !seen;) {
			ns = ns + ns / 2 + 32;
			if (ns > most)
				ns = most;
			/* In a long wait a late look costs little. */
			if (most < 32768)
				most += most / 64 + 1;
			pause(ns);
			load_unit(at, got.lo, got.hi); /* [reply-first load] */
			seen = is_reply(got.lo[0], got.hi[0], p.seq);
		}
		there = there || Words_ < 2;
	}
	sync(g);
	/* The first word is there; all others are, or will be soon. */
	if (!there) {
		got.take_lines(at, g.n);
		while (!got.complete(p.seq))
			got.take(at, g.n);
	}
	progress();
	return got;
}

/* Status of a call by its reply. */
template <unsigned Words_>
__device__ inline revoff_i32 status_of(const glance<Words_> &got)
{
	return got.lo[0] >> 63 ? (revoff_i32)(got.lo[0] & 0xffffffffu)
			       : REVOFF_OK;
}

/* ---- slots ---------------------------------------------------------------- */

/* A slot for whoever has a port already, so one is given back soon. */
__device__ inline revoff_u32 find_slot(revoff_u32 home)
{
	revoff_u32 *states = (revoff_u32 *)__revoff_link.slot_states;
	revoff_u32 last = __revoff_link.nslots - 1;
	unsigned ns = 64;
	for (revoff_u32 turn = 1;; ++turn) {
		revoff_u32 at = home++ & last;
		if (fetch_or(states + at, 1u) == 0) /* [slot atomic] */
			return at;
		if (turn % 16)
			continue;
		pause(ns);
		if (ns < 8192)
			ns *= 2;
	}
}

__device__ inline revoff_u32 take_slot(group g, const place &here)
{
	return spread(g, g.rank == 0 ? find_slot(here.home) : 0u);
}

/* After sync: the other lanes have read their frames. */
__device__ inline void give_slot(group g, revoff_u32 slot)
{
	sync(g); /* [slot barrier] */
	/* The loads of this frame come before the next owner's stores. */
	fence_device(); /* [slot fence] */
	if (g.rank == 0)
		/* [slot store] */
		give_back((revoff_u32 *)__revoff_link.slot_states + slot, 0u);
}

__device__ inline char *slot_at(revoff_u32 slot)
{
	return (char *)__revoff_link.slots +
	       (revoff_u64)slot * REVOFF_SLOT_BYTES;
}

/* ---- posts ---------------------------------------------------------------- */

/* Records and heads that the ring has handed out, and those taken out. */
__device__ inline bool has_room(revoff_u64 end, revoff_u64 done)
{
	return (revoff_u32)(end >> 32) - (revoff_u32)(done >> 32) <=
		       __revoff_link.nrecords &&
	       (revoff_u32)end - (revoff_u32)done <= __revoff_link.nheads;
}

/*
 * Is there room up to end?  Host memory is asked only if it seems not, and by
 * one warp at a time: its loads of one line would wait for each other.
 */
__device__ inline bool room_now(revoff_u64 end)
{
	revoff_u64 *seen = (revoff_u64 *)__revoff_link.seen;
	revoff_u32 *asking = (revoff_u32 *)(seen + 1);
	if (has_room(end, local_load(seen))) /* [seen load] */
		return true;
	/* [asking load] [asking atomic] */
	if (local_relaxed(asking) || fetch_or(asking, 1u))
		return false;
	/* [room load] */
	revoff_u64 done = load_word((const revoff_u64 *)__revoff_link.done);
	local_store(seen, done); /* [seen store] */
	give_back(asking, 0u);	 /* [asking store] */
	return has_room(end, done);
}

/*
 * Take records and a head; the head's index goes in the low half, as both
 * come from one addition.  False: the host has given the launch up.  Whoever
 * took theirs before waits for nothing but the host, so this wait ends.
 *
 * When the ring is half full, the warps of a multiprocessor line up before
 * they take theirs: with thousands that wait and look at once, the one whose
 * turn it is hardly gets to run.
 */
__device__ inline bool reserve(revoff_u64 wanted, revoff_u64 *start)
{
	revoff_u64 *tail = (revoff_u64 *)__revoff_link.tail;
	revoff_u64 half = (revoff_u64)(__revoff_link.nrecords / 2) << 32 |
			  __revoff_link.nheads / 2;
	revoff_gate *g = 0;
	if (!room_now(local_load(tail) + half)) { /* [tail load] */
		g = gate();
		enter(g, REVOFF_POST_TURN);
	}
	*start = fetch_add(tail, wanted); /* [tail atomic] */
	unsigned ns = 256;
	bool given = true;
	for (unsigned turn = 1; !room_now(*start + wanted); ++turn) {
		/* [abort-ring load] */
		if (turn % 8 == 0 && load_relaxed(&control()->abort)) {
			given = false;
			break;
		}
		pause(ns);
		if (ns < 4096)
			ns *= 2;
	}
	leave(g);
	progress();
	return given;
}

/* The same, if there is room at once. */
__device__ inline bool try_reserve(revoff_u64 wanted, revoff_u64 *start)
{
	revoff_u64 *tail = (revoff_u64 *)__revoff_link.tail;
	revoff_u64 old = local_load(tail); /* [try-tail load] */
	do {
		if (!room_now(old + wanted))
			return false;
	} while (!swap_if(tail, &old, old + wanted)); /* [try-tail atomic] */
	*start = old;
	return true;
}

/* 8 bytes of a record, which may go on at the ring's start. */
__device__ inline revoff_u64 *record_word(revoff_u32 slot, revoff_u32 at)
{
	revoff_u64 size = (revoff_u64)__revoff_link.nrecords * REVOFF_RECORD;
	return (revoff_u64 *)((char *)__revoff_link.records +
			      (((revoff_u64)slot * REVOFF_RECORD + at) &
			       (size - 1)));
}

/*
 * The head makes the records count: its last word, with the lap, is stored
 * after a fence that covers the records of all lanes.  It goes alone: nothing
 * orders the two halves of a 16-byte store.
 */
__device__ inline void publish(group g, const place &here, const void *fn,
			       revoff_u32 slots, revoff_u32 index)
{
	revoff_post *h = (revoff_post *)__revoff_link.heads +
			 (index & (__revoff_link.nheads - 1));
	revoff_u32 lap = index / __revoff_link.nheads + 1;
	if (g.rank == 0) {
		/* [post store] */
		store_pair(h, (revoff_u64)fn, g.mask | (revoff_u64)slots << 32);
		((revoff_u64 *)h)[2] = /* [post-block store] */
			blockIdx.x | (revoff_u64)(blockIdx.y | blockIdx.z << 16)
					     << 32;
	}
	sync(g); /* [post barrier] */
	if (g.rank == 0) {
		fence_system();			/* [post fence] */
		store_last((revoff_u64 *)h + 3, /* [lap store] */
			   here.thread | (revoff_u64)lap << 32);
	}
}

} /* namespace wire */
} /* namespace revoff */

#endif /* REVOFF_PORTS_H */
