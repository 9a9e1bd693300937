/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The atomic accesses of the device half, in the three spellings that its
 * compilers understand.
 */
#ifndef REVOFF_ATOMIC_H
#define REVOFF_ATOMIC_H

#include <revoff/protocol.h>

namespace revoff
{
namespace wire
{

/*
 * All synchronisation is here.  With the host its scope is "system"; the lock
 * and the gates, in device memory, are between threads of one device, and a
 * fence for these need not wait for PCIe.  __nv_atomic_* came with CUDA 12.8;
 * older compilers get the instructions that it makes.
 */
#if defined(REVOFF_CPU_DEVICE)
template <class Type_> inline Type_ load_relaxed(const Type_ *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <class Type_> inline Type_ load_acquire(const Type_ *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
template <class Type_> inline void store_relaxed(Type_ *p, Type_ v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}
template <class Type_> inline void store_release(Type_ *p, Type_ v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}
inline revoff_u32 exchange_sys(revoff_u32 *p, revoff_u32 v)
{
	return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL);
}
inline revoff_u32 exchange_acquire(revoff_u32 *p, revoff_u32 v)
{
	return __atomic_exchange_n(p, v, __ATOMIC_ACQUIRE);
}
inline revoff_u32 local_acquire(const revoff_u32 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
inline revoff_u32 local_relaxed(const revoff_u32 *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}
inline void local_release(revoff_u32 *p, revoff_u32 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}
inline revoff_u32 fetch_add(revoff_u32 *p, revoff_u32 v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
/* Released, as its fence_system() is none. */
inline void count(revoff_u32 *p)
{
	__atomic_fetch_add(p, 1u, __ATOMIC_RELEASE);
}
inline void pause(unsigned)
{
	revoff_cpu_pause();
}
/* A wait is over: the CPU device's back-off starts anew. */
inline void progress()
{
	revoff_cpu_progress();
}
inline bool is_global(const void *p)
{
	return revoff_cpu_is_global(p);
}
/*
 * Ports.  Units are ordered here at no cost; on a GPU they are relaxed, and
 * fence_system() stands where order is needed.  ThreadSanitizer knows the
 * former, but no fences.
 */
inline void store_unit(revoff_unit *to, revoff_u64 lo, revoff_u64 hi)
{
	__atomic_store_n(&to->lo, lo, __ATOMIC_RELEASE);
	__atomic_store_n(&to->hi, hi, __ATOMIC_RELEASE);
}
inline void load_unit(const revoff_unit *from, revoff_u64 *lo, revoff_u64 *hi)
{
	*lo = __atomic_load_n(&from->lo, __ATOMIC_ACQUIRE);
	*hi = __atomic_load_n(&from->hi, __ATOMIC_ACQUIRE);
}
inline void load_cached(const revoff_unit *from, revoff_u64 *lo, revoff_u64 *hi)
{
	load_unit(from, lo, hi);
}
inline void store_byte(revoff_u8 *to, revoff_u8 v)
{
	__atomic_store_n(to, v, __ATOMIC_RELAXED);
}
inline void store_pair(void *to, revoff_u64 a, revoff_u64 b)
{
	((revoff_u64 *)to)[0] = a;
	((revoff_u64 *)to)[1] = b;
}
/* The last word of a post's head, which makes it count. */
inline void store_last(revoff_u64 *to, revoff_u64 v)
{
	__atomic_store_n(to, v, __ATOMIC_RELEASE);
}
inline void fence_system()
{
}
inline void fence_device()
{
}
inline revoff_u32 fetch_or(revoff_u32 *p, revoff_u32 v)
{
	return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL);
}
inline revoff_u64 fetch_or(revoff_u64 *p, revoff_u64 v)
{
	return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL);
}
inline revoff_u64 fetch_add(revoff_u64 *p, revoff_u64 v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
inline bool swap_if(revoff_u64 *p, revoff_u64 *old, revoff_u64 v)
{
	return __atomic_compare_exchange_n(p, old, v, false, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}
inline revoff_u64 load_word(const revoff_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
/* What one warp has read of "done" is another's leave to write records. */
inline revoff_u64 local_load(const revoff_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
inline void local_store(revoff_u64 *p, revoff_u64 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}
/* A port or a slot is given back. */
inline void give_back(revoff_u32 *p, revoff_u32 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}
inline void give_back(revoff_u64 *p, revoff_u64 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}
inline void wait_ticks(unsigned)
{
}
#elif defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ < 700
#error "pyrevoff needs sm_70 or later: system-scope release and acquire, and lanes that can wait for each other"
#endif
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1208
#define REVOFF_SYS __NV_THREAD_SCOPE_SYSTEM
template <class Type_> __device__ inline Type_ load_relaxed(const Type_ *p)
{
	return __nv_atomic_load_n((Type_ *)p, __NV_ATOMIC_RELAXED, REVOFF_SYS);
}
template <class Type_> __device__ inline Type_ load_acquire(const Type_ *p)
{
	return __nv_atomic_load_n((Type_ *)p, __NV_ATOMIC_ACQUIRE, REVOFF_SYS);
}
template <class Type_> __device__ inline void store_relaxed(Type_ *p, Type_ v)
{
	__nv_atomic_store_n(p, v, __NV_ATOMIC_RELAXED, REVOFF_SYS);
}
template <class Type_> __device__ inline void store_release(Type_ *p, Type_ v)
{
	__nv_atomic_store_n(p, v, __NV_ATOMIC_RELEASE, REVOFF_SYS);
}
__device__ inline revoff_u32 exchange_sys(revoff_u32 *p, revoff_u32 v)
{
	return __nv_atomic_exchange_n(p, v, __NV_ATOMIC_ACQ_REL, REVOFF_SYS);
}
__device__ inline revoff_u32 exchange_acquire(revoff_u32 *p, revoff_u32 v)
{
	return __nv_atomic_exchange_n(p, v, __NV_ATOMIC_ACQUIRE,
				      __NV_THREAD_SCOPE_DEVICE);
}
__device__ inline revoff_u32 local_acquire(const revoff_u32 *p)
{
	return __nv_atomic_load_n((revoff_u32 *)p, __NV_ATOMIC_ACQUIRE,
				  __NV_THREAD_SCOPE_DEVICE);
}
__device__ inline revoff_u32 local_relaxed(const revoff_u32 *p)
{
	return __nv_atomic_load_n((revoff_u32 *)p, __NV_ATOMIC_RELAXED,
				  __NV_THREAD_SCOPE_DEVICE);
}
__device__ inline void local_release(revoff_u32 *p, revoff_u32 v)
{
	__nv_atomic_store_n(p, v, __NV_ATOMIC_RELEASE,
			    __NV_THREAD_SCOPE_DEVICE);
}
#undef REVOFF_SYS
#else
__device__ inline revoff_u32 load_relaxed(const revoff_u32 *p)
{
	revoff_u32 v;
	asm volatile("ld.relaxed.sys.u32 %0, [%1];"
		     : "=r"(v)
		     : "l"(p)
		     : "memory");
	return v;
}
__device__ inline revoff_u64 load_acquire(const revoff_u64 *p)
{
	revoff_u64 v;
	asm volatile("ld.acquire.sys.u64 %0, [%1];"
		     : "=l"(v)
		     : "l"(p)
		     : "memory");
	return v;
}
__device__ inline revoff_u32 load_acquire(const revoff_u32 *p)
{
	revoff_u32 v;
	asm volatile("ld.acquire.sys.u32 %0, [%1];"
		     : "=r"(v)
		     : "l"(p)
		     : "memory");
	return v;
}
template <class Type_> __device__ inline void store_relaxed(Type_ *p, Type_ v)
{
	if (sizeof(Type_) == 8)
		asm volatile("st.relaxed.sys.u64 [%0], %1;"
			     :
			     : "l"(p), "l"((revoff_u64)v)
			     : "memory");
	else
		asm volatile("st.relaxed.sys.u32 [%0], %1;"
			     :
			     : "l"(p), "r"((revoff_u32)v)
			     : "memory");
}
__device__ inline void store_release(revoff_u64 *p, revoff_u64 v)
{
	asm volatile("st.release.sys.u64 [%0], %1;"
		     :
		     : "l"(p), "l"(v)
		     : "memory");
}
__device__ inline void store_release(revoff_u32 *p, revoff_u32 v)
{
	asm volatile("st.release.sys.u32 [%0], %1;"
		     :
		     : "l"(p), "r"(v)
		     : "memory");
}
__device__ inline revoff_u32 exchange_sys(revoff_u32 *p, revoff_u32 v)
{
	revoff_u32 old;
	asm volatile("atom.exch.acq_rel.sys.b32 %0, [%1], %2;"
		     : "=r"(old)
		     : "l"(p), "r"(v)
		     : "memory");
	return old;
}
__device__ inline revoff_u32 exchange_acquire(revoff_u32 *p, revoff_u32 v)
{
	revoff_u32 old;
	asm volatile("atom.exch.acquire.gpu.b32 %0, [%1], %2;"
		     : "=r"(old)
		     : "l"(p), "r"(v)
		     : "memory");
	return old;
}
__device__ inline revoff_u32 local_acquire(const revoff_u32 *p)
{
	revoff_u32 v;
	asm volatile("ld.acquire.gpu.u32 %0, [%1];"
		     : "=r"(v)
		     : "l"(p)
		     : "memory");
	return v;
}
__device__ inline revoff_u32 local_relaxed(const revoff_u32 *p)
{
	revoff_u32 v;
	asm volatile("ld.relaxed.gpu.u32 %0, [%1];"
		     : "=r"(v)
		     : "l"(p)
		     : "memory");
	return v;
}
__device__ inline void local_release(revoff_u32 *p, revoff_u32 v)
{
	asm volatile("st.release.gpu.u32 [%0], %1;"
		     :
		     : "l"(p), "r"(v)
		     : "memory");
}
#endif
__device__ inline revoff_u32 fetch_add(revoff_u32 *p, revoff_u32 v)
{
	return atomicAdd(p, v);
}
__device__ inline void count(revoff_u32 *p)
{
	atomicAdd_system(p, 1u);
}
__device__ inline void pause(unsigned ns)
{
	__nanosleep(ns);
}
__device__ inline void progress()
{
}
__device__ inline bool is_global(const void *p)
{
	return __isGlobal(p);
}
/*
 * Ports.  Two 8-byte halves in one instruction; each is atomic for itself,
 * which is all that a unit needs.
 */
__device__ inline void store_unit(revoff_unit *to, revoff_u64 lo, revoff_u64 hi)
{
	asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};"
		     :
		     : "l"(to), "l"(lo), "l"(hi)
		     : "memory");
}
__device__ inline void load_unit(const revoff_unit *from, revoff_u64 *lo,
				 revoff_u64 *hi)
{
#if !defined(REVOFF_LIBRARY) && \
	__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203
	/* ptxas makes two loads of a vector of which not all bits are used. */
	asm volatile("{\n\t"
		     ".reg .b128 t;\n\t"
		     "ld.relaxed.sys.b128 t, [%2];\n\t"
		     "mov.b128 {%0, %1}, t;\n\t"
		     "}"
		     : "=l"(*lo), "=l"(*hi)
		     : "l"(from)
		     : "memory");
#else
	asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];"
		     : "=l"(*lo), "=l"(*hi)
		     : "l"(from)
		     : "memory");
#endif
}
/*
 * From the L1 cache, after fence_device() has emptied it: one trip to the host
 * for a whole line, where load_unit() makes one for each unit.  What comes may
 * be older than it could be, no more.
 */
__device__ inline void load_cached(const revoff_unit *from, revoff_u64 *lo,
				   revoff_u64 *hi)
{
	asm volatile("ld.relaxed.cta.v2.u64 {%0, %1}, [%2];"
		     : "=l"(*lo), "=l"(*hi)
		     : "l"(from)
		     : "memory");
}
__device__ inline void store_byte(revoff_u8 *to, revoff_u8 v)
{
	asm volatile("st.relaxed.sys.u8 [%0], %1;"
		     :
		     : "l"(to), "r"((revoff_u32)v)
		     : "memory");
}
__device__ inline void store_pair(void *to, revoff_u64 a, revoff_u64 b)
{
	store_unit((revoff_unit *)to, a, b);
}
__device__ inline void store_last(revoff_u64 *to, revoff_u64 v)
{
	asm volatile("st.relaxed.sys.u64 [%0], %1;"
		     :
		     : "l"(to), "l"(v)
		     : "memory");
}
__device__ inline void fence_system()
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}
__device__ inline void fence_device()
{
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
__device__ inline revoff_u32 fetch_or(revoff_u32 *p, revoff_u32 v)
{
	return atomicOr(p, v);
}
__device__ inline revoff_u64 fetch_or(revoff_u64 *p, revoff_u64 v)
{
	return atomicOr(p, v);
}
__device__ inline revoff_u64 fetch_add(revoff_u64 *p, revoff_u64 v)
{
	return atomicAdd(p, v);
}
__device__ inline bool swap_if(revoff_u64 *p, revoff_u64 *old, revoff_u64 v)
{
	revoff_u64 was = atomicCAS(p, *old, v);
	bool done = was == *old;
	*old = was;
	return done;
}
__device__ inline revoff_u64 load_word(const revoff_u64 *p)
{
	revoff_u64 v;
	asm volatile("ld.relaxed.sys.u64 %0, [%1];"
		     : "=l"(v)
		     : "l"(p)
		     : "memory");
	return v;
}
__device__ inline revoff_u64 local_load(const revoff_u64 *p)
{
	revoff_u64 v;
	asm volatile("ld.relaxed.gpu.u64 %0, [%1];"
		     : "=l"(v)
		     : "l"(p)
		     : "memory");
	return v;
}
__device__ inline void local_store(revoff_u64 *p, revoff_u64 v)
{
	asm volatile("st.relaxed.gpu.u64 [%0], %1;"
		     :
		     : "l"(p), "l"(v)
		     : "memory");
}
/*
 * A port or a slot is given back.  No fence: whatever its next owner writes
 * comes after it saw this store, which comes after the last load of ours had
 * its value, which came after the host had read all that we wrote.
 */
__device__ inline void give_back(revoff_u32 *p, revoff_u32 v)
{
	asm volatile("st.relaxed.gpu.u32 [%0], %1;"
		     :
		     : "l"(p), "r"(v)
		     : "memory");
}
__device__ inline void give_back(revoff_u64 *p, revoff_u64 v)
{
	asm volatile("st.relaxed.gpu.u64 [%0], %1;"
		     :
		     : "l"(p), "l"(v)
		     : "memory");
}
__device__ inline void wait_ticks(unsigned ticks)
{
	long long end = clock64() + ticks;
	while (clock64() < end)
		;
}
#else
/* nvcc's host pass only has to parse; nothing of this is ever called. */
__device__ void store_unit(revoff_unit *to, revoff_u64 lo, revoff_u64 hi);
__device__ void load_unit(const revoff_unit *from, revoff_u64 *lo,
			  revoff_u64 *hi);
__device__ void load_cached(const revoff_unit *from, revoff_u64 *lo,
			    revoff_u64 *hi);
__device__ void store_byte(revoff_u8 *to, revoff_u8 v);
__device__ void store_pair(void *to, revoff_u64 a, revoff_u64 b);
__device__ void store_last(revoff_u64 *to, revoff_u64 v);
__device__ void fence_system();
__device__ void fence_device();
__device__ revoff_u32 fetch_or(revoff_u32 *p, revoff_u32 v);
__device__ revoff_u64 fetch_or(revoff_u64 *p, revoff_u64 v);
__device__ revoff_u64 fetch_add(revoff_u64 *p, revoff_u64 v);
__device__ bool swap_if(revoff_u64 *p, revoff_u64 *old, revoff_u64 v);
__device__ revoff_u64 load_word(const revoff_u64 *p);
__device__ revoff_u64 local_load(const revoff_u64 *p);
__device__ void local_store(revoff_u64 *p, revoff_u64 v);
__device__ void give_back(revoff_u32 *p, revoff_u32 v);
__device__ void give_back(revoff_u64 *p, revoff_u64 v);
__device__ void wait_ticks(unsigned ticks);
template <class Type_> __device__ Type_ load_relaxed(const Type_ *p);
template <class Type_> __device__ Type_ load_acquire(const Type_ *p);
template <class Type_> __device__ void store_relaxed(Type_ *p, Type_ v);
template <class Type_> __device__ void store_release(Type_ *p, Type_ v);
__device__ revoff_u32 exchange_acquire(revoff_u32 *p, revoff_u32 v);
__device__ revoff_u32 exchange_sys(revoff_u32 *p, revoff_u32 v);
__device__ revoff_u32 local_acquire(const revoff_u32 *p);
__device__ revoff_u32 local_relaxed(const revoff_u32 *p);
__device__ void local_release(revoff_u32 *p, revoff_u32 v);
__device__ revoff_u32 fetch_add(revoff_u32 *p, revoff_u32 v);
__device__ void count(revoff_u32 *p);
__device__ void pause(unsigned ns);
__device__ void progress();
__device__ bool is_global(const void *p);
#endif

} /* namespace wire */
} /* namespace revoff */

#endif /* REVOFF_ATOMIC_H */
