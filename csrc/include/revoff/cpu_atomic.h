/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's atomic functions on the CPU device.  They are relaxed, as on a GPU,
 * so that ThreadSanitizer can see where a fence or a release is missing.
 */
#ifndef REVOFF_CPU_ATOMIC_H
#define REVOFF_CPU_ATOMIC_H

/* p becomes expression(old, v); gives the old value. */
template <class Type_, class Call_>
inline Type_ revoff_cpu_update(Type_ *p, Type_ v, Call_ next)
{
	static_assert(sizeof(Type_) == 4 || sizeof(Type_) == 8, "4 or 8 bytes");
	Type_ old, wanted;
	__atomic_load(p, &old, __ATOMIC_RELAXED);
	do
		wanted = next(old, v);
	while (!__atomic_compare_exchange(p, &old, &wanted, true,
					  __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return old;
}

/* Each function in its three scopes, which are one here. */
#define REVOFF_CPU_SCOPES(name, Type_, body)          \
	inline Type_ name(Type_ *p, Type_ v)          \
	{                                             \
		return body;                          \
	}                                             \
	inline Type_ name##_block(Type_ *p, Type_ v)  \
	{                                             \
		return body;                          \
	}                                             \
	inline Type_ name##_system(Type_ *p, Type_ v) \
	{                                             \
		return body;                          \
	}
#define REVOFF_CPU_FETCH(name, fetch, Type_) \
	REVOFF_CPU_SCOPES(name, Type_, fetch(p, v, __ATOMIC_RELAXED))
#define REVOFF_CPU_UPDATE(name, Type_, expression)                          \
	REVOFF_CPU_SCOPES(name, Type_,                                      \
			  revoff_cpu_update(p, v,                           \
					    [](Type_ o, Type_ n) -> Type_ { \
						    return expression;      \
					    }))

REVOFF_CPU_FETCH(atomicAdd, __atomic_fetch_add, int)
REVOFF_CPU_FETCH(atomicAdd, __atomic_fetch_add, unsigned)
REVOFF_CPU_FETCH(atomicAdd, __atomic_fetch_add, unsigned long long)
REVOFF_CPU_UPDATE(atomicAdd, float, o + n)
REVOFF_CPU_UPDATE(atomicAdd, double, o + n)
REVOFF_CPU_FETCH(atomicSub, __atomic_fetch_sub, int)
REVOFF_CPU_FETCH(atomicSub, __atomic_fetch_sub, unsigned)
REVOFF_CPU_FETCH(atomicExch, __atomic_exchange_n, int)
REVOFF_CPU_FETCH(atomicExch, __atomic_exchange_n, unsigned)
REVOFF_CPU_FETCH(atomicExch, __atomic_exchange_n, unsigned long long)
REVOFF_CPU_UPDATE(atomicExch, float, ((void)o, n))
REVOFF_CPU_UPDATE(atomicMin, int, n < o ? n : o)
REVOFF_CPU_UPDATE(atomicMin, unsigned, n < o ? n : o)
REVOFF_CPU_UPDATE(atomicMin, long long, n < o ? n : o)
REVOFF_CPU_UPDATE(atomicMin, unsigned long long, n < o ? n : o)
REVOFF_CPU_UPDATE(atomicMax, int, o < n ? n : o)
REVOFF_CPU_UPDATE(atomicMax, unsigned, o < n ? n : o)
REVOFF_CPU_UPDATE(atomicMax, long long, o < n ? n : o)
REVOFF_CPU_UPDATE(atomicMax, unsigned long long, o < n ? n : o)
REVOFF_CPU_UPDATE(atomicInc, unsigned, o >= n ? 0 : o + 1)
REVOFF_CPU_UPDATE(atomicDec, unsigned, o == 0 || o > n ? n : o - 1)
REVOFF_CPU_FETCH(atomicAnd, __atomic_fetch_and, int)
REVOFF_CPU_FETCH(atomicAnd, __atomic_fetch_and, unsigned)
REVOFF_CPU_FETCH(atomicAnd, __atomic_fetch_and, unsigned long long)
REVOFF_CPU_FETCH(atomicOr, __atomic_fetch_or, int)
REVOFF_CPU_FETCH(atomicOr, __atomic_fetch_or, unsigned)
REVOFF_CPU_FETCH(atomicOr, __atomic_fetch_or, unsigned long long)
REVOFF_CPU_FETCH(atomicXor, __atomic_fetch_xor, int)
REVOFF_CPU_FETCH(atomicXor, __atomic_fetch_xor, unsigned)
REVOFF_CPU_FETCH(atomicXor, __atomic_fetch_xor, unsigned long long)
#undef REVOFF_CPU_UPDATE
#undef REVOFF_CPU_FETCH
#undef REVOFF_CPU_SCOPES

#define REVOFF_CPU_CAS(name, Type_)                                 \
	inline Type_ name(Type_ *p, Type_ expected, Type_ v)        \
	{                                                           \
		__atomic_compare_exchange_n(p, &expected, v, false, \
					    __ATOMIC_RELAXED,       \
					    __ATOMIC_RELAXED);      \
		return expected;                                    \
	}
#define REVOFF_CPU_CAS_SCOPES(Type_)           \
	REVOFF_CPU_CAS(atomicCAS, Type_)       \
	REVOFF_CPU_CAS(atomicCAS_block, Type_) \
	REVOFF_CPU_CAS(atomicCAS_system, Type_)
REVOFF_CPU_CAS_SCOPES(int)
REVOFF_CPU_CAS_SCOPES(unsigned)
REVOFF_CPU_CAS_SCOPES(unsigned long long)
REVOFF_CPU_CAS_SCOPES(unsigned short)
#undef REVOFF_CPU_CAS_SCOPES
#undef REVOFF_CPU_CAS

#endif /* REVOFF_CPU_ATOMIC_H */
