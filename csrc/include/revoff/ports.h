/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device half of the ports transport: claim a port, say the request in
 * words, look at the reply, give the port back.  protocol.h, "ports", has the
 * layout; docs/memory-order.md names what each store and load here is for.
 */
#ifndef REVOFF_PORTS_H
#define REVOFF_PORTS_H

#include <revoff/atomic.h>

namespace revoff
{
namespace wire
{

__device__ inline revoff_control *control();

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
	return group{ mask, bits(mask),
		      bits(mask & ((1u << lane_id()) - 1u)) };
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
			unsigned other = __shfl_sync(g.mask, v,
						     (int)first_lane(rest));
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
};

__device__ inline place where()
{
#if defined(__CUDA_ARCH__) || defined(REVOFF_CPU_DEVICE)
	revoff_u32 linear = (threadIdx.z * blockDim.y + threadIdx.y) *
				    blockDim.x +
			    threadIdx.x;
	revoff_u32 warps =
		(blockDim.x * blockDim.y * blockDim.z + 31) / 32;
	revoff_u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x +
			   blockIdx.x;
	revoff_u32 warp = linear / 32;
	return place{ warp, block * warps + warp,
		      warp | blockDim.x << 5 | blockDim.y << 16 };
#else
	return place{ 0, 0, 0 };
#endif
}

#define REVOFF_TAKEN 0x80000000u

/*
 * A free port near the warp's own, for the lane of rank 0.  The first try
 * nearly always succeeds: there are as many ports as warps that can be
 * resident.  Gives the number of the next request, or 0 if the host has given
 * the launch up.
 */
__device__ inline revoff_u32 find_port(revoff_u32 home, revoff_u32 *states,
				       revoff_u32 *port)
{
	revoff_u32 last = __revoff_link.nports - 1;
	unsigned ns = 64;
	for (revoff_u32 turn = 1;; ++turn) {
		revoff_u32 at = home++ & last;
		revoff_u32 old = fetch_or(states + at, REVOFF_TAKEN);
		/* A port that has used up its numbers stays taken. */
		if (old < REVOFF_SEQ_LAST) {
			*port = at;
			return old + 1;
		}
		if (turn % 64)
			continue;
		if (load_relaxed(&control()->abort))
			return 0;
		pause(ns);
		if (ns < 8192)
			ns *= 2;
	}
}

/* A port, and the number of the request that is being made. */
struct port {
	revoff_u32 index, seq;
	/* Of the link, read once: loads that do not wait for each other. */
	revoff_request *requests;
	const revoff_reply *replies;
	revoff_u8 *bells;
	revoff_u32 *states;

	/* False if the host has given the launch up. */
	__device__ bool claim(group g, const place &here)
	{
		requests = (revoff_request *)__revoff_link.requests;
		replies = (const revoff_reply *)__revoff_link.replies;
		bells = (revoff_u8 *)__revoff_link.bells;
		states = (revoff_u32 *)__revoff_link.states;
		index = seq = 0;
		if (g.rank == 0)
			seq = find_port(here.home, states, &index);
		seq = spread(g, seq);
		index = spread(g, index);
		return seq != 0;
	}
	__device__ void release(group g)
	{
		/* All lanes have their replies, or the next owner's would. */
		sync(g);
		if (g.rank == 0)
			give_back(states + index, seq);
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
		store_byte(p.bells + p.index, (revoff_u8)p.seq);
}

/* ---- the reply ------------------------------------------------------------ */

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
			load_unit(at + w * step, lo + w, hi + w);
	}
	/* All words are there, or the call failed. */
	__device__ bool complete(revoff_u32 seq) const
	{
		revoff_u32 first = (revoff_u32)(lo[0] >> 32), odd = 0;
		if (first == (seq | REVOFF_SEQ_FAILED))
			return (revoff_u32)(hi[0] >> 32) == first;
		/* All bits, or the compiler makes two loads of the one. */
		if (Words_ == 0)
			return lo[0] == (revoff_u64)seq << 32 && hi[0] == lo[0];
		REVOFF_UNROLL
		for (unsigned w = 0; w < Count_; ++w)
			odd |= ((revoff_u32)(lo[w] >> 32) ^ seq) |
			       ((revoff_u32)(hi[w] >> 32) ^ seq);
		return odd == 0;
	}
	__device__ revoff_u64 word(unsigned w) const
	{
		return (lo[w] & 0xffffffffu) | hi[w] << 32;
	}
};

#if defined(__CUDA_ARCH__)
/*
 * A look at host memory takes more than a microsecond.  Several of them on
 * their way, started one after the other, see a reply sooner than one at a
 * time; each at its own copy, since the next look at a line waits for the
 * last one.
 */
