/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a module of the CPU device and the runtime that loads it know of each
 * other; C for csrc/cpu, C++ for the shim.  A module exports
 *
 *   __revoff_cpu_abi      the number below, read before anything else
 *   __revoff_cpu_module   its kernels and its per-thread variables
 *   __revoff_cpu_runtime  a pointer that the runtime sets right after loading
 *
 * so that it needs no symbol of the process that loads it.
 */
#ifndef REVOFF_CPU_ABI_H
#define REVOFF_CPU_ABI_H

#include <stddef.h>

#define REVOFF_CPU_ABI 2u

#define REVOFF_CPU_WARP 32

/* The class of a kernel parameter, as far as a caller can check it. */
#define REVOFF_CPU_OTHER   0
#define REVOFF_CPU_INTEGER 1
#define REVOFF_CPU_FLOAT   2
#define REVOFF_CPU_POINTER 3

/* What __syncthreads and its three sisters return. */
#define REVOFF_CPU_SYNC_COUNT 0
#define REVOFF_CPU_SYNC_AND   1
#define REVOFF_CPU_SYNC_OR    2

struct revoff_cpu_param {
	size_t offset, size; /* bytes, in the block that run() gets */
	unsigned type;	     /* REVOFF_CPU_OTHER.. */
};

struct revoff_cpu_kernel {
	const char *name;
	void (*run)(const void *params); /* one thread of the grid */
	void (*entry)(void); /* the function itself: ties mangled names */
	const struct revoff_cpu_param *params;
	size_t nparams, bytes;
};

/* Where a module keeps threadIdx and so on, for the calling OS thread. */
struct revoff_cpu_vars {
	unsigned *thread_idx, *block_idx, *block_dim, *grid_dim; /* x, y, z */
	void **dynamic_shared;
};

struct revoff_cpu_module {
	const struct revoff_cpu_kernel *const *first, *const *last;
	void (*vars)(struct revoff_cpu_vars *vars);
};

struct revoff_cpu_runtime {
	unsigned abi;
	/* Let the other threads of the block, and now and then the OS, run. */
	void (*pause)(void);
	/* A wait has ended: the back-off of pause starts over. */
	void (*progress)(void);
	/* In a fiber's stack; in static or dynamic shared memory. */
	int (*is_local)(const void *p);
	int (*is_shared)(const void *p);
	unsigned long long (*clock_ns)(void);
	int (*sync_threads)(int what, int predicate);
	/*
	 * Meet the other lanes of mask that have not exited; operation tells
	 * one kind of meeting from another.  Gives the lanes that came and, if
	 * values is not NULL, what each of them brought.
	 */
	unsigned (*meet)(unsigned mask, unsigned operation,
			 unsigned long long value, unsigned long long *values);
	unsigned (*lane)(void);
	/* The lanes of the warp that come with the same key now, and oneself. */
	unsigned (*together)(const void *key);
	/* The calling thread ends here, as if its kernel had returned. */
	void (*exit_thread)(void);
	/* End the launch with a driver error; does not return. */
	void (*fail)(int error, const char *text);
};

#endif /* REVOFF_CPU_ABI_H */
