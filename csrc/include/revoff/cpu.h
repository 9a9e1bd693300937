/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA C++ for the CPU device: what a host C++ compiler needs to make a module
 * of csrc/cpu out of a kernel's source.  It is force-included before it
 * (-include revoff/cpu.h), and pyrevoff._cpu_source rewrites the few things
 * that no header can express.
 *
 * Each CUDA thread is a fiber, so a loop that waits for another thread must
 * let it run: __nanosleep(), __syncthreads(), a warp operation or one of
 * pyrevoff's calls do.  __shared__ memory is thread-local to the worker that
 * runs the block.  Not there: inline PTX, textures, cooperative groups,
 * dynamic parallelism, <<< >>>.
 */
#ifndef REVOFF_CPU_H
#define REVOFF_CPU_H

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "the CPU device needs C++17"
#endif

#define REVOFF_CPU_DEVICE 1

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <type_traits>
#include <utility>

#include "cpu_abi.h"
#include "cpu_math.h"
#include "cpu_types.h"

/* ---- the language -------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__	static __thread
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)	__attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)

/* ---- the module ---------------------------------------------------------- */

#define REVOFF_CPU_EXPORT __attribute__((weak, visibility("default"), used))
#define REVOFF_CPU_HIDDEN __attribute__((weak, visibility("hidden")))

/*
 * The launch's geometry, as true variables, so that it has the right types in
 * a printf and can be hidden by a local name.  The runtime sets threadIdx each
 * time it switches threads.
 */
REVOFF_CPU_HIDDEN __thread uint3 threadIdx = { 0, 0, 0 };
REVOFF_CPU_HIDDEN __thread uint3 blockIdx = { 0, 0, 0 };
REVOFF_CPU_HIDDEN __thread dim3 blockDim;
REVOFF_CPU_HIDDEN __thread dim3 gridDim;
REVOFF_CPU_HIDDEN __thread void *__revoff_cpu_dynamic = 0;
static constexpr int warpSize = REVOFF_CPU_WARP;

extern "C" {
REVOFF_CPU_EXPORT extern const unsigned __revoff_cpu_abi = REVOFF_CPU_ABI;
REVOFF_CPU_EXPORT const struct revoff_cpu_runtime *__revoff_cpu_runtime = 0;
/* The linker makes these where there are kernels. */
extern const struct revoff_cpu_kernel *const __start_revoff_cpu_kernels[]
	__attribute__((weak, visibility("hidden")));
extern const struct revoff_cpu_kernel *const __stop_revoff_cpu_kernels[]
	__attribute__((weak, visibility("hidden")));

REVOFF_CPU_HIDDEN void __revoff_cpu_vars(struct revoff_cpu_vars *vars)
{
	vars->thread_idx = &threadIdx.x;
	vars->block_idx = &blockIdx.x;
	vars->block_dim = &blockDim.x;
	vars->grid_dim = &gridDim.x;
	vars->dynamic_shared = &__revoff_cpu_dynamic;
}

REVOFF_CPU_EXPORT extern const struct revoff_cpu_module __revoff_cpu_module = {
	__start_revoff_cpu_kernels,
	__stop_revoff_cpu_kernels,
	__revoff_cpu_vars,
};
}

/* ---- kernels ------------------------------------------------------------- */

template <class... Params_> struct revoff_cpu_params {
	static constexpr size_t count = sizeof...(Params_);

	struct table {
		struct revoff_cpu_param at[sizeof...(Params_) + 1] = {};
		size_t bytes = 0;
	};
	template <class Type_> static constexpr unsigned type_of()
	{
		return std::is_pointer<Type_>::value ? REVOFF_CPU_POINTER
		       : std::is_floating_point<Type_>::value ? REVOFF_CPU_FLOAT
		       : std::is_integral<Type_>::value ||
				       std::is_enum<Type_>::value
			       ? REVOFF_CPU_INTEGER
			       : REVOFF_CPU_OTHER;
	}
	template <class Type_> static constexpr void put(table &t, size_t &n)
	{
		t.bytes = (t.bytes + alignof(Type_) - 1) / alignof(Type_) *
			  alignof(Type_);
		t.at[n].offset = t.bytes;
		t.at[n].size = sizeof(Type_);
		t.at[n].type = type_of<Type_>();
		t.bytes += sizeof(Type_);
		++n;
	}
	static constexpr table make()
	{
		table t;
		size_t n = 0;
		(put<Params_>(t, n), ...);
		(void)n;
		return t;
	}
};