#ifndef REVOFF_LOOK_TICKS
#define REVOFF_LOOK_TICKS 1800 /* of one look, clock cycles */
#endif
template <unsigned Words_>
__device__ inline bool look_often(const revoff_unit *at, revoff_u32 seq,
				  glance<Words_> &out)
{
	constexpr unsigned count = glance<Words_>::Count_;
	constexpr unsigned looks = REVOFF_COPIES(count);
	glance<Words_> look[looks];
	REVOFF_UNROLL
	for (unsigned d = 0; d < looks; ++d) {
		if (d)
			wait_ticks(REVOFF_LOOK_TICKS / looks);
		look[d].take(at + d * 4 * count, 4);
	}
	for (unsigned turn = 0; turn < 16; ++turn) {
		REVOFF_UNROLL
		for (unsigned d = 0; d < looks; ++d) {
			if (look[d].complete(seq)) {
				out = look[d];
				return true;
			}
			look[d].take(at + d * 4 * count, 4);
		}
	}
	return false;
}
#endif

/*
 * Wait for the reply.  This ends because the host answers every request, also
 * of a launch that it has given up.  First quickly; then rank 0 alone looks,
 * less and less often, since the looks of thousands of warps would fill the
 * bus that the answers want.
 */
template <unsigned Words_>
__device__ inline glance<Words_> await(group g, const port &p)
{
	const revoff_unit *at = p.reply()->word + g.rank;
	unsigned step = REVOFF_REPLY_STEP(g.n);
	glance<Words_> got;
#if defined(__CUDA_ARCH__)
	bool there = false;
	if (g.n == 1) {
		there = look_often(at, p.seq, got);
	} else {
		for (unsigned turn = 0; !there && turn < 3; ++turn) {
			got.take(at, step);
			there = got.complete(p.seq);
		}
	}
	if (!there && g.rank == 0) {
		unsigned ns = 256;
		do {
			pause(ns);
			if (ns < 8192)
				ns += ns / 4;
			got.take(at, step);
		} while (!got.complete(p.seq));
		there = true;
	}
	sync(g);
	/* Rank 0 has its own: the others' are there, or will be soon. */
	while (!there) {
		got.take(at, step);
		there = got.complete(p.seq);
	}
#else
	for (;;) {
		got.take(at, step);
		if (got.complete(p.seq))
			break;
		pause(0);
	}
	progress();
#endif
	return got;
}

/* Status of a call by its reply. */
template <unsigned Words_>
__device__ inline revoff_i32 status_of(const glance<Words_> &got)
{
	return got.lo[0] >> 63 ? (revoff_i32)(got.lo[0] & 0xffffffffu) :
				 REVOFF_OK;
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
		if (fetch_or(states + at, 1u) == 0)
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
	sync(g);
	/* The loads of this frame come before the next owner's stores. */
	fence_device();
	if (g.rank == 0)
		give_back((revoff_u32 *)__revoff_link.slot_states + slot, 0u);
}

__device__ inline char *slot_at(revoff_u32 slot)
{
	return (char *)__revoff_link.slots + (revoff_u64)slot * REVOFF_SLOT_BYTES;
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
	if (has_room(end, local_load(seen)))
		return true;
	if (local_relaxed(asking) || fetch_or(asking, 1u))
		return false;
	revoff_u64 done = load_word((const revoff_u64 *)__revoff_link.done);
	local_store(seen, done);
	give_back(asking, 0u);
	return has_room(end, done);
}

/*
 * Take records and a head; the head's index goes in the low half, as both
 * come from one addition.  False: the host has given the launch up.  Whoever
 * took theirs before waits for nothing but the host, so this wait ends.
 */
__device__ inline bool reserve(revoff_u64 wanted, revoff_u64 *start)
{
	*start = fetch_add((revoff_u64 *)__revoff_link.tail, wanted);
	unsigned ns = 256;
	for (unsigned turn = 1; !room_now(*start + wanted); ++turn) {
		if (turn % 8 == 0 && load_relaxed(&control()->abort))
			return false;
		pause(ns);
		if (ns < 4096)
			ns *= 2;
	}
	progress();
	return true;
}

/* The same, if there is room at once. */
__device__ inline bool try_reserve(revoff_u64 wanted, revoff_u64 *start)
{
	revoff_u64 *tail = (revoff_u64 *)__revoff_link.tail;
	revoff_u64 old = local_load(tail);
	do {
		if (!room_now(old + wanted))
			return false;
	} while (!swap_if(tail, &old, old + wanted));
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
 * The head makes the records count: its second half, with the lap, is stored
 * after a fence that covers the records of all lanes.
 */
__device__ inline void publish(group g, const place &here, const void *fn,
			       revoff_u32 slots, revoff_u32 index)
{
	revoff_post *h = (revoff_post *)__revoff_link.heads +
			 (index & (__revoff_link.nheads - 1));
	revoff_u32 lap = index / __revoff_link.nheads + 1;
	if (g.rank == 0)
		store_pair(h, (revoff_u64)fn,
			   g.mask | (revoff_u64)slots << 32);
	sync(g);
	if (g.rank == 0) {
		fence_system();
		store_last((char *)h + 16,
			   blockIdx.x |
				   (revoff_u64)(blockIdx.y | blockIdx.z << 16)
					   << 32,
			   here.thread | (revoff_u64)lap << 32);
	}
}

} /* namespace wire */
} /* namespace revoff */

#endif /* REVOFF_PORTS_H */
