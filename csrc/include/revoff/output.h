/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels say without waiting: print, printf, log, progress, and asserts
 * that end their launch instead of the context.  All are posts to functions
 * whose names begin with "revoff::"; pyrevoff/output.py has their handlers.
 */
#ifndef REVOFF_OUTPUT_H
#define REVOFF_OUTPUT_H

#include <revoff/call.h>

/*
 * Only what a kernel uses becomes part of its image, so these are templates.
 * Without -rdc the compiler wants them local to their file.
 */
#if defined(__CUDACC_RDC__) || defined(REVOFF_CPU_DEVICE)
#define REVOFF_BUILTIN inline __device__
#else
#define REVOFF_BUILTIN static __device__
#endif

namespace revoff
{
namespace detail
{

struct print_tag {
	static constexpr const char *name = "revoff::print";
};
struct printf_tag {
	static constexpr const char *name = "revoff::printf";
};
struct log_tag {
	static constexpr const char *name = "revoff::log";
};
struct progress_tag {
	static constexpr const char *name = "revoff::progress";
};
struct assert_tag {
	static constexpr const char *name = "revoff::assert";
};
struct stop_tag {
	static constexpr const char *name = "revoff::stop";
};

template <class Tag_, class Sig_>
REVOFF_BUILTIN revoff_descriptor __revoff_fn_ = describe<Sig_>(Tag_::name);

/* Format, codes and values, and up to four texts among the arguments. */
using text_sig = void(str, to<unsigned long long>, str, str, str, str);
#define REVOFF_TEXTS	 4
#define REVOFF_PRINTABLE 14

/* How a value is to be read: a letter of Python's struct module, or 's'. */
template <class Type_> struct code_of {
	static_assert(sizeof(Type_) == 0,
		      "revoff::print takes numbers, bool, char, pointers and "
		      "text (const char * or revoff::str)");
};
#define REVOFF_CODE(type, letter)                              \
	template <> struct code_of<type> {                     \
		static constexpr unsigned char value = letter; \
	}
REVOFF_CODE(bool, '?');
REVOFF_CODE(char, 'c');
REVOFF_CODE(signed char, 'b');
REVOFF_CODE(unsigned char, 'B');
REVOFF_CODE(short, 'h');
REVOFF_CODE(unsigned short, 'H');
REVOFF_CODE(int, 'i');
REVOFF_CODE(unsigned, 'I');
REVOFF_CODE(long, 'q');
REVOFF_CODE(unsigned long, 'Q');
REVOFF_CODE(long long, 'q');
REVOFF_CODE(unsigned long long, 'Q');
REVOFF_CODE(float, 'f');
REVOFF_CODE(double, 'd');
REVOFF_CODE(str, 's');
REVOFF_CODE(const char *, 's');
REVOFF_CODE(char *, 's');
#undef REVOFF_CODE
template <class Type_> struct code_of<Type_ *> {
	static constexpr unsigned char value = 'P';
};

/* An array argument is the pointer to its first element. */
template <class Type_> struct decayed {
	using type = Type_;
};
template <class Type_, unsigned long Count_> struct decayed<Type_[Count_]> {
	using type = Type_ *;
};
template <unsigned Count_> struct printable {
	/* 14 codes and, in 16 bits, the level of a log. */
	revoff_u64 words[2 + Count_];
	str text[REVOFF_TEXTS];
	unsigned values, texts;

	__device__ explicit printable(int level)
	    : text{ str(0, 0), str(0, 0), str(0, 0), str(0, 0) }, values(0),
	      texts(0)
	{
		words[0] = 0;
		words[1] = level > 0xffff ? 0xffffull << 48
			   : level < 0	  ? 0
					  : (revoff_u64)level << 48;
	}
	template <class Type_> __device__ void add(const Type_ &v)
	{
		using type = typename bare<typename decayed<Type_>::type>::type;
		constexpr unsigned char code = code_of<type>::value;
		words[values / 8] |= (revoff_u64)code << values % 8 * 8;
		words[2 + values] = 0;
		if constexpr (code == 's')
			text[texts++] = str(v);
		else
			to_words(words + 2 + values, (type)v);
		++values;
	}
};

template <class Tag_, class... Args_>
__device__ inline void say(int level, const str &format, const Args_ &...args)
{
	constexpr unsigned count = sizeof...(Args_);
	constexpr unsigned texts =
		(0u + ... +
		 (code_of<typename bare<typename decayed<Args_>::type>::type>::
			  value == 's'));
	static_assert(count <= REVOFF_PRINTABLE,
		      "revoff::print takes at most 14 values");
	static_assert(texts <= REVOFF_TEXTS,
		      "revoff::print takes at most 4 texts");
	printable<count> p(level);
	(p.add(args), ...);
	const to<unsigned long long> words((const unsigned long long *)p.words,
					   2 + count);
	post<str, to<unsigned long long>, str, str, str, str>(
		true, &__revoff_fn_<Tag_, text_sig>, format, words, p.text[0],
		p.text[1], p.text[2], p.text[3]);
}

/* This thread ends; the kernel goes on without it. */
__device__ inline void exit_thread()
{
#if defined(__CUDA_ARCH__)
	asm volatile("exit;");
#elif defined(REVOFF_CPU_DEVICE)
	revoff_cpu_exit_thread();
#endif
}

using assert_sig = void(str, int, str, str);

template <class Tag_>
__device__ inline void failed(const char *file, int line, const char *condition,
			      const char *message)
{
	str text[3] = { str(file), str(condition), str(message) };
	revoff_u64 bytes = 64;
	for (unsigned i = 0; i < 3; ++i) {
		/* All goes in one record, so what does not fit stays behind. */
		bytes += (pass<str>::bytes(text[i]) + 7) / 8 * 8;
		if (bytes > REVOFF_PACKET_PAYLOAD)
			text[i] = str("(too long a text)");
	}
	status s = post<str, int, str, str>(true,
					    &__revoff_fn_<Tag_, assert_sig>,
					    text[0], line, text[1], text[2]);
#if defined(__CUDA_ARCH__)
	/* Nobody will hear of it: as loud as CUDA's own assert. */
	if (s != ok && s != aborted_call)
		__trap();
#else
	(void)s;
#endif
	exit_thread();
}

template <class Tag_> __device__ inline bool stop_requested()
{
	/* What makes the host connect an image that only asks this. */
	const revoff_descriptor *used = &__revoff_fn_<Tag_, void()>;
#if defined(__CUDA_ARCH__)
	asm volatile("" : : "l"(used));
#else
	asm volatile("" : : "r"(used));
#endif
	const revoff_control *c = wire::control();
	return c && wire::load_relaxed(&c->stop); /* [stop load] */
}

} /* namespace detail */

constexpr int debug = 10, info = 20, warning = 30, error = 40, critical = 50;

/*
 * A line of output, formatted on the host by Python's str.format: to
 * sys.stdout, or wherever the image says.  A lane's lines keep their order.
 */
template <class... Args_>
__device__ inline void print(const char *format, const Args_ &...args)
{
	detail::say<detail::print_tag>(0, str(format), args...);
}
/* The same with C's formats; no line end is added. */
template <class... Args_>
__device__ inline void printf(const char *format, const Args_ &...args)
{
	detail::say<detail::printf_tag>(0, str(format), args...);
}
/* A record of Python's logging, formatted by str.format. */
template <class... Args_>
__device__ inline void log(int level, const char *format, const Args_ &...args)
{
	detail::say<detail::log_tag>(level, str(format), args...);
}
/* How far a kernel is: to Image.progress. */
template <class Done_, class Total_>
__device__ inline void progress(Done_ done, Total_ total)
{
	using number = long long;
	static_assert((Done_)0.5 == (Done_)0 && (Total_)0.5 == (Total_)0,
		      "revoff::progress takes whole numbers");
	detail::post<number, number>(
		true,
		&detail::__revoff_fn_<detail::progress_tag,
				      void(number, number)>,
		(number)done, (number)total);
}
/*
 * Has the host asked the kernel to end early (Image.request_stop())?  Reads
 * host memory: a microsecond.
 */
template <class Tag_ = detail::stop_tag> __device__ inline bool stop_requested()
{
	return detail::stop_requested<Tag_>();
}

} /* namespace revoff */

#define REVOFF_ASSERT_1(condition) REVOFF_ASSERT_2(condition, 0)
#define REVOFF_ASSERT_2(condition, message)                                    \
	((condition) ? (void)0                                                 \
		     : ::revoff::detail::failed<::revoff::detail::assert_tag>( \
			       __FILE__, __LINE__, #condition, message))
#define REVOFF_ASSERT_OF(a, b, which, ...) which
/*
 * REVOFF_ASSERT(condition) or REVOFF_ASSERT(condition, "message"): if it is
 * false, this thread ends and run() raises KernelAssertionError.
 */
#define REVOFF_ASSERT(...)                                              \
	REVOFF_ASSERT_OF(__VA_ARGS__, REVOFF_ASSERT_2, REVOFF_ASSERT_1, \
			 0)(__VA_ARGS__)

#endif /* REVOFF_OUTPUT_H */
