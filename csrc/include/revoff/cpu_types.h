/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's vector types for the CPU device, with CUDA's sizes and alignments. */
#ifndef REVOFF_CPU_TYPES_H
#define REVOFF_CPU_TYPES_H

#define REVOFF_CPU_VECTOR(name, Type_, a2, a4)                               \
	struct name##1                                                       \
	{                                                                    \
		Type_ x;                                                     \
	};                                                                   \
	struct alignas(a2) name##2                                           \
	{                                                                    \
		Type_ x, y;                                                  \
	};                                                                   \
	struct name##3                                                       \
	{                                                                    \
		Type_ x, y, z;                                               \
	};                                                                   \
	struct alignas(a4) name##4                                           \
	{                                                                    \
		Type_ x, y, z, w;                                            \
	};                                                                   \
	constexpr name##1 make_##name##1(Type_ x)                            \
	{                                                                    \
		return { x };                                                \
	}                                                                    \
	constexpr name##2 make_##name##2(Type_ x, Type_ y)                   \
	{                                                                    \
		return { x, y };                                             \
	}                                                                    \
	constexpr name##3 make_##name##3(Type_ x, Type_ y, Type_ z)          \
	{                                                                    \
		return { x, y, z };                                          \
	}                                                                    \
	constexpr name##4 make_##name##4(Type_ x, Type_ y, Type_ z, Type_ w) \
	{                                                                    \
		return { x, y, z, w };                                       \
	}

REVOFF_CPU_VECTOR(char, signed char, 2, 4)
REVOFF_CPU_VECTOR(uchar, unsigned char, 2, 4)
REVOFF_CPU_VECTOR(short, short, 4, 8)
REVOFF_CPU_VECTOR(ushort, unsigned short, 4, 8)
REVOFF_CPU_VECTOR(int, int, 8, 16)
REVOFF_CPU_VECTOR(uint, unsigned, 8, 16)
REVOFF_CPU_VECTOR(long, long, 16, 16)
REVOFF_CPU_VECTOR(ulong, unsigned long, 16, 16)
REVOFF_CPU_VECTOR(longlong, long long, 16, 16)
REVOFF_CPU_VECTOR(ulonglong, unsigned long long, 16, 16)
REVOFF_CPU_VECTOR(float, float, 8, 16)
REVOFF_CPU_VECTOR(double, double, 16, 16)
#undef REVOFF_CPU_VECTOR

struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1)
	    : x(vx), y(vy), z(vz)
	{
	}
	constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
	{
	}
	constexpr operator uint3() const
	{
		return { x, y, z };
	}
};

#endif /* REVOFF_CPU_TYPES_H */
