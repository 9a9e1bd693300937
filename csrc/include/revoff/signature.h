/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signature of a reverse function as text, made while the kernel is
 * compiled, so that the host can decode arguments without being told twice.
 * docs/protocol.md, "Signatures", has the grammar.
 */
#ifndef REVOFF_SIGNATURE_H
#define REVOFF_SIGNATURE_H

#include <revoff/protocol.h>

#define REVOFF_BOTH __host__ __device__

namespace revoff
{

template <class Type_> struct to;
template <class Type_> struct from;
template <class Type_> struct tofrom;
template <class Type_> struct alloc;
struct str;

namespace detail
{

/* Called only in case of error, which stops the compiler at their names. */
REVOFF_BOTH void name_or_signature_is_too_long();
REVOFF_BOTH void REVOFF_STRUCT_must_list_all_fields_in_order();

struct text {
	char s[REVOFF_SIGNATURE_MAX] = {};
	unsigned n = 0;
	revoff_u64 at = 0; /* in the struct whose fields are being put */

	REVOFF_BOTH constexpr void put(char c)
	{
		if (n + 1 >= REVOFF_SIGNATURE_MAX)
			name_or_signature_is_too_long();
		s[n++] = c;
	}
	REVOFF_BOTH constexpr void put(const char *t)
	{
		for (; *t; ++t)
			put(*t);
	}
	REVOFF_BOTH constexpr void put(revoff_u64 v)
	{
		char digits[20] = {};
		unsigned k = 0;
		do
			digits[k++] = (char)('0' + v % 10);
		while (v /= 10);
		while (k)
			put(digits[--k]);
	}
};

/* <type_traits> does not exist under NVRTC. */
template <class Args_, class Other_> struct same {
	static constexpr bool value = false;
};
template <class Args_> struct same<Args_, Args_> {
	static constexpr bool value = true;
};
template <class Type_> struct bare {
	using type = Type_;
};
template <class Type_> struct bare<const Type_> {
	using type = Type_;
};
template <class Type_> struct bare<volatile Type_> {
	using type = Type_;
};
template <class Type_> struct bare<const volatile Type_> {
	using type = Type_;
};
template <class Type_> struct is_pointer {
	static constexpr bool value = false;
};
template <class Type_> struct is_pointer<Type_ *> {
	static constexpr bool value = true;
};

template <class Type_, bool IsEnum_ = __is_enum(Type_)> struct number_of {
	using type = Type_;
};
template <class Type_> struct number_of<Type_, true> {
	using type = __underlying_type(Type_);
};

template <class Type_> struct is_integer {
	static constexpr bool value =
		same<Type_, char>::value || same<Type_, signed char>::value ||
		same<Type_, unsigned char>::value ||
		same<Type_, short>::value ||
		same<Type_, unsigned short>::value || same<Type_, int>::value ||
		same<Type_, unsigned>::value || same<Type_, long>::value ||
		same<Type_, unsigned long>::value ||
		same<Type_, long long>::value ||
		same<Type_, unsigned long long>::value ||
		same<Type_, wchar_t>::value || same<Type_, char16_t>::value ||
		same<Type_, char32_t>::value;
};

/* Specialised by REVOFF_STRUCT. */
template <class Type_> struct fields {
	static constexpr bool known = false;
	REVOFF_BOTH static constexpr void put(text &)
	{
	}
};

template <class Type_> struct value_of {
	REVOFF_BOTH static constexpr void put(text &t)
	{
		using Count_ = typename number_of<Type_>::type;
		if constexpr (same<Count_, bool>::value) {
			t.put("b1");
		} else if constexpr (is_integer<Count_>::value) {
			t.put((Count_)-1 < (Count_)0 ? 'i' : 'u');
			t.put((revoff_u64)sizeof(Count_));
		} else if constexpr (same<Count_, float>::value) {
			t.put("f4");
		} else if constexpr (same<Count_, double>::value) {
			t.put("f8");
		} else if constexpr (is_pointer<Count_>::value) {
			t.put("p8");
		} else {
			static_assert(
				__is_trivially_copyable(Count_),
				"an argument or result of a reverse function must be trivially copyable");
			static_assert(
				sizeof(Count_) <= REVOFF_PACKET_PAYLOAD / 2,
				"a by-value argument or result is larger than a packet: pass it as an array");
			t.put('{');
			if constexpr (fields<Count_>::known)
				t.put(fields<Count_>::name());
			t.put(':');
			t.put((revoff_u64)sizeof(Count_));
			t.put(':');
			t.put((revoff_u64)alignof(Count_));
			revoff_u64 outer = t.at;
			t.at = 0;
			fields<Count_>::put(t);
			t.at = outer;
			t.put('}');
		}
	}
	REVOFF_BOTH static constexpr void extents(text &)
	{
	}
};

template <class Type_, decltype(sizeof(0)) Count_>
struct value_of<Type_[Count_]> {
	REVOFF_BOTH static constexpr void put(text &t)
	{
		value_of<typename bare<Type_>::type>::put(t);
	}
	REVOFF_BOTH static constexpr void extents(text &t)
	{
		t.put('[');
		t.put((revoff_u64)Count_);
		t.put(']');
		value_of<Type_>::extents(t);
	}
};

template <class Type_>
REVOFF_BOTH constexpr void put_field(text &t, const char *name,
				     revoff_u64 offset)
{
#ifdef __CUDACC_RTC__
	/*
	 * NVRTC has no offsetof: lay the fields out as the compiler does, and
	 * let all_fields() check that they fill the struct.
	 */
	offset = (t.at + alignof(Type_) - 1) / alignof(Type_) * alignof(Type_);
	t.at = offset + sizeof(Type_);
#endif
	t.put(';');
	t.put(name);
	t.put('=');
	value_of<typename bare<Type_>::type>::put(t);
	value_of<Type_>::extents(t);
	t.put('@');
	t.put(offset);
}

template <class Type_> REVOFF_BOTH constexpr void all_fields(text &t)
{
#ifdef __CUDACC_RTC__
	if ((t.at + alignof(Type_) - 1) / alignof(Type_) * alignof(Type_) !=
	    sizeof(Type_))
		REVOFF_STRUCT_must_list_all_fields_in_order();
#endif
	(void)t;
}

template <class Type_> struct argument_of {
	static constexpr bool by_value = true;
	REVOFF_BOTH static constexpr void put(text &t)
	{
		value_of<typename bare<Type_>::type>::put(t);
	}
};
#define REVOFF_ARRAY_ARGUMENT(map)                                    \
	template <class Type_> struct argument_of<map<Type_>> {       \
		static constexpr bool by_value = false;               \
		REVOFF_BOTH static constexpr void put(text &t)        \
		{                                                     \
			t.put(#map ":");                              \
			value_of<typename bare<Type_>::type>::put(t); \
		}                                                     \
	}
REVOFF_ARRAY_ARGUMENT(to);
REVOFF_ARRAY_ARGUMENT(from);
REVOFF_ARRAY_ARGUMENT(tofrom);
REVOFF_ARRAY_ARGUMENT(alloc);
#undef REVOFF_ARRAY_ARGUMENT
template <> struct argument_of<str> {
	static constexpr bool by_value = false;
	REVOFF_BOTH static constexpr void put(text &t)
	{
		t.put("str");
	}
};
template <> struct argument_of<void> {
	static constexpr bool by_value = true;
	REVOFF_BOTH static constexpr void put(text &t)
	{
		t.put('v');
	}
};

template <class Call_> struct signature_of;
template <class Result_, class... Args_>
struct signature_of<Result_(Args_...)> {
	static_assert(argument_of<Result_>::by_value,
		      "a reverse function returns a value or nothing; arrays "
		      "and text come back in revoff::from or tofrom");
	REVOFF_BOTH static constexpr text get()
	{
		text t{};
		argument_of<Result_>::put(t);
		t.put('(');
		bool first = true;
		((first ? (void)0 : t.put(','), first = false,
		  argument_of<Args_>::put(t)),
		 ...);
		t.put(')');
		return t;
	}
};

/* How else a name could be found in an image differs by compiler. */
REVOFF_BOTH constexpr bool is_ascii(const char *name)
{
	for (; *name; ++name)
		if ((unsigned char)*name > 126)
			return false;
	return true;
}

template <class Call_>
REVOFF_BOTH constexpr revoff_descriptor describe(const char *name)
{
	revoff_descriptor d{
		REVOFF_DESCRIPTOR_MAGIC, REVOFF_ABI_VERSION, 0, {}, {}
	};
	unsigned n = 0;
	for (; name[n]; ++n) {
		if (n + 1 >= REVOFF_NAME_MAX)
			name_or_signature_is_too_long();
		d.name[n] = name[n];
	}
	text t = signature_of<Call_>::get();
	for (unsigned i = 0; i < t.n; ++i)
		d.signature[i] = t.s[i];
	return d;
}

} /* namespace detail */
} /* namespace revoff */

/*
 * REVOFF_STRUCT(Particle, position, velocity, id): name the fields that
 * handlers shall see.  At global scope, after the type, before the
 * REVOFF_FUNCTION that uses it; at most 24 fields.  Under NVRTC all fields must
 * be named, in order, since it cannot tell their offsets.
 */
#define REVOFF_STRUCT(type, ...)                                \
	template <> struct revoff::detail::fields<type> {       \
		using Self_ = type;                             \
		static constexpr bool known = true;             \
		REVOFF_BOTH static constexpr const char *name() \
		{                                               \
			return #type;                           \
		}                                               \
		REVOFF_BOTH static constexpr void put(text &t_) \
		{                                               \
			REVOFF_EACH(REVOFF_FIELD, __VA_ARGS__)  \
			all_fields<Self_>(t_);                  \
		}                                               \
	};
#ifdef __CUDACC_RTC__
#define REVOFF_OFFSET(type, f) 0
#else
#define REVOFF_OFFSET(type, f) __builtin_offsetof(type, f)
#endif
#define REVOFF_FIELD(f) \
	put_field<decltype(Self_::f)>(t_, #f, REVOFF_OFFSET(Self_, f));

#define REVOFF_EACH(m, ...)                                                    \
	REVOFF_PICK(__VA_ARGS__, REVOFF_E24, REVOFF_E23, REVOFF_E22,           \
		    REVOFF_E21, REVOFF_E20, REVOFF_E19, REVOFF_E18,            \
		    REVOFF_E17, REVOFF_E16, REVOFF_E15, REVOFF_E14,            \
		    REVOFF_E13, REVOFF_E12, REVOFF_E11, REVOFF_E10, REVOFF_E9, \
		    REVOFF_E8, REVOFF_E7, REVOFF_E6, REVOFF_E5, REVOFF_E4,     \
		    REVOFF_E3, REVOFF_E2, REVOFF_E1, )                         \
	(m, __VA_ARGS__)
#define REVOFF_PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13,   \
		    a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, m, \
		    ...)                                                      \
	m
#define REVOFF_E1(m, a)	      m(a)
#define REVOFF_E2(m, a, ...)  m(a) REVOFF_E1(m, __VA_ARGS__)
#define REVOFF_E3(m, a, ...)  m(a) REVOFF_E2(m, __VA_ARGS__)
#define REVOFF_E4(m, a, ...)  m(a) REVOFF_E3(m, __VA_ARGS__)
#define REVOFF_E5(m, a, ...)  m(a) REVOFF_E4(m, __VA_ARGS__)
#define REVOFF_E6(m, a, ...)  m(a) REVOFF_E5(m, __VA_ARGS__)
#define REVOFF_E7(m, a, ...)  m(a) REVOFF_E6(m, __VA_ARGS__)
#define REVOFF_E8(m, a, ...)  m(a) REVOFF_E7(m, __VA_ARGS__)
#define REVOFF_E9(m, a, ...)  m(a) REVOFF_E8(m, __VA_ARGS__)
#define REVOFF_E10(m, a, ...) m(a) REVOFF_E9(m, __VA_ARGS__)
#define REVOFF_E11(m, a, ...) m(a) REVOFF_E10(m, __VA_ARGS__)
#define REVOFF_E12(m, a, ...) m(a) REVOFF_E11(m, __VA_ARGS__)
#define REVOFF_E13(m, a, ...) m(a) REVOFF_E12(m, __VA_ARGS__)
#define REVOFF_E14(m, a, ...) m(a) REVOFF_E13(m, __VA_ARGS__)
#define REVOFF_E15(m, a, ...) m(a) REVOFF_E14(m, __VA_ARGS__)
#define REVOFF_E16(m, a, ...) m(a) REVOFF_E15(m, __VA_ARGS__)
#define REVOFF_E17(m, a, ...) m(a) REVOFF_E16(m, __VA_ARGS__)
#define REVOFF_E18(m, a, ...) m(a) REVOFF_E17(m, __VA_ARGS__)
#define REVOFF_E19(m, a, ...) m(a) REVOFF_E18(m, __VA_ARGS__)
#define REVOFF_E20(m, a, ...) m(a) REVOFF_E19(m, __VA_ARGS__)
#define REVOFF_E21(m, a, ...) m(a) REVOFF_E20(m, __VA_ARGS__)
#define REVOFF_E22(m, a, ...) m(a) REVOFF_E21(m, __VA_ARGS__)
#define REVOFF_E23(m, a, ...) m(a) REVOFF_E22(m, __VA_ARGS__)
#define REVOFF_E24(m, a, ...) m(a) REVOFF_E23(m, __VA_ARGS__)

#endif /* REVOFF_SIGNATURE_H */