template <auto Kernel> struct revoff_cpu_thunk;
template <class... Params_, void (*Kernel)(Params_...)>
struct revoff_cpu_thunk<Kernel> {
	static_assert((!std::is_reference<Params_>::value && ...),
		      "a kernel's parameters cannot be references");

	using params = revoff_cpu_params<Params_...>;
	static constexpr typename params::table table = params::make();

	template <size_t... Index_>
	static void call(const char *block, std::index_sequence<Index_...>)
	{
		(void)block;
		Kernel(*(const Params_ *)(block + table.at[Index_].offset)...);
	}
	static void run(const void *block)
	{
		constexpr auto each = std::index_sequence_for<Params_...>{};
#if defined(__cpp_exceptions)
		/* Nothing is above a kernel that could catch it. */
		try {
			call((const char *)block, each);
			return;
		} catch (...) {
		}
		/* Not in the handler: the exception has to be freed first. */
		__revoff_cpu_runtime->fail(719,
					   "a C++ exception left the kernel");
#else
		call((const char *)block, each);
#endif
	}
};

/* List a kernel in its module; stands where the kernel's name is in scope. */
#define REVOFF_CPU_KERNEL(...)	REVOFF_CPU_KERNEL_(__COUNTER__, __VA_ARGS__)
#define REVOFF_CPU_KERNEL_(...) REVOFF_CPU_LIST(__VA_ARGS__)
#define REVOFF_CPU_LIST(n, ...)                                           \
	static const struct revoff_cpu_kernel revoff_cpu_kernel_##n = {   \
		#__VA_ARGS__,                                             \
		::revoff_cpu_thunk<&__VA_ARGS__>::run,                    \
		(void (*)(void)) & __VA_ARGS__,                           \
		::revoff_cpu_thunk<&__VA_ARGS__>::table.at,               \
		::revoff_cpu_thunk<&__VA_ARGS__>::params::count,          \
		::revoff_cpu_thunk<&__VA_ARGS__>::table.bytes,            \
	};                                                                \
	static const struct revoff_cpu_kernel *const revoff_cpu_entry_##n \
		__attribute__((used, section("revoff_cpu_kernels"))) =    \
			&revoff_cpu_kernel_##n;

/* ---- memory -------------------------------------------------------------- */

/* extern __shared__ T x[]; in a function becomes T *x = this. */
template <class Type_> inline Type_ *revoff_cpu_dynamic_shared()
{
	return (Type_ *)__revoff_cpu_dynamic;
}
/* ... and at namespace scope an object that acts as the array. */
template <class Type_> struct revoff_cpu_dynamic_array {
	operator Type_ *() const
	{
		return (Type_ *)__revoff_cpu_dynamic;
	}
	Type_ *operator&() const
	{
		return (Type_ *)__revoff_cpu_dynamic;
	}
};

inline int revoff_cpu_is_shared(const void *p)
{
	return __revoff_cpu_runtime->is_shared(p);
}
inline int revoff_cpu_is_global(const void *p)
{
	return !__revoff_cpu_runtime->is_local(p) && !revoff_cpu_is_shared(p);
}
inline unsigned __isGlobal(const void *p)
{
	return (unsigned)revoff_cpu_is_global(p);
}
inline unsigned __isShared(const void *p)
{
	return (unsigned)revoff_cpu_is_shared(p);
}
inline unsigned __isLocal(const void *p)
{
	return (unsigned)__revoff_cpu_runtime->is_local(p);
}
/* There is no constant memory of its own: __constant__ data is global. */
inline unsigned __isConstant(const void *)
{
	return 0;
}

template <class Type_> inline Type_ __ldg(const Type_ *p)
{
	return *p;
}
template <class Type_> inline Type_ __ldca(const Type_ *p)
{
	return *p;
}
template <class Type_> inline Type_ __ldcg(const Type_ *p)
{
	return *p;
}
template <class Type_> inline Type_ __ldcs(const Type_ *p)
{
	return *p;
}
template <class Type_> inline Type_ __ldcv(const Type_ *p)
{
	return *(const volatile Type_ *)p;
}
template <class Type_> inline void __stcg(Type_ *p, Type_ v)
{
	*p = v;
}
template <class Type_> inline void __stcs(Type_ *p, Type_ v)
{
	*p = v;
}
template <class Type_> inline void __stwb(Type_ *p, Type_ v)
{
	*p = v;
}
template <class Type_> inline void __stwt(Type_ *p, Type_ v)
{
	*p = v;
}

