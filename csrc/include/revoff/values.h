/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels see of a call besides its values: its status, and the arrays
 * and texts that go with it.
 */
#ifndef REVOFF_VALUES_H
#define REVOFF_VALUES_H

#include <revoff/image.h>

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
	return c && wire::load_relaxed(&c->abort) != 0; /* [abort load] */
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

} /* namespace revoff */

#endif /* REVOFF_VALUES_H */
