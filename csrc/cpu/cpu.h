/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the CPU device.  Who may take which lock, outermost first:
 *
 *   device->lock    retain count and life of a primary context
 *   stream->lock    one stream's queue and its team of workers
 *   module list, memory registry, stack pool, handles: leaves, held for a few
 *   instructions and never while code of a module runs
 */
#ifndef REVOFF_CPU_CPU_H
#define REVOFF_CPU_CPU_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "../host/driver.h"
#include "../include/revoff/cpu_abi.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CPU_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define CPU_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CPU_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define CPU_TSAN 1
#endif

#define CPU_MAX_DEVICES	   16
#define CPU_MAX_WORKERS	   64
#define CPU_MAX_THREADS	   1024 /* of a block */
#define CPU_MAX_WARPS	   (CPU_MAX_THREADS / REVOFF_CPU_WARP)
#define CPU_DYNAMIC_SHARED (227 * 1024) /* bytes, as on sm_90 */

/*
 * A thread's first access to other thread-local variables of a loaded library
 * may allocate memory, which a signal handler must not.
 */
#define CPU_SIGNAL_SAFE __attribute__((tls_model("initial-exec")))

/* Driver codes that only this device returns. */
enum {
	CPU_ERROR_ALREADY_REGISTERED = 712,
	CPU_ERROR_NOT_REGISTERED = 713,
};

/* ---- fiber.c ------------------------------------------------------------- */

#if defined(__x86_64__) && !defined(REVOFF_CPU_UCONTEXT)
#define CPU_ASM_SWITCH 1
#endif

/* One side of a switch: a fiber, or the worker's own thread. */
struct cpu_side {
	void *sp; /* saved stack pointer, or the ucontext_t */
	void *fake_stack, *tsan;
	const void *bottom; /* of its stack, for AddressSanitizer */
	size_t size;
};

struct cpu_fiber {
	struct cpu_side side;
	char *stack; /* lowest usable byte; the guard page is below it */
	void (*main)(void *); /* NULL when it has returned */
	void *argument;
	struct cpu_side *back; /* who entered it last */
	struct cpu_fiber *next;
};

size_t cpu_stack_size(void);
/* A chain of up to n fibers, or NULL. */
struct cpu_fiber *cpu_fiber_take(unsigned n);
void cpu_fiber_give(struct cpu_fiber *chain);
/* Make f run main(argument) when it is next entered. */
void cpu_fiber_set(struct cpu_fiber *f, void (*main)(void *), void *argument);
/* f stopped in the middle and will never go on. */
void cpu_fiber_abandon(struct cpu_fiber *f);
void cpu_fiber_enter(struct cpu_side *self, struct cpu_fiber *f);
/* Back to the side that entered f; last: f is done. */
void cpu_fiber_leave(struct cpu_fiber *f, int last);
void cpu_side_init(struct cpu_side *self);
char *cpu_fiber_top(const struct cpu_fiber *f);
int cpu_is_stack(const void *p);
/* Has this address hit the guard page below f's stack? */
int cpu_is_guard(const struct cpu_fiber *f, const void *p);

/* ---- context.c ----------------------------------------------------------- */

struct cpu_stream;
struct cpu_module;

struct CUctx_st {
	pthread_mutex_t lock;
	int ordinal;
	unsigned retained;
	_Atomic(int) alive;
	_Atomic(int) failed; /* the sticky error, or 0 */
	_Atomic(int) dying;  /* kernels end at their next wait */
	_Atomic(struct cpu_stream *) null_stream;
	struct cpu_stream *streams; /* under lock; finished ones too */
};

/* The current context if it can be used, else the error to return. */
CUresult cpu_enter(CUcontext *context);
unsigned cpu_workers(void);
/* An unsigned number from the environment, or otherwise. */
size_t cpu_env(const char *name, size_t otherwise, size_t low, size_t high);
void cpu_watch_forks(void);

/* Handles that can be told from garbage without touching it. */
enum cpu_kind {
	CPU_FREE,
	CPU_STREAM,
	CPU_MODULE,
	CPU_FUNCTION,
	CPU_LINK
};
void *cpu_handle_new(enum cpu_kind kind, void *object);
void cpu_handle_drop(void *handle);
void *cpu_handle_object(const void *handle, enum cpu_kind kind);

