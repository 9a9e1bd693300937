/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls and posts of typed functions: the mailbox for one lane at a time,
 * ports for the lanes of a warp together, the ring for those that do not wait.
 */
#ifndef REVOFF_CALL_H
#define REVOFF_CALL_H

#include <revoff/arguments.h>

namespace revoff
{
namespace detail
{

/* ---- the mailbox ------------------------------------------------------------ */

/* From lock to release.  result is written only on success. */
template <class Result_, class... Args_>
__device__ inline status call_locked(revoff_gate *gate, revoff_descriptor *fn,
				     Result_ *result, const Args_ &...args)
{
	constexpr bool large = bytes_of<Result_>::value > 8;
	revoff_mailbox *m = __gomp_rev_offload_var;
	revoff_packet *p = &m->packet;
	filler<sizeof...(Args_) + large, direct> f(
		direct{ p->payload, REVOFF_PACKET_PAYLOAD });
	(pass<Args_>::fill(f, args), ...);
	if constexpr (large)
		f.item(f.along(0, sizeof(Result_)), sizeof(Result_),
		       aligned_kind<Result_, REVOFF_MAP_FORCE_FROM>::value);
	if (!f.fits) {
		wire::release(gate);
		return (status)wire::missed(fn, REVOFF_TOOBIG);
	}
	f.lists(p->addrs, p->sizes, p->kinds);
	pair *head = (pair *)p;
	head[0] = pair{ f.used | (revoff_u64)blockIdx.x << 32,
			blockIdx.y | (revoff_u64)blockIdx.z << 32 };
	head[1] = pair{ threadIdx.x | (revoff_u64)threadIdx.y << 32,
			threadIdx.z };
	m->call.mapnum = f.i; /* [words store] */
	*(pair *)&m->call.addrs =
		pair{ (revoff_u64)p->addrs, (revoff_u64)p->sizes };
	m->call.kinds = (revoff_u64)p->kinds;
	m->call.dev_num = __gomp_additional_icvs.device_num;
	wire::answer a = wire::exchange(m, fn);
	if (!a.given) {
		wire::leave(gate);
		return aborted_call;
	}
	if (a.status == REVOFF_OK) {
		f.i = 0;
		(pass<Args_>::back(f, args), ...);
		if constexpr (large)
			copy(result, (const void *)f.address[f.i],
			     sizeof(Result_));
		else if constexpr (!same<Result_, void>::value)
			from_words(*result, &a.result);
	}
	wire::release(gate);
	return (status)a.status;
}

/* ---- ports: values ------------------------------------------------------------ */

template <unsigned Value_> struct at_least_one {
	static constexpr unsigned value = Value_ ? Value_ : 1;
};

/* Values in words, there and back; g is those lanes that fit in a port. */
template <class Result_, class... Args_>
__device__ inline status call_words(wire::group g, const wire::place &here,
				    revoff_descriptor *fn, Result_ *result,
				    const Args_ &...args)
{
	constexpr unsigned in = (0u + ... + pass<Args_>::words);
	constexpr unsigned out = at_least_one<words_of<Result_>::value>::value;
	revoff_u64 words[at_least_one<in>::value];
	unsigned at = 0;
	((pass<Args_>::put(words + at, args), at += pass<Args_>::words), ...);
	(void)at;
	wire::port p;
	if (!p.claim(g, here))
		return aborted_call;
	wire::ask<in>(g, p, here, fn, REVOFF_FORM_WORDS, 0, words);
	wire::glance<words_of<Result_>::value> got =
		wire::await<words_of<Result_>::value>(g, p, here);
	revoff_i32 s = wire::status_of(got);
	if constexpr (!same<Result_, void>::value) {
		if (s == REVOFF_OK) {
			revoff_u64 back[out];
			REVOFF_UNROLL
			for (unsigned w = 0; w < out; ++w)
				back[w] = got.word(w);
			from_words(*result, back);
		}
	}
	p.release(g);
	return (status)s;
}

/* ---- ports: arrays --------------------------------------------------------------- */

template <class Result_, class... Args_> struct shape_of {
	static constexpr bool large = bytes_of<Result_>::value > 8;
	static constexpr unsigned items = sizeof...(Args_) + large;
	static constexpr revoff_u64 lists = lists_of<items>::value;
};

template <class Call_, class Result_, class... Args_>
__device__ inline void fill_all(Call_ &f, Result_ *, const Args_ &...args)
{
	(pass<Args_>::fill(f, args), ...);
	if constexpr (bytes_of<Result_>::value > 8)
		f.item(f.along(0, sizeof(Result_)), sizeof(Result_),
		       aligned_kind<Result_, REVOFF_MAP_FORCE_FROM>::value);
}

template <class Call_, class Result_, class... Args_>
__device__ inline void back_all(Call_ &f, revoff_u64 word, Result_ *result,
				const Args_ &...args)
{
	f.i = 0;
	(pass<Args_>::back(f, args), ...);
	if constexpr (bytes_of<Result_>::value > 8)
		f.place.get(result, f.address[f.i], sizeof(Result_));
	else if constexpr (!same<Result_, void>::value)
		from_words(*result, &word);
	else
		(void)word;
}

/* The frame is there: ask with it, and wait. */
template <class Result_, class... Args_>
__device__ inline wire::glance<1>
ask_with_frame(wire::group g, wire::port &p, const wire::place &here,
	       revoff_descriptor *fn, revoff_u32 slot, revoff_u32 stride)
{
	revoff_u64 items = shape_of<Result_, Args_...>::items;
	/*
	 * Each lane's own stores, and what it knows of others', before its
	 * request; the host has all requests before it reads.
	 */
	wire::fence_system(); /* [frame fence] */
	wire::ask<1>(g, p, here, fn, REVOFF_FORM_FRAME << 8 | stride / 16 << 16,
		     slot, &items);
	wire::glance<1> got = wire::await<1>(g, p, here);
	/* What the host wrote, and copied, is read after this. */
	wire::fence_system(); /* [frame-back fence] */
	return got;
}

/* Lanes whose frames lie in one slot, stride bytes apart. */
template <class Result_, class... Args_>
__device__ inline status call_frames(wire::group g, const wire::place &here,
				     revoff_u32 stride, revoff_descriptor *fn,
				     Result_ *result, const Args_ &...args)
{
	using shape = shape_of<Result_, Args_...>;
	using lists = lists_of<shape::items>;
	wire::port p;
	if (!p.claim(g, here))
		return aborted_call;
	revoff_u32 slot = wire::take_slot(g, here);
	char *frame = wire::slot_at(slot) + g.rank * stride;
	filler<shape::items, direct> f(direct{
		(revoff_u8 *)frame + lists::value, stride - lists::value });
	fill_all(f, result, args...);
	f.lists((revoff_u64 *)frame, (revoff_u64 *)(frame + lists::eights),
		(revoff_u16 *)(frame + 2 * lists::eights));
	wire::glance<1> got =
		ask_with_frame<Result_, Args_...>(g, p, here, fn, slot, stride);
	revoff_i32 s = wire::status_of(got);
	if (s == REVOFF_OK)
		back_all(f, got.word(0), result, args...);
	wire::give_slot(g, slot);
	p.release(g);
	return (status)s;
}

/* One lane with more data, in local or shared memory, than a slot holds. */
template <class Result_, class... Args_>
__device__ inline status call_streamed(wire::group g, const wire::place &here,
				       revoff_u64 total, revoff_descriptor *fn,
				       Result_ *result, const Args_ &...args)
{
	using shape = shape_of<Result_, Args_...>;
	using lists = lists_of<shape::items>;
	if (total > REVOFF_STREAM_MAX)
		return (status)wire::missed(fn, REVOFF_TOOBIG);
	wire::port p;
	if (!p.claim(g, here))
		return aborted_call;
	revoff_u32 slot = wire::take_slot(g, here);
	char *frame = wire::slot_at(slot);
	filler<shape::items, streamed> f(
		streamed{ &p, &here, fn, slot, total, total, g, REVOFF_OK });
	fill_all(f, result, args...);
	revoff_i32 s = f.place.status;
	if (s == REVOFF_OK) {
		f.lists((revoff_u64 *)frame,
			(revoff_u64 *)(frame + lists::eights),
			(revoff_u16 *)(frame + 2 * lists::eights));
		wire::glance<1> got = ask_with_frame<Result_, Args_...>(
			g, p, here, fn, slot, REVOFF_SLOT_BYTES);
		s = wire::status_of(got);
		if (s == REVOFF_OK) {
			back_all(f, got.word(0), result, args...);
			s = f.place.status;
		}
	} else {
		/* Its number has been answered. */
		--p.seq;
	}
	wire::give_slot(g, slot);
	p.release(g);
	return (status)s;
}

/*
 * As many lanes at a time as fit in a slot.  If one alone needs more, all of
 * them go one by one, since that is slow anyhow.
 */
template <class Result_, class... Args_>
__device__ inline status call_arrays(wire::group g, const wire::place &here,
				     revoff_descriptor *fn, Result_ *result,
				     const Args_ &...args)
{
	using shape = shape_of<Result_, Args_...>;
	filler<shape::items, measured> need(measured{ ~0ull >> 1 });
	fill_all(need, result, args...);
	revoff_u64 bytes = (shape::lists + need.used + 15) & ~15ull;
	bool fits = bytes <= REVOFF_SLOT_BYTES;
	revoff_u32 stride = wire::largest(g, fits ? (revoff_u32)bytes
						  : REVOFF_SLOT_BYTES + 16u);
	unsigned lanes =
		stride > REVOFF_SLOT_BYTES ? 1 : REVOFF_SLOT_BYTES / stride;
	status s = aborted_call;
	for (unsigned first = 0; first < g.n; first += lanes) {
		wire::group now = wire::part(g, first, lanes);
		if (now.n && fits)
			s = call_frames<Result_, Args_...>(
				now, here,
				lanes == 1 ? (revoff_u32)bytes : stride, fn,
				result, args...);
		else if (now.n)
			s = call_streamed<Result_, Args_...>(
				now, here, need.used, fn, result, args...);
		wire::sync(g);
	}
	return s;
}

/* ---- calls ------------------------------------------------------------------- */

template <class Result_, class... Args_>
__device__ inline status call_port(revoff_descriptor *fn, Result_ *result,
				   const Args_ &...args)
{
	constexpr unsigned in = (0u + ... + pass<Args_>::words);
	constexpr unsigned out = at_least_one<words_of<Result_>::value>::value;
	constexpr unsigned most = in > out ? in : out;
	wire::group g = wire::converge(fn);
	wire::place here = wire::where();
	if constexpr (!(true && ... && pass<Args_>::by_value) ||
		      most > REVOFF_PORT_WORDS) {
		return call_arrays<Result_, Args_...>(g, here, fn, result,
						      args...);
	} else if constexpr (most * 32 <= REVOFF_PORT_UNITS) {
		return call_words<Result_, Args_...>(g, here, fn, result,
						     args...);
	} else {
		constexpr unsigned lanes = REVOFF_PORT_UNITS / most;
		status s = aborted_call;
		for (unsigned first = 0; first < g.n; first += lanes) {
			wire::group now = wire::part(g, first, lanes);
			if (now.n)
				s = call_words<Result_, Args_...>(
					now, here, fn, result, args...);
			wire::sync(g);
		}
		return s;
	}
}

template <class Result_, class... Args_>
__device__ inline status call(revoff_descriptor *fn, Result_ *result,
			      const Args_ &...args)
{
	static_assert(sizeof...(Args_) + (bytes_of<Result_>::value > 8) <=
			      REVOFF_PACKET_MAPS,
		      "a reverse function takes at most 32 arguments");
	if (!wire::connected())
		return (status)wire::missed(fn, REVOFF_UNCONNECTED);
	if (__revoff_link.flags & REVOFF_LINK_PORTS)
		return call_port<Result_, Args_...>(fn, result, args...);
	status s = aborted_call;
	wire::each_lane([&] {
		revoff_gate *gate;
		if (wire::acquire(&gate))
			s = call_locked<Result_, Args_...>(gate, fn, result,
							   args...);
	});
	return s;
}

/* ---- posts ------------------------------------------------------------------- */

/* Data behind the words of a record; at counts on. */
template <class Type_>
__device__ inline void post_data(revoff_u32 slot, unsigned word, revoff_u32 *at,
				 const Type_ &v)
{
	if constexpr (!pass<Type_>::by_value) {
		const char *d = (const char *)pass<Type_>::data(v);
		revoff_u64 n = pass<Type_>::bytes(v);
		if (!d) {
			*wire::record_word(slot, word * 8) = REVOFF_POSTED_NULL;
			return;
		}
		*wire::record_word(slot, word * 8) = REVOFF_POSTED(*at, n);
		for (revoff_u64 i = 0; i < n; i += 8) {
			revoff_u64 w = 0;
			for (unsigned k = 0; k < 8 && i + k < n; ++k)
				((char *)&w)[k] = d[i + k];
			/* [record-data store] */
			*wire::record_word(slot, *at + (revoff_u32)i) = w;
		}
		*at += (revoff_u32)((n + 7) / 8 * 8);
	}
}

/*
 * The records of a whole warp in full lines: lanes exchange their words so
 * that each store of the warp writes 512 bytes side by side.  Writes of 16
 * bytes each would need a packet of the bus each.
 */
template <unsigned Count_>
__device__ inline bool store_together(wire::group g, revoff_u32 slot,
				      const revoff_u64 *words)
{
#if defined(__CUDA_ARCH__)
	if constexpr (Count_ == 3 || Count_ == 4) {
		if (g.n != 32)
			return false;
		REVOFF_UNROLL
		for (unsigned j = 0; j < 2; ++j) {
			int from = (int)(j * 16 + g.rank / 2);
			revoff_u64 a = __shfl_sync(g.mask, words[0], from);
			revoff_u64 b = __shfl_sync(g.mask, words[1], from);
			revoff_u64 c = __shfl_sync(g.mask, words[2], from);
			revoff_u64 d = Count_ == 4
					       ? __shfl_sync(g.mask,
							     words[Count_ - 1],
							     from)
					       : 0;
			bool odd = g.rank & 1;
			/* [record-lines store] */
			wire::store_pair(
				wire::record_word(slot + (unsigned)from,
						  odd * 16u),
				odd ? c : a, odd ? d : b);
		}
		return true;
	}
#endif
	(void)g;
	(void)slot;
	(void)words;
	return false;
}

template <class... Args_>
__device__ inline status post_lanes(wire::group g, const wire::place &here,
				    revoff_u32 slots, bool wait,
				    revoff_descriptor *fn, const Args_ &...args)
{
	constexpr unsigned count = (0u + ... + pass<Args_>::words);
	revoff_u64 wanted = ((revoff_u64)(g.n * slots) << 32) + 1, start = 0;
	unsigned taken = 1;
	if (g.rank == 0)
		taken = wait ? wire::reserve(wanted, &start)
			     : wire::try_reserve(wanted, &start);
	taken = wire::spread(g, taken);
	if (!taken)
		return aborted_call;
	start = wire::spread(g, start);
	revoff_u64 words[at_least_one<count>::value];
	unsigned at = 0;
	((pass<Args_>::put(words + at, args), at += pass<Args_>::words), ...);
	revoff_u32 slot = (revoff_u32)(start >> 32) + g.rank * slots;
	if (!store_together<count>(g, (revoff_u32)(start >> 32), words)) {
		/* A slot is 32 bytes: pairs of words do not straddle. */
		REVOFF_UNROLL
		for (unsigned w = 0; w + 1 < count; w += 2)
			/* [record store] */
			wire::store_pair(wire::record_word(slot, w * 8),
					 words[w], words[w + 1]);
		if constexpr (count % 2)
			/* [record-odd store] */
			*wire::record_word(slot, (count - 1) * 8) =
				words[count - 1];
	}
	if constexpr (!(true && ... && pass<Args_>::by_value)) {
		revoff_u32 end = count * 8;
		at = 0;
		((post_data(slot, at, &end, args), at += pass<Args_>::words),
		 ...);
	}
	(void)at;
	wire::publish(g, here, fn, slots, (revoff_u32)start);
	return ok;
}

/*
 * Into the ring, lanes together; the largest record gives the size of all.
 * More than half of the ring is not taken at once, so that this can go on.
 */
template <class... Args_>
__device__ inline status post(bool wait, revoff_descriptor *fn,
			      const Args_ &...args)
{
	static_assert((true && ... && pass<Args_>::one_way),
		      "a post has no answer: arrays go as revoff::to");
	if (!wire::connected())
		return (status)wire::missed(fn, REVOFF_UNCONNECTED);
	revoff_u64 bytes = 8 * (0u + ... + pass<Args_>::words);
	((bytes += (pass<Args_>::bytes(args) + 7) / 8 * 8), ...);
	if (bytes > REVOFF_PACKET_PAYLOAD)
		return (status)wire::missed(fn, REVOFF_TOOBIG);
	status s = aborted_call;
	wire::group g = wire::converge((const char *)fn + 1);
	wire::place here = wire::where();
	revoff_u32 slots =
		((revoff_u32)bytes + REVOFF_RECORD - 1) / REVOFF_RECORD;
	slots += !slots;
	if constexpr (!(true && ... && pass<Args_>::by_value))
		slots = wire::largest(g, slots);
	unsigned lanes = __revoff_link.nrecords / 2 / slots;
	for (unsigned first = 0; first < g.n; first += lanes) {
		wire::group now = wire::part(g, first, lanes);
		if (now.n)
			s = post_lanes<Args_...>(now, here, slots, wait, fn,
						 args...);
	}
	return s;
}

} /* namespace detail */
} /* namespace revoff */

#endif /* REVOFF_CALL_H */
