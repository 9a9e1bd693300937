/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the host library share.  Not for users, not for tests.
 *
 * Locks, outermost first; none is held while a handler runs:
 *   launch.m     hand-over of a launch from its serving thread to the reaper
 *   device.lock  images, launches, present table, memory cache, streams
 *   device.copy  the copy stream and what is staged for it
 *   pool.lock    staging blocks (taken from any thread, also by a finalizer)
 */
#ifndef REVOFF_INTERNAL_H
#define REVOFF_INTERNAL_H

#include <pthread.h>
#include <stdint.h>

#include <revoff/protocol.h>

#include "driver.h"
#include "revoff.h"

/* Exported from the shared library; all else is hidden. */
#define REVOFF_API __attribute__((visibility("default")))

#define REVOFF_MAX_MAPNUM 65536
/* No item can be larger: a 47-bit address space holds no more. */
#define REVOFF_MAX_SIZE	  (1ull << 47)
#define REVOFF_COPY_PIECE (64ull << 20)

struct pool;

struct present {
	uint64_t device; /* device address */
	uintptr_t host;
	size_t size;
	unsigned count;
	int associated; /* not ours to free */
};

struct cached {
	uint64_t address;
	size_t size;
};

struct mailbox {
	int placement;
	uint64_t address;	     /* device address */
	struct revoff_mailbox *host; /* it, or (copy) our mirror of it */
	uint64_t lock_address;
	uint64_t gates_address;
};

struct revoff_device {
	const struct revoff_driver *drv;
	int platform, ordinal;
	CUdevice cu;
	CUcontext context;
	struct revoff_device_info info;
	struct revoff_device_options options;

	pthread_mutex_t lock;
	pthread_cond_t quiet; /* launches fell to 0, or a launch ended */
	struct revoff_image *images;
	struct revoff_image *graves; /* to unload when no kernel runs */
	struct revoff_launch *orphans;
	struct revoff_launch *spare;
	int reaping; /* the reaper thread exists */
	unsigned nlaunches;
	struct revoff_launch *stuck; /* its handler holds the mailbox */
	struct present *present;
	unsigned npresent, mpresent;
	struct cached *cache; /* device memory to be used again */
	unsigned ncache, mcache;
	size_t cache_bytes;
	CUstream *streams;
	unsigned nstreams, mstreams;
	struct revoff_control *controls; /* a page of mapped host memory */
	uint64_t controls_address;
	uint8_t control_used[64];
	int lost; /* CUresult of the fault that took the context */

	pthread_mutex_t copy;
	CUstream copy_stream;
	CUstream map_stream;
	struct mailbox mailbox;
	struct pool *pool;
	revoff_target_rev_fn *target_rev;
};

struct function {
	uint64_t fn;
	int kind;
	char *name;
	char *signature;
	revoff_handler *handler;
	void *user;
};

struct revoff_image {
	struct revoff_device *device;
	struct revoff_image *next;
	CUmodule module;
	struct function *functions;
	unsigned nfunctions, mfunctions;
	int connected;
	int has_link;
	int opaque; /* may hold functions that scan could not see */
	int control_index;
	struct revoff_control *control;
	struct revoff_kernel *kernels;
	struct revoff_launch *launch; /* at most one */
	uint64_t stacks;	      /* gomp: soft stacks, device memory */
	size_t stacks_size;
};

struct revoff_kernel {
	struct revoff_kernel *next;
	struct revoff_image *image;
	CUfunction function;
	char *name;
	int nparams; /* -1: not known */
	int max_threads;
	size_t offset[REVOFF_MAX_PARAMS], size[REVOFF_MAX_PARAMS];
};

struct bound {
	revoff_handler *handler;
	void *user;
};

struct revoff_launch {
	/* These survive from launch to launch. */
	pthread_mutex_t m;
	struct revoff_launch *next; /* spare, or orphans */
	struct bound *bound;	    /* as of the launch */
	unsigned mbound;
	/* Scratch of the serving thread; grows. */
	unsigned mitems;
	uint64_t *addrs, *sizes, *words;
	uint16_t *kinds;
	uint8_t *kept, *keepable;

	/* The rest is zeroed for each launch. */
	int fresh;
	unsigned nbound;
	struct revoff_device *device;
	struct revoff_image *image;
	struct revoff_kernel *kernel;
	struct revoff_launch *outer; /* of this thread's open handlers */
	CUstream stream;	     /* ours, given back afterwards; or NULL */
	CUstream run_stream;	     /* what the kernel runs on */

