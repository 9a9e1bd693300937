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
 * shared or local memory (through the mailbox the last two up to 16 KiB).
 *
 *   note.post(x);                      // does not wait; void functions only
 */
#ifndef PYREVOFF_H
#define PYREVOFF_H

#include <revoff/call.h>

namespace revoff
{
namespace detail
{

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
	/* Send and go on; waits only while the host is a whole ring behind. */
	__device__ status post(Args_... args) const
	{
		return detail::post<Args_...>(true, Call_::self(), args...);
	}
	/* Does not wait even then: false, and the record is counted. */
	__device__ bool try_post(Args_... args) const
	{
		status s =
			detail::post<Args_...>(false, Call_::self(), args...);
		if (s == aborted_call && wire::control())
			/* [dropped atomic] */
			wire::count(&wire::control()->dropped);
		return s == ok;
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
	static_assert(::revoff::detail::is_ascii(#name),                        \
		      "a reverse function's name has ASCII letters only");      \
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

#include <revoff/output.h>

#endif /* PYREVOFF_H */