#if defined(__GNUC__) && !defined(__clang__) && defined(__SANITIZE_THREAD__)
/* GCC's ThreadSanitizer does not know fences, but it knows this. */
REVOFF_CPU_HIDDEN unsigned __revoff_cpu_fence_word;
inline void __threadfence()
{
	__atomic_fetch_add(&__revoff_cpu_fence_word, 1u, __ATOMIC_SEQ_CST);
}
#else
inline void __threadfence()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}
#endif
inline void __threadfence_block()
{
	__threadfence();
}
inline void __threadfence_system()
{
	__threadfence();
}

/* ---- time, and giving others a turn -------------------------------------- */

inline void revoff_cpu_pause()
{
	__revoff_cpu_runtime->pause();
}
inline void revoff_cpu_progress()
{
	__revoff_cpu_runtime->progress();
}
inline unsigned long long revoff_cpu_clock_ns()
{
	return __revoff_cpu_runtime->clock_ns();
}
inline void __nanosleep(unsigned)
{
	revoff_cpu_pause();
}
inline long long clock64()
{
	return (long long)revoff_cpu_clock_ns();
}
inline unsigned long long __globaltimer()
{
	return revoff_cpu_clock_ns();
}

/* ---- ends ---------------------------------------------------------------- */

inline void __trap()
{
	__revoff_cpu_runtime->fail(719, "__trap()");
}

extern "C" {
/* What assert() calls; the C library's own would end the process. */
REVOFF_CPU_HIDDEN void __assert_fail(const char *what, const char *file,
				     unsigned line, const char *) noexcept
{
	char text[192];
	snprintf(text, sizeof(text), "%s:%u: assertion \"%s\" failed", file,
		 line, what);
	__revoff_cpu_runtime->fail(710, text);
	__builtin_unreachable();
}
}

/* ---- barriers and warps -------------------------------------------------- */

inline void __syncthreads()
{
	__revoff_cpu_runtime->sync_threads(REVOFF_CPU_SYNC_OR, 0);
}
inline int __syncthreads_count(int predicate)
{
	return __revoff_cpu_runtime->sync_threads(REVOFF_CPU_SYNC_COUNT,
						  predicate);
}
inline int __syncthreads_and(int predicate)
{
	return __revoff_cpu_runtime->sync_threads(REVOFF_CPU_SYNC_AND,
						  predicate);
}
inline int __syncthreads_or(int predicate)
{
	return __revoff_cpu_runtime->sync_threads(REVOFF_CPU_SYNC_OR,
						  predicate);
}

enum revoff_cpu_meeting { /* lanes in different operations do not meet */
	revoff_cpu_sync_lanes,
	revoff_cpu_vote,
	revoff_cpu_shuffle,
	revoff_cpu_match,
	revoff_cpu_reduce
};

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
	__revoff_cpu_runtime->meet(mask, revoff_cpu_sync_lanes, 0, 0);
}
/*
 * Lanes are never known to have converged, so the honest answer is oneself:
 * code that serves "the active lanes" then serves them one at a time.
 */
inline unsigned __activemask()
{
	return 1u << __revoff_cpu_runtime->lane();
}
/* For pyrevoff's own calls: the lanes that come with this key now. */
inline unsigned revoff_cpu_together(const void *key)
{
	return __revoff_cpu_runtime->together(key);
}
inline void revoff_cpu_exit_thread()
{
	__revoff_cpu_runtime->exit_thread();
}
/* Lanes that voted true, and in *came all that voted. */
inline unsigned revoff_cpu_ballot(unsigned mask, int predicate, unsigned *came)
{
	unsigned long long values[REVOFF_CPU_WARP];
	unsigned r = 0;
	*came = __revoff_cpu_runtime->meet(mask, revoff_cpu_vote,
					   predicate != 0, values);
	for (unsigned rest = *came; rest; rest &= rest - 1) {
		int lane = __builtin_ctz(rest);
		r |= (unsigned)values[lane] << lane;
	}
	return r;
}
inline unsigned __ballot_sync(unsigned mask, int predicate)
{
	unsigned came;
	return revoff_cpu_ballot(mask, predicate, &came);
}
inline int __any_sync(unsigned mask, int predicate)
{
	return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate)
{
	unsigned came;
	return revoff_cpu_ballot(mask, predicate, &came) == came;
}

