/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the arguments of a call to the words, items and data that travel, for
 * every transport.
 */
#ifndef REVOFF_ARGUMENTS_H
#define REVOFF_ARGUMENTS_H

#include <revoff/device.h>
#include <revoff/signature.h>
#include <revoff/values.h>

namespace revoff
{
namespace detail
{

/*
 * Small data travels with the call: a few posted writes of the device instead
 * of a 6 us copy by the host.  Reading an answer back costs the device a PCIe
 * round trip per batch of loads, so data that comes back pays earlier.
 */
constexpr revoff_u64 stage_in = 2048;
constexpr revoff_u64 stage_back = 256;

struct alignas(16) pair {
	revoff_u64 a, b;
};

/* Loads in batches of four, so that their PCIe round trips overlap. */
__device__ inline void copy(void *to, const void *from, revoff_u64 n)
{
	revoff_u64 i = 0;
	if ((((revoff_u64)to | (revoff_u64)from) & 15) == 0) {
		for (; i + 64 <= n; i += 64) {
			const pair *f = (const pair *)((const char *)from + i);
			pair *t = (pair *)((char *)to + i);
			pair p0 = f[0], p1 = f[1], p2 = f[2], p3 = f[3];
			t[0] = p0;
			t[1] = p1;
			t[2] = p2;
			t[3] = p3;
		}
	}
	if ((((revoff_u64)to | (revoff_u64)from) & 7) == 0) {
		for (; i + 8 <= n; i += 8)
			*(revoff_u64 *)((char *)to + i) =
				*(const revoff_u64 *)((const char *)from + i);
	}
	for (; i < n; ++i)
		((char *)to)[i] = ((const char *)from)[i];
}

/* A copy of memory: no aliasing, and a few moves where a loop of bytes is hundreds. */
template <class Type_>
__device__ inline void to_words(revoff_u64 *words, const Type_ &v)
{
	words[(sizeof(Type_) - 1) / 8] = 0;
	memcpy(words, &v, sizeof(Type_));
}
template <class Type_>
__device__ inline void from_words(Type_ &v, const revoff_u64 *words)
{
	memcpy(&v, words, sizeof(Type_));
}

/* The alignment of T as a kind word carries it. */
template <revoff_u64 Args_> struct log2_of {
	static constexpr unsigned value = 1 + log2_of<Args_ / 2>::value;
};
template <> struct log2_of<1> {
	static constexpr unsigned value = 0;
};
template <class Type_, unsigned Kind_> struct aligned_kind {
	static constexpr revoff_u16 value = Kind_ |
					    log2_of<alignof(Type_)>::value << 8;
};
template <class Type_> struct bytes_of {
	static constexpr revoff_u64 value = sizeof(Type_);
};
template <> struct bytes_of<void> {
	static constexpr revoff_u64 value = 0;
};
template <class Type_> struct words_of {
	static constexpr unsigned value =
		(unsigned)((bytes_of<Type_>::value + 7) / 8);
};

/* ---- where data goes ------------------------------------------------------ */

/* In memory that the host reads: a packet of the mailbox, or a frame. */
struct direct {
	revoff_u8 *payload;
	revoff_u64 capacity;

	__device__ revoff_u64 put(revoff_u64 at, const void *from, revoff_u64 n)
	{
		if (from)
			copy(payload + at, from, n); /* [frame store] */
		return (revoff_u64)(payload + at);
	}
	__device__ void get(void *to, revoff_u64 address, revoff_u64 n)
	{
		copy(to, (const void *)address, n); /* [frame load] */
	}
};

/* Nowhere: how much room would be needed? */
struct measured {
	revoff_u64 capacity;

	__device__ revoff_u64 put(revoff_u64, const void *, revoff_u64)
	{
		return 1;
	}
	__device__ void get(void *, revoff_u64, revoff_u64)
	{
	}
};

/*
 * In the port's stream: data that is too much for a slot goes through it in
 * pieces, one request each.  One lane at a time.
 */
struct streamed {
	wire::port *p;
	const wire::place *here;
	const void *fn;
	revoff_u32 slot;
	revoff_u64 capacity, total;
	wire::group g;
	revoff_i32 status;

