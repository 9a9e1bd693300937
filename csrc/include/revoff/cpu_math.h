/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's arithmetic on the CPU device: what <cmath> does not have.  All are
 * functions, never macros, so that no header of the user's can be hurt.
 */
#ifndef REVOFF_CPU_MATH_H
#define REVOFF_CPU_MATH_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- integers ------------------------------------------------------------ */

inline int __popc(unsigned v)
{
	return __builtin_popcount(v);
}
inline int __popcll(unsigned long long v)
{
	return __builtin_popcountll(v);
}
inline int __ffs(int v)
{
	return __builtin_ffs(v);
}
inline int __ffsll(long long v)
{
	return __builtin_ffsll(v);
}
inline int __clz(int v)
{
	return v ? __builtin_clz((unsigned)v) : 32;
}
inline int __clzll(long long v)
{
	return v ? __builtin_clzll((unsigned long long)v) : 64;
}
inline unsigned __brev(unsigned v)
{
	unsigned r = 0;
	for (int i = 0; i < 32; ++i, v >>= 1)
		r = r << 1 | (v & 1);
	return r;
}
inline unsigned long long __brevll(unsigned long long v)
{
	return (unsigned long long)__brev((unsigned)v) << 32 |
	       __brev((unsigned)(v >> 32));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
	unsigned long long v = (unsigned long long)b << 32 | a;
	unsigned r = 0;
	for (int i = 0; i < 4; ++i, selector >>= 4)
		r |= (unsigned)(v >> 8 * (selector & 7) & 255) << 8 * i;
	return r;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n)
{
	unsigned long long v = (unsigned long long)high << 32 | low;
	return (unsigned)(v << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{
	unsigned long long v = (unsigned long long)high << 32 | low;
	return (unsigned)(v >> (n & 31));
}
inline int __mulhi(int a, int b)
{
	return (int)((long long)a * b >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
	return (unsigned)((unsigned long long)a * b >> 32);
}
inline long long __mul64hi(long long a, long long b)
{
	return (long long)((__int128)a * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
	return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __mul24(int a, int b)
{
	return (int)((long long)(a << 8 >> 8) * (b << 8 >> 8));
}
inline unsigned __umul24(unsigned a, unsigned b)
{
	return (a & 0xffffffu) * (b & 0xffffffu);
}
inline unsigned __sad(int a, int b, unsigned c)
{
	return c +
	       (a < b ? (unsigned)b - (unsigned)a : (unsigned)a - (unsigned)b);
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c)
{
	return c + (a < b ? b - a : a - b);
}

/*
 * Plain overloads, which beat std::min and std::max where a program says
 * "using namespace std".
 */
#define REVOFF_CPU_MIN_MAX(Type_)                    \
	inline constexpr Type_ min(Type_ a, Type_ b) \
	{                                            \
		return b < a ? b : a;                \
	}                                            \
	inline constexpr Type_ max(Type_ a, Type_ b) \
	{                                            \
		return a < b ? b : a;                \
	}
REVOFF_CPU_MIN_MAX(int)
REVOFF_CPU_MIN_MAX(unsigned)
REVOFF_CPU_MIN_MAX(long)
REVOFF_CPU_MIN_MAX(unsigned long)
REVOFF_CPU_MIN_MAX(long long)
REVOFF_CPU_MIN_MAX(unsigned long long)
#undef REVOFF_CPU_MIN_MAX
inline float min(float a, float b)
{
	return fminf(a, b);
}
inline float max(float a, float b)
{
	return fmaxf(a, b);
}
inline double min(double a, double b)
{
	return fmin(a, b);
}
inline double max(double a, double b)
{
	return fmax(a, b);
}
/* Mixed signs go to the unsigned type, as in CUDA. */
inline unsigned min(int a, unsigned b)
{
	return min((unsigned)a, b);
}
inline unsigned min(unsigned a, int b)
{
	return min(a, (unsigned)b);
}
inline unsigned max(int a, unsigned b)
{
	return max((unsigned)a, b);
}
inline unsigned max(unsigned a, int b)
{
	return max(a, (unsigned)b);
}
inline double min(float a, double b)
{
	return fmin((double)a, b);
}
inline double min(double a, float b)
{
	return fmin(a, (double)b);
}
inline double max(float a, double b)
{
	return fmax((double)a, b);
}
inline double max(double a, float b)
{
	return fmax(a, (double)b);
}

/* ---- bits and conversions ------------------------------------------------ */

template <class To, class From> inline To revoff_cpu_bits(From v)
{
	static_assert(sizeof(To) == sizeof(From), "sizes differ");
	To r;
	__builtin_memcpy(&r, &v, sizeof(r));
	return r;
}
inline int __float_as_int(float v)
{
	return revoff_cpu_bits<int>(v);
}
inline unsigned __float_as_uint(float v)
{
	return revoff_cpu_bits<unsigned>(v);
}
inline float __int_as_float(int v)
{
	return revoff_cpu_bits<float>(v);
}
inline float __uint_as_float(unsigned v)
{
	return revoff_cpu_bits<float>(v);
}
inline long long __double_as_longlong(double v)
{
	return revoff_cpu_bits<long long>(v);
}
inline double __longlong_as_double(long long v)
{
	return revoff_cpu_bits<double>(v);
}
inline int __double2loint(double v)
{
	return (int)__double_as_longlong(v);
}
inline int __double2hiint(double v)
{
	return (int)(__double_as_longlong(v) >> 32);
}
inline double __hiloint2double(int high, int low)
{
	return __longlong_as_double((long long)high << 32 | (unsigned)low);
}
inline int __float2int_rn(float v)
{
	return (int)nearbyintf(v);
}
inline int __float2int_rz(float v)
{
	return (int)v;
}
inline int __float2int_rd(float v)
{
	return (int)floorf(v);
}
inline int __float2int_ru(float v)
{
	return (int)ceilf(v);
}
inline unsigned __float2uint_rn(float v)
{
	return (unsigned)nearbyintf(v);
}
inline unsigned __float2uint_rz(float v)
{
	return (unsigned)v;
}
inline int __double2int_rn(double v)
{
	return (int)nearbyint(v);
}
inline int __double2int_rz(double v)
{
	return (int)v;
}
inline float __int2float_rn(int v)
{
	return (float)v;
}
inline float __uint2float_rn(unsigned v)
{
	return (float)v;
}
inline double __int2double_rn(int v)
{
	return v;
}
inline float __double2float_rn(double v)
{
	return (float)v;
}

/* ---- floating point ------------------------------------------------------ */

inline float rsqrtf(float v)
{
	return 1.0f / sqrtf(v);
}
inline double rsqrt(double v)
{
	return 1.0 / sqrt(v);
}
inline float rsqrt(float v)
{
	return rsqrtf(v);
}
inline float rcbrtf(float v)
{
	return 1.0f / cbrtf(v);
}
inline double rcbrt(double v)
{
	return 1.0 / cbrt(v);
}
inline float sinpif(float v)
{
	return sinf(v * 3.14159265358979f);
}
inline double sinpi(double v)
{
	return sin(v * 3.14159265358979323846);
}
inline float cospif(float v)
{
	return cosf(v * 3.14159265358979f);
}
inline double cospi(double v)
{
	return cos(v * 3.14159265358979323846);
}
inline float __saturatef(float v)
{
	return v > 0 ? v < 1 ? v : 1.0f : 0.0f;
}
inline float __fdividef(float a, float b)
{
	return a / b;
}
inline float fdividef(float a, float b)
{
	return a / b;
}
inline float __frcp_rn(float v)
{
	return 1.0f / v;
}
inline float __fsqrt_rn(float v)
{
	return sqrtf(v);
}
inline float __frsqrt_rn(float v)
{
	return rsqrtf(v);
}
inline float __fadd_rn(float a, float b)
{
	return a + b;
}
inline float __fsub_rn(float a, float b)
{
	return a - b;
}
inline float __fmul_rn(float a, float b)
{
	return a * b;
}
inline float __fdiv_rn(float a, float b)
{
	return a / b;
}
inline float __fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}
inline double __dadd_rn(double a, double b)
{
	return a + b;
}
inline double __dsub_rn(double a, double b)
{
	return a - b;
}
inline double __dmul_rn(double a, double b)
{
	return a * b;
}
inline double __ddiv_rn(double a, double b)
{
	return a / b;
}
inline double __fma_rn(double a, double b, double c)
{
	return fma(a, b, c);
}

/*
 * glibc declares some of these, as functions of its own that it does not
 * export, so they must agree with its declarations: C linkage, noexcept.
 */
extern "C" {
inline float __expf(float v) noexcept
{
	return expf(v);
}
inline float __exp10f(float v) noexcept
{
	return powf(10.0f, v);
}
inline float __logf(float v) noexcept
{
	return logf(v);
}
inline float __log2f(float v) noexcept
{
	return log2f(v);
}
inline float __log10f(float v) noexcept
{
	return log10f(v);
}
inline float __sinf(float v) noexcept
{
	return sinf(v);
}
inline float __cosf(float v) noexcept
{
	return cosf(v);
}
inline float __tanf(float v) noexcept
{
	return tanf(v);
}
inline float __powf(float a, float b) noexcept
{
	return powf(a, b);
}
inline void __sincosf(float v, float *s, float *c) noexcept
{
	*s = sinf(v);
	*c = cosf(v);
}
}

#endif /* REVOFF_CPU_MATH_H */