template <class Type_> inline unsigned long long revoff_cpu_word(Type_ v)
{
	static_assert(sizeof(Type_) <= 8 &&
			      std::is_trivially_copyable<Type_>::value,
		      "a warp operation takes values of at most 8 bytes");
	unsigned long long word = 0;
	__builtin_memcpy(&word, &v, sizeof(v));
	return word;
}
/* The value of lane `from`, or one's own if that lane is not there. */
template <class Type_>
inline Type_ revoff_cpu_get(unsigned mask, Type_ v, int from)
{
	unsigned long long values[REVOFF_CPU_WARP];
	unsigned came = __revoff_cpu_runtime->meet(mask, revoff_cpu_shuffle,
						   revoff_cpu_word(v), values);
	if (from >= 0 && came >> from & 1)
		__builtin_memcpy(&v, &values[from], sizeof(v));
	return v;
}
template <class Type_>
inline Type_ __shfl_sync(unsigned mask, Type_ v, int lane, int width = 32)
{
	int self = (int)__revoff_cpu_runtime->lane();
	return revoff_cpu_get(mask, v,
			      (self & ~(width - 1)) | (lane & (width - 1)));
}
template <class Type_>
inline Type_ __shfl_up_sync(unsigned mask, Type_ v, unsigned delta,
			    int width = 32)
{
	int self = (int)__revoff_cpu_runtime->lane();
	bool there = (unsigned)(self & (width - 1)) >= delta;
	return revoff_cpu_get(mask, v, there ? self - (int)delta : -1);
}
template <class Type_>
inline Type_ __shfl_down_sync(unsigned mask, Type_ v, unsigned delta,
			      int width = 32)
{
	int self = (int)__revoff_cpu_runtime->lane();
	bool there = (self & (width - 1)) + (unsigned long long)delta <
		     (unsigned long long)width;
	return revoff_cpu_get(mask, v, there ? self + (int)delta : -1);
}
template <class Type_>
inline Type_ __shfl_xor_sync(unsigned mask, Type_ v, int bits, int width = 32)
{
	int self = (int)__revoff_cpu_runtime->lane(), from = self ^ bits;
	/* A lane of a later group is out of reach, of an earlier one not. */
	bool there = from >= 0 && from <= (self | (width - 1)) && from < 32;
	return revoff_cpu_get(mask, v, there ? from : -1);
}
template <class Type_> inline unsigned __match_any_sync(unsigned mask, Type_ v)
{
	unsigned long long values[REVOFF_CPU_WARP], mine = revoff_cpu_word(v);
	unsigned r = 0, came = __revoff_cpu_runtime->meet(
				mask, revoff_cpu_match, mine, values);
	for (unsigned rest = came; rest; rest &= rest - 1) {
		int lane = __builtin_ctz(rest);
		r |= (unsigned)(values[lane] == mine) << lane;
	}
	return r;
}
template <class Type_>
inline unsigned __match_all_sync(unsigned mask, Type_ v, int *all)
{
	unsigned long long values[REVOFF_CPU_WARP], mine = revoff_cpu_word(v);
	unsigned came = __revoff_cpu_runtime->meet(mask, revoff_cpu_match, mine,
						   values);
	*all = 1;
	for (unsigned rest = came; rest; rest &= rest - 1)
		*all &= values[__builtin_ctz(rest)] == mine;
	return *all ? came : 0;
}
template <class Type_, class Call_>
inline Type_ revoff_cpu_fold(unsigned mask, Type_ v, Call_ fold)
{
	unsigned long long values[REVOFF_CPU_WARP];
	unsigned came = __revoff_cpu_runtime->meet(mask, revoff_cpu_reduce,
						   revoff_cpu_word(v), values);
	Type_ r = (Type_)values[__builtin_ctz(came)];
	for (unsigned rest = came & (came - 1); rest; rest &= rest - 1)
		r = fold(r, (Type_)values[__builtin_ctz(rest)]);
	return r;
}
#define REVOFF_CPU_REDUCE(name, Type_, expression)                     \
	inline Type_ __reduce_##name##_sync(unsigned mask, Type_ v)    \
	{                                                              \
		return revoff_cpu_fold(mask, v,                        \
				       [](Type_ a, Type_ b) -> Type_ { \
					       return expression;      \
				       });                             \
	}
REVOFF_CPU_REDUCE(add, unsigned, a + b)
REVOFF_CPU_REDUCE(min, unsigned, b < a ? b : a)
REVOFF_CPU_REDUCE(max, unsigned, a < b ? b : a)
REVOFF_CPU_REDUCE(and, unsigned, a &b)
REVOFF_CPU_REDUCE(or, unsigned, a | b)
REVOFF_CPU_REDUCE(xor, unsigned, a ^ b)
REVOFF_CPU_REDUCE(add, int, (int)((unsigned)a + (unsigned)b))
REVOFF_CPU_REDUCE(min, int, b < a ? b : a)
REVOFF_CPU_REDUCE(max, int, a < b ? b : a)
#undef REVOFF_CPU_REDUCE

#include "cpu_atomic.h"

#endif /* REVOFF_CPU_H */