	__device__ revoff_u64 put(revoff_u64 at, const void *from, revoff_u64 n)
	{
		for (revoff_u64 done = 0; from && done < n;) {
			revoff_u64 piece = n - done < REVOFF_SLOT_BYTES
						   ? n - done
						   : REVOFF_SLOT_BYTES;
			/* [piece store] */
			copy(wire::slot_at(slot), (const char *)from + done,
			     piece);
			transfer(REVOFF_FORM_SEND, at + done, piece);
			++p->seq;
			done += piece;
		}
		return REVOFF_STREAM | at;
	}
	__device__ void get(void *to, revoff_u64 address, revoff_u64 n)
	{
		for (revoff_u64 done = 0; done < n;) {
			revoff_u64 piece = n - done < REVOFF_SLOT_BYTES
						   ? n - done
						   : REVOFF_SLOT_BYTES;
			++p->seq;
			transfer(REVOFF_FORM_FETCH,
				 (address & ~REVOFF_STREAM) + done, piece);
			if (status == REVOFF_OK)
				/* [piece load] */
				copy((char *)to + done, wire::slot_at(slot),
				     piece);
			done += piece;
		}
	}
	/* One request, with the port's number. */
	__device__ void transfer(revoff_u32 form, revoff_u64 at, revoff_u64 n)
	{
		revoff_u64 words[3] = { at, n, total };
		wire::fence_system(); /* [piece fence] */
		wire::ask<3>(g, *p, *here, fn, form << 8, slot, words);
		revoff_i32 s = wire::status_of(wire::await<0>(g, *p, *here));
		wire::fence_system(); /* [piece-back fence] */
		if (status == REVOFF_OK)
			status = s;
	}
};

/*
 * The items of a call, collected in registers and written in 16-byte stores:
 * each store is a PCIe write that the publishing fence has to wait for.
 */
template <unsigned Count_, class Place_> struct filler {
	static constexpr unsigned room_for = (Count_ + 4) / 4 * 4;
	Place_ place;
	unsigned i;
	revoff_u64 used;
	bool fits;
	revoff_u64 address[room_for];
	revoff_u64 size[room_for];
	revoff_u64 kind[room_for];

	__device__ explicit filler(const Place_ &where)
	    : place(where), i(0), used(0), fits(true)
	{
		REVOFF_UNROLL
		for (unsigned k = 0; k < room_for; ++k)
			address[k] = size[k] = kind[k] = 0;
	}
	/* Take n bytes along; gives the address at which the host has them. */
	__device__ revoff_u64 along(const void *from, revoff_u64 n)
	{
		revoff_u64 at = (used + 15) & ~15ull;
		if (at > place.capacity || n > place.capacity - at) {
			fits = false;
			return 0;
		}
		used = at + n;
		return place.put(at, from, n);
	}
	__device__ void item(revoff_u64 a, revoff_u64 n, revoff_u16 k)
	{
		address[i] = a;
		size[i] = n;
		kind[i] = k;
		++i;
	}
	/*
	 * Memory that is not global cannot be reached by the host's copies and
	 * must come along; global memory that does not fit is left to them.
	 */
	__device__ void data(const void *d, revoff_u64 n, revoff_u16 k,
			     revoff_u64 limit)
	{
		revoff_u64 a = (revoff_u64)d;
		if (d && n &&
		    (k & REVOFF_KIND_MASK) != REVOFF_MAP_FORCE_ALLOC) {
			bool global = wire::is_global(d);
			revoff_u64 at = (used + 15) & ~15ull;
			/* Compared with a packet, so that all places agree. */
			if (!global ||
			    (n <= limit && at + n <= REVOFF_PACKET_PAYLOAD))
				a = along(d, n);
		}
		item(a, n, k);
	}
	/* The lists, each filled up to 16 bytes. */
	__device__ void lists(revoff_u64 *addrs, revoff_u64 *sizes,
			      revoff_u16 *kinds)
	{
		if constexpr (Count_ > 0) {
			REVOFF_UNROLL
			for (unsigned k = 0; k < Count_; k += 2) {
				/* [frame-lists store] */
				((pair *)addrs)[k / 2] =
					pair{ address[k], address[k + 1] };
				((pair *)sizes)[k / 2] =
					pair{ size[k], size[k + 1] };
			}
			REVOFF_UNROLL
			for (unsigned k = 0; k < Count_; k += 4)
				((revoff_u64 *)kinds)[k / 4] =
					kind[k] | kind[k + 1] << 16 |
					kind[k + 2] << 32 | kind[k + 3] << 48;
		}
	}
	/* Bring back what the handler wrote into what came along. */
	__device__ void back(void *d, revoff_u64 n)
	{
		revoff_u64 a = address[i++];
		if (a != (revoff_u64)d && n)
			place.get(d, a, n);
	}
};

/* Bytes of the lists of so many items, before the data of a frame. */
template <unsigned Count_> struct lists_of {
	static constexpr revoff_u64 eights = (Count_ * 8 + 15) / 16 * 16;
	static constexpr revoff_u64 twos = (Count_ * 2 + 15) / 16 * 16;
	static constexpr revoff_u64 value = 2 * eights + twos;
};

/* ---- arguments, by their type --------------------------------------------- */

/*
 * A value: words, and in a packet or frame an item; it goes into the record of
 * a post as it is.
 */
template <class Type_> struct pass {
	static constexpr bool by_value = true;
	static constexpr bool one_way = true;
	static constexpr unsigned words = words_of<Type_>::value;

	__device__ static void put(revoff_u64 *to, const Type_ &v)
	{
		to_words(to, v);
	}
	template <class Call_>
	__device__ static void fill(Call_ &f, const Type_ &v)
	{
		if constexpr (sizeof(Type_) <= 8) {
			revoff_u64 word;
			to_words(&word, v);
			f.item(word, sizeof(Type_),
			       REVOFF_MAP_FIRSTPRIVATE_INT);
		} else {
			f.item(f.along(&v, sizeof(Type_)), sizeof(Type_),
			       aligned_kind<Type_,
					    REVOFF_MAP_FIRSTPRIVATE>::value);
		}
	}
	template <class Call_>
	__device__ static void back(Call_ &f, const Type_ &)
	{
		++f.i;
	}
	__device__ static const void *data(const Type_ &)
	{
		return 0;
	}
	__device__ static revoff_u64 bytes(const Type_ &)
	{
		return 0;
	}
};

/* What the five kinds of array have in common. */
template <class Array_, unsigned Kind_, class Type_> struct pass_array {
	static constexpr bool by_value = false;
	static constexpr bool one_way = Kind_ == REVOFF_MAP_FORCE_TO;
	static constexpr unsigned words = 1;
	static constexpr bool comes_back = Kind_ == REVOFF_MAP_FORCE_FROM ||
					   Kind_ == REVOFF_MAP_FORCE_TOFROM;

	template <class Call_>
	__device__ static void fill(Call_ &f, const Array_ &v)
	{
		f.data(v.data, bytes(v), aligned_kind<Type_, Kind_>::value,
		       comes_back			 ? stage_back
		       : Kind_ == REVOFF_MAP_FORCE_ALLOC ? 0
							 : stage_in);
	}
	template <class Call_>
	__device__ static void back(Call_ &f, const Array_ &v)
	{
		if constexpr (comes_back)
			f.back((void *)v.data, bytes(v));
		else
			++f.i;
	}
	__device__ static const void *data(const Array_ &v)
	{
		return v.data;
	}
	__device__ static revoff_u64 bytes(const Array_ &v)
	{
		return v.n * sizeof(Type_);
	}
	/* The word of a post is written with its data. */
	__device__ static void put(revoff_u64 *to, const Array_ &)
	{
		*to = 0;
	}
};
template <class Type_>
struct pass<to<Type_>> : pass_array<to<Type_>, REVOFF_MAP_FORCE_TO, Type_> {};
template <class Type_>
struct pass<from<Type_>>
    : pass_array<from<Type_>, REVOFF_MAP_FORCE_FROM, Type_> {};
template <class Type_>
struct pass<tofrom<Type_>>
    : pass_array<tofrom<Type_>, REVOFF_MAP_FORCE_TOFROM, Type_> {};
template <class Type_>
struct pass<alloc<Type_>>
    : pass_array<alloc<Type_>, REVOFF_MAP_FORCE_ALLOC, Type_> {};
template <> struct pass<str> : pass_array<str, REVOFF_MAP_FORCE_TO, char> {};

} /* namespace detail */
} /* namespace revoff */

#endif /* REVOFF_ARGUMENTS_H */