	int in_wait;	/* a thread is in revoff_launch_wait */
	int in_handler; /* ... and in a handler */
	int abandoned;	/* finish() handed it over */
	int left;	/* ... while in a handler: callers were told to leave */
	int ended;
	int result;	      /* CUresult of the kernel */
	unsigned odd_answers; /* of the driver, in a row */

	uint64_t start_ns, end_ns, last_call_ns, active_ns;
	uint64_t calls, failed, polls, sleeps;
	unsigned handler_index;
	int has_failure;
	struct revoff_error failure; /* last: not zeroed, see has_failure */
};

/* A call in service: what the token of target_rev points to. */
struct service {
	struct revoff_launch *launch;
	struct revoff_call call;
	struct bound bound;
	int status; /* REVOFF_OK until something fails */
};

/* error.c */
int fail(int code, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int fail_driver(const struct revoff_driver *drv, CUresult result,
		const char *entry, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
struct revoff_error *error_slot(void);
uint64_t now_ns(void);

/* driver.c */
int platform_driver(int platform, const struct revoff_driver **drv);
int forked(void);
const struct revoff_driver *fault_wrap(int platform,
				       const struct revoff_driver *inner);

/* device.c */
#define ENTER_NO_HANDLER 1 /* refuse inside a handler of this device */
int device_enter(struct revoff_device *device, int flags, const char *what);
void device_leave(struct revoff_device *device);
/* Note a result that only a dead context gives. */
int device_result(struct revoff_device *device, CUresult result,
		  const char *entry, const char *what);
int device_wait_quiet(struct revoff_device *device, uint64_t limit_ns,
		      const char *what);
void device_flush(struct revoff_device *device); /* lock held, none running */
int device_write(struct revoff_device *device, uint64_t to, const void *from,
		 size_t size);
int device_read(struct revoff_device *device, void *to, uint64_t from,
		size_t size);

/* memory.c */
int pool_create(struct revoff_device *device);
void pool_close(struct revoff_device *device);
void *block_alloc(struct revoff_device *device, size_t size);
void memory_close(struct revoff_device *device);
/* lock held; the entry that holds [address, address + size), or NULL */
struct present *present_find(struct revoff_device *device, uint64_t address);
/* lock held; does an entry begin after address, but before address + size? */
int present_begins_in(struct revoff_device *device, uint64_t address,
		      uint64_t size);

/* image.c */
int image_find_fn(struct revoff_image *image, uint64_t fn);
int image_adopt(struct revoff_image *image, uint64_t fn);
void image_destroy(struct revoff_image *image);

/* mailbox.c */
int mailbox_open(struct revoff_device *device);
void mailbox_close(struct revoff_device *device);
int mailbox_peek(struct revoff_device *device, uint64_t *fn);
int mailbox_fetch(struct revoff_device *device);
int mailbox_answer(struct revoff_device *device, int status, uint64_t result,
		   size_t payload);
int mailbox_reset(struct revoff_device *device);
/* Host view of bytes of the packet, or NULL if not (wholly) in it. */
void *mailbox_view(struct revoff_device *device, uint64_t address,
		   uint64_t size);

/* serve.c */
int serve(struct revoff_launch *launch, uint64_t fn);
void launch_fail(struct revoff_launch *launch, int code, const char *format,
		 ...) __attribute__((format(printf, 3, 4)));
struct revoff_launch *serving(void);
int service_reserve(struct service *s, uint64_t n);
void service_prepare(struct service *s, uint64_t n);
int run_handler(struct service *s);
int scratch_reserve(struct revoff_launch *launch, uint64_t n);
int service_copy_in(struct service *s, void *to, uint64_t from, uint64_t size,
		    int wait);
int service_copy_out(struct service *s, uint64_t to, const void *from,
		     uint64_t size);
int service_copy_wait(struct service *s);
void service_fail(struct service *s, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void service_dev_to_host(void *to, const void *from, size_t size, void *token);
void service_host_to_dev(void *to, const void *from, size_t size, void *token);
const char *service_name(const struct service *s);

/* launch.c */
void launch_free(struct revoff_launch *launch);
/* The launch has ended, or never began: its image is free again. */
void launch_unregister(struct revoff_launch *launch);
/* 1 ended, 0 runs, negative: the device failed. */
int launch_ask_stream(struct revoff_launch *launch);

/* orphan.c */
int launch_hand_over(struct revoff_launch *launch);

#endif /* REVOFF_INTERNAL_H */