/*
 * The text of the last fault, which cuGetErrorString adds to the code's own:
 * the driver's interface has no other place for it.
 */
void cpu_fault_text(int error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- memory.c ------------------------------------------------------------ */

enum cpu_memory {
	CPU_DEVICE_MEMORY,
	CPU_HOST_MEMORY,
	CPU_MANAGED_MEMORY,
	CPU_REGISTERED_MEMORY,
	CPU_READONLY_IMAGE,
	CPU_WRITABLE_IMAGE,
};

/* Ranges that the device may be told to copy to or from. */
int cpu_range_add(uintptr_t start, size_t size, enum cpu_memory kind,
		  CUcontext context);
void cpu_range_remove(uintptr_t start);
/* CUDA_SUCCESS if [address, address + size) lies in one range. */
CUresult cpu_range_check(uintptr_t address, size_t size, int write);
int cpu_range_is_pinned(uintptr_t address, size_t size);
void cpu_memory_reset(CUcontext context);

/* ---- module.c ------------------------------------------------------------ */

struct cpu_function {
	void *handle;
	struct cpu_module *module;
	const struct revoff_cpu_kernel *kernel;
	struct cpu_function *next;
};

struct cpu_segment {
	uintptr_t start, end;
	int writable, executable;
};

struct cpu_module {
	void *handle, *library;
	CUcontext context;
	uint64_t serial; /* never used twice */
	const struct revoff_cpu_module *table;
	struct cpu_segment *segments;
	unsigned nsegments;
	size_t tls_size;
	struct cpu_function *functions;
	_Atomic(unsigned) uses; /* 1 for the handle, 1 for each launch */
	struct cpu_module *next;
};

void cpu_module_use(struct cpu_module *m);
void cpu_module_drop(struct cpu_module *m);
int cpu_module_has_code(const struct cpu_module *m, uintptr_t pc);
void cpu_module_reset(CUcontext context);

/* ---- log.c --------------------------------------------------------------- */

/* The error log buffer among JIT options; all NULL if there is none. */
struct cpu_log {
	char *buffer;
	size_t size;
	void **written;
};

void cpu_log_open(struct cpu_log *log, unsigned n, const int *options,
		  void **values);
void cpu_log(struct cpu_log *log, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- elf.c --------------------------------------------------------------- */

/* Can this be a module?  If so, how long is it? */
CUresult cpu_image_check(const void *image, size_t *size, struct cpu_log *log);
/* Undo what would make two loads of an image share data. */
void cpu_image_make_own(char *image);

/* ---- block.c ------------------------------------------------------------- */

struct cpu_launch {
	struct cpu_function *function;
	CUcontext context;
	unsigned grid[3], block[3], threads;
	uint64_t blocks;
	_Atomic(uint64_t) next; /* block to be taken */
	_Atomic(int) error;
	void *params;
};

/* What modules are given. */
extern const struct revoff_cpu_runtime revoff_cpu_runtime;

struct cpu_worker;
struct cpu_worker *cpu_worker_new(void);
void cpu_worker_free(struct cpu_worker *w);
/* Run blocks of the launch until none is left or it has failed. */
void cpu_worker_run(struct cpu_worker *w, struct cpu_launch *launch);
/* For the fault handler: where the calling thread is, or 0 if in no kernel. */
struct cpu_place {
	struct cpu_worker *worker;
	struct cpu_fiber *fiber;
	struct cpu_launch *launch;
};
int cpu_where(struct cpu_place *place);
void cpu_fail_launch(struct cpu_launch *launch, int error);
/* Leave the running fiber for good; the launch has failed. */
void cpu_escape(struct cpu_worker *w) __attribute__((noreturn));

/* ---- segv.c -------------------------------------------------------------- */

/* Turn faults of kernel code into driver errors; once per process. */
void cpu_segv_install(void);
/* Signals need a stack of their own: the fiber's may be what is full. */
void *cpu_segv_thread_begin(void);
void cpu_segv_thread_end(void *state);

/* ---- stream.c ------------------------------------------------------------ */

void cpu_streams_reset(CUcontext context);

/* ---- the entries --------------------------------------------------------- */

#define REVOFF_DRIVER(name, symbol, need, parameters, arguments) \
	CUresult cpu_##name parameters;
#include "../host/driver.def"
#undef REVOFF_DRIVER

#endif /* REVOFF_CPU_CPU_H */
