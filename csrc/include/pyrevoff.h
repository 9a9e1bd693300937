/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyrevoff.h: call host functions from inside a running kernel.
 *
 *   REVOFF_FUNCTION(interp, double(double));
 *   ...
 *   double y = interp(x);              // waits for the host's answer
 *
 *   double y;
 *   if (interp.try_call(&y, x) != revoff::ok)   // the host gave up
 *           return;
 *
 * Every lane calls for itself, also in divergent code.  If a call fails, the
 * returned value is all zero bits; try_call says why.  Arrays are passed as
 * revoff::to(pointer, count) and its sisters; the pointer may be global,
 * shared or local memory (the last two up to the packet's 16 KiB).
 */
#ifndef PYREVOFF_H
#define PYREVOFF_H

#include <revoff/device.h>
#include <revoff/signature.h>

namespace revoff
{

/* What became of a call; the numbers are the wire's. */
enum status : int {
	ok = REVOFF_OK,
	handler_failed = REVOFF_HANDLER,
	aborted_call = REVOFF_ABORTED,
	unbound = REVOFF_UNBOUND,
	unknown = REVOFF_UNKNOWN,
	bad_map = REVOFF_BADMAP,
	copy_failed = REVOFF_COPYFAILED,
	unconnected = REVOFF_UNCONNECTED,
	too_big = REVOFF_TOOBIG,
	bad_call = REVOFF_BADCALL
};

/*
 * 1 once the host has given this launch up (a handler raised, Ctrl-C, a time
 * limit): end early.  Reads host memory, about a microsecond on a GPU.
 */
__device__ inline bool aborted()
{
	revoff_control *c = wire::control();
	return c && wire::load_relaxed(&c->abort) != 0;
}

/* Data that the handler reads: it gets a read-only array of n elements. */
template <class Type_> struct to {
	const Type_ *data;
	revoff_u64 n;
	__device__ to(const Type_ *pointer, revoff_u64 count)
	    : data(pointer), n(count)
	{
	}
};
/* Data that the handler fills; what it leaves alone comes back as it was. */
template <class Type_> struct from {
	Type_ *data;
	revoff_u64 n;
	__device__ from(Type_ *pointer, revoff_u64 count)
	    : data(pointer), n(count)
	{
	}
};
/* Data that the handler reads and changes. */
template <class Type_> struct tofrom {
	Type_ *data;
	revoff_u64 n;
	__device__ tofrom(Type_ *pointer, revoff_u64 count)
	    : data(pointer), n(count)
	{
	}
};
/* Scratch memory for the handler: zeros, and nothing is copied back. */
template <class Type_> struct alloc {
	Type_ *data;
	revoff_u64 n;
	__device__ alloc(Type_ *pointer, revoff_u64 count)
	    : data(pointer), n(count)
	{
	}
};
/* Text: bytes up to the first NUL, or an explicit length. */
struct str {
	const char *data;
	revoff_u64 n;
	__device__ str(const char *text) : data(text), n(0)
	{
		if (text)
			while (text[n])
				++n;
	}
	__device__ str(const char *text, revoff_u64 bytes)
	    : data(text), n(bytes)
	{
	}
};

namespace detail
{

/*
 * Small data travels in the packet: a few posted writes of the device instead
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

/*
 * The items of a call, collected in registers and written to the packet in
 * 16-byte stores: each store is a PCIe write that the publishing fence has to
 * wait for.
 */
template <unsigned Count_> struct filler {
	static constexpr unsigned room_for = (Count_ + 4) / 4 * 4;
	revoff_packet *p;
	unsigned i;
	revoff_u32 used;
	bool fits;
	revoff_u64 address[room_for];
	revoff_u64 size[room_for];
	revoff_u64 kind[room_for];

	__device__ explicit filler(revoff_packet *packet)
	    : p(packet), i(0), used(0), fits(true)
	{
		REVOFF_UNROLL
		for (unsigned k = 0; k < room_for; ++k)
			address[k] = size[k] = kind[k] = 0;
	}
	/* Room for n bytes, or 0. */
	__device__ revoff_u8 *room(revoff_u64 n)
	{
		revoff_u32 at = (used + 15u) & ~15u;
		if (n > REVOFF_PACKET_PAYLOAD - (revoff_u64)at) {
			fits = false;
			return 0;
		}
		used = at + (revoff_u32)n;
		return p->payload + at;
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
	 * must fit; global memory that does not is left to them.
	 */
	__device__ void data(const void *d, revoff_u64 n, revoff_u16 k,
			     revoff_u64 limit, bool fill)
	{
		revoff_u64 a = (revoff_u64)d;
		if (d && n &&
		    (k & REVOFF_KIND_MASK) != REVOFF_MAP_FORCE_ALLOC) {
			bool global = wire::is_global(d);
			revoff_u32 at = (used + 15u) & ~15u;
			if (!global ||
			    (n <= limit && n <= REVOFF_PACKET_PAYLOAD - at)) {
				revoff_u8 *r = room(n);
				if (r && fill)
					copy(r, d, n);
				a = (revoff_u64)r;
			}
		}
		item(a, n, k);
	}
	__device__ void flush()
	{
		if constexpr (Count_ > 0) {
			REVOFF_UNROLL
			for (unsigned k = 0; k < Count_; k += 2) {
				((pair *)p->addrs)[k / 2] =
					pair{ address[k], address[k + 1] };
				((pair *)p->sizes)[k / 2] =
					pair{ size[k], size[k + 1] };
			}
			REVOFF_UNROLL
			for (unsigned k = 0; k < Count_; k += 4)
				((revoff_u64 *)p->kinds)[k / 4] =
					kind[k] | kind[k + 1] << 16 |
					kind[k + 2] << 32 | kind[k + 3] << 48;
		}
		pair *head = (pair *)p;
		head[0] = pair{ used | (revoff_u64)blockIdx.x << 32,
				blockIdx.y | (revoff_u64)blockIdx.z << 32 };
		head[1] = pair{ threadIdx.x | (revoff_u64)threadIdx.y << 32,
				threadIdx.z };
	}
	/* Bring back what the handler wrote into the packet. */
	__device__ void back(void *d, revoff_u64 n)
	{
		revoff_u64 a = address[i++];
		if (a != (revoff_u64)d && n)
			copy(d, (const void *)a, n);
	}
};

template <class Type_> struct pass {
	template <class Call_>
	__device__ static void fill(Call_ &f, const Type_ &v)
	{
		if constexpr (sizeof(Type_) <= 8) {
			revoff_u64 word = 0;
			/* Byte by byte: no aliasing, no padding surprise. */
			for (unsigned k = 0; k < sizeof(Type_); ++k)
				((char *)&word)[k] = ((const char *)&v)[k];
			f.item(word, sizeof(Type_),
			       REVOFF_MAP_FIRSTPRIVATE_INT);
		} else {
			revoff_u8 *r = f.room(sizeof(Type_));
			if (r)
				copy(r, &v, sizeof(Type_));
			f.item((revoff_u64)r, sizeof(Type_),
			       aligned_kind<Type_,
					    REVOFF_MAP_FIRSTPRIVATE>::value);
		}
	}
	template <class Call_>
	__device__ static void back(Call_ &f, const Type_ &)
	{
		++f.i;
	}
};
template <class Type_> struct pass<to<Type_>> {
	template <class Call_>
	__device__ static void fill(Call_ &f, const to<Type_> &v)
	{
		f.data(v.data, v.n * sizeof(Type_),
		       aligned_kind<Type_, REVOFF_MAP_FORCE_TO>::value,
		       stage_in, true);
	}
	template <class Call_>
	__device__ static void back(Call_ &f, const to<Type_> &)
	{
		++f.i;
	}
};
template <class Type_> struct pass<from<Type_>> {
	template <class Call_>
	__device__ static void fill(Call_ &f, const from<Type_> &v)
	{
		f.data(v.data, v.n * sizeof(Type_),
		       aligned_kind<Type_, REVOFF_MAP_FORCE_FROM>::value,
		       stage_back, true);
	}
	template <class Call_>
	__device__ static void back(Call_ &f, const from<Type_> &v)
	{
		f.back(v.data, v.n * sizeof(Type_));
	}
};
template <class Type_> struct pass<tofrom<Type_>> {
	template <class Call_>
	__device__ static void fill(Call_ &f, const tofrom<Type_> &v)
	{
		f.data(v.data, v.n * sizeof(Type_),
		       aligned_kind<Type_, REVOFF_MAP_FORCE_TOFROM>::value,
		       stage_back, true);
	}
	template <class Call_>
	__device__ static void back(Call_ &f, const tofrom<Type_> &v)
	{
		f.back(v.data, v.n * sizeof(Type_));
	}
};
template <class Type_> struct pass<alloc<Type_>> {
	template <class Call_>
	__device__ static void fill(Call_ &f, const alloc<Type_> &v)
	{
		f.data(v.data, v.n * sizeof(Type_),
		       aligned_kind<Type_, REVOFF_MAP_FORCE_ALLOC>::value, 0,
		       false);
	}
	template <class Call_>
	__device__ static void back(Call_ &f, const alloc<Type_> &)
	{
		++f.i;
	}
};
template <> struct pass<str> {
	template <class Call_>
	__device__ static void fill(Call_ &f, const str &v)
	{
		f.data(v.data, v.n, REVOFF_MAP_FORCE_TO, stage_in, true);
	}
	template <class Call_>
	__device__ static void back(Call_ &f, const str &)
	{
		++f.i;
	}
};

/* From lock to release.  result is written only on success. */
template <class Result_, class... Args_>
__device__ inline status call_locked(revoff_gate *gate, revoff_descriptor *fn,
				     Result_ *result, const Args_ &...args)
{
	constexpr bool large = bytes_of<Result_>::value > 8;
	revoff_mailbox *m = __gomp_rev_offload_var;
	revoff_packet *p = &m->packet;
	filler<sizeof...(Args_) + large> f(p);
	(pass<Args_>::fill(f, args), ...);
	if constexpr (large)
		f.item((revoff_u64)f.room(sizeof(Result_)), sizeof(Result_),
		       aligned_kind<Result_, REVOFF_MAP_FORCE_FROM>::value);
	if (!f.fits) {
		wire::release(gate);
		return (status)wire::missed(fn, REVOFF_TOOBIG);
	}
	f.flush();
	m->call.mapnum = f.i;
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
			for (unsigned k = 0; k < sizeof(Result_); ++k)
				((char *)result)[k] = ((char *)&a.result)[k];
	}
	wire::release(gate);
	return (status)a.status;
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
	status s = aborted_call;
	wire::each_lane([&] {
		revoff_gate *gate;
		if (wire::acquire(&gate))
			s = call_locked<Result_, Args_...>(gate, fn, result,
							   args...);
	});
	return s;
}

template <class Call_, class Sig_> struct function;

template <class Call_, class... Args_> struct function<Call_, void(Args_...)> {
	__device__ void operator()(Args_... args) const
	{
		call<void>(Call_::self(), (void *)0, args...);
	}
	__device__ status try_call(Args_... args) const
	{
		return call<void>(Call_::self(), (void *)0, args...);
	}
};

template <class Call_, class Result_, class... Args_>
struct function<Call_, Result_(Args_...)> {
	__device__ Result_ operator()(Args_... args) const
	{
		Result_ result{};
		call<Result_>(Call_::self(), &result, args...);
		return result;
	}
	__device__ status try_call(Result_ *result, Args_... args) const
	{
		return call<Result_>(Call_::self(), result, args...);
	}
};

} /* namespace detail */
} /* namespace revoff */

/*
 * Declare a host function that kernels of this image may call, at namespace
 * scope.  The descriptor is found by its name; its address is the identity.
 */
#define REVOFF_FUNCTION(name, ...)                                              \
	extern "C" {                                                            \
	REVOFF_GLOBAL revoff_descriptor __revoff_fn_##name =                    \
		::revoff::detail::describe<__VA_ARGS__>(#name);                 \
	}                                                                       \
	struct revoff_function_##name                                           \
	    : ::revoff::detail::function<revoff_function_##name, __VA_ARGS__> { \
		__device__ static revoff_descriptor *self()                     \
		{                                                               \
			return &__revoff_fn_##name;                             \
		}                                                               \
	};                                                                      \
	static __device__ const revoff_function_##name name                     \
	{                                                                       \
	}

#endif /* PYREVOFF_H */
