/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public interface of the host library.  No CUDA type and no Python type
 * appears here.  pyrevoff/_build_ffi.py feeds this file to cffi, so it holds
 * plain declarations only (lines that start with '#' are dropped there, save
 * "#define NAME integer").
 *
 * Every function that returns int gives 0 (or a count, where said) or a
 * negative REVOFF_E*; revoff_last_error() then tells more, per thread.  None
 * prints, exits or calls back other than where said.  A function that takes a
 * device, an image, a kernel or a launch may be called from any thread, and
 * leaves the caller's CUDA context as it found it.
 */
#ifndef REVOFF_H
#define REVOFF_H

#include <stddef.h>
#include <stdint.h>

#define REVOFF_EINVAL	    -1	/* an argument is wrong */
#define REVOFF_ENODRIVER    -2	/* libcuda.so.1 is not there or too old */
#define REVOFF_ENODEVICE    -3	/* no such device */
#define REVOFF_EDRIVER	    -4	/* a driver call failed: see driver_code */
#define REVOFF_EIMAGE	    -5	/* the image was refused: see log */
#define REVOFF_EABI	    -6	/* image and library disagree on the wire */
#define REVOFF_ENOTFOUND    -7	/* no such kernel, function or symbol */
#define REVOFF_ENOMEM	    -8	/* out of host memory */
#define REVOFF_EBUSY	    -9	/* in use by a launch, or called by a handler */
#define REVOFF_ECLOSED	    -10 /* the image or the device is closed */
#define REVOFF_ELOST	    -11 /* the context is lost by an earlier fault */
#define REVOFF_EUNSUPPORTED -12 /* this device cannot do it */
#define REVOFF_ETIMEOUT	    -13 /* the time limit passed */
#define REVOFF_EFORKED	    -14 /* used in a child after fork() */
#define REVOFF_ECALL	    -15 /* a call could not be served: text says why */
#define REVOFF_EHANDLER	    -16 /* a handler failed */

#define REVOFF_PLATFORM_CUDA 0
#define REVOFF_PLATFORM_CPU  1

#define REVOFF_TRANSPORT_PORTS	 0 /* many calls at once */
#define REVOFF_TRANSPORT_MAILBOX 1 /* one at a time: libgomp's protocol */

#define REVOFF_PLACE_PINNED  0 /* mapped host memory */
#define REVOFF_PLACE_MANAGED 1 /* managed memory, concurrent access */
#define REVOFF_PLACE_COPY    2 /* device memory, read through copies */

#define REVOFF_LOCK_DEVICE  0 /* lock word in device memory */
#define REVOFF_LOCK_MAILBOX 1 /* the mailbox's own lock word, as the patch */

#define REVOFF_WAIT_ADAPTIVE 0 /* spin, then sleep, growing */
#define REVOFF_WAIT_SPIN     1 /* never sleep */
#define REVOFF_WAIT_PATCH    2 /* usleep(1) after every poll, as the patch */

#define REVOFF_INPUT_MODULE  0 /* load as it is: cubin, fatbin, PTX or .so */
#define REVOFF_INPUT_PTX     1 /* the rest are linked before loading */
#define REVOFF_INPUT_CUBIN   2
#define REVOFF_INPUT_FATBIN  3
#define REVOFF_INPUT_OBJECT  4
#define REVOFF_INPUT_LIBRARY 5

/* Kinds of reverse function. */
#define REVOFF_FUNCTION_TYPED 0 /* REVOFF_FUNCTION of pyrevoff.h */
#define REVOFF_FUNCTION_GOMP  1 /* an entry of libgomp's table */

struct revoff_device;
struct revoff_image;
struct revoff_kernel;
struct revoff_launch;

struct revoff_error {
	int code;	      /* REVOFF_E* */
	int driver_code;      /* CUresult, or 0 */
	char driver_name[64]; /* symbolic name of driver_code, or "" */
	char entry[64];	      /* driver entry point that failed, or "" */
	char text[2048]; /* one message: what, with names, and what to do */
};
/* The error of this thread's last failed call; owned by the thread. */
const struct revoff_error *revoff_last_error(void);
/* Name of a call status (REVOFF_OK..) such as "aborted"; static. */
const char *revoff_status_name(int status);
unsigned revoff_abi_version(void);

/* ---- devices ---------------------------------------------------------- */

struct revoff_device_info {
	char name[256];
	int ordinal;
	int driver_version; /* as cuDriverGetVersion: 13000 is 13.0 */
	int major, minor;   /* compute capability */
	int multiprocessors;
	int warp_size;
	int max_threads_per_block;
	int can_map_host_memory;
	int unified_addressing;
	int managed_memory;
	int concurrent_managed_access;
	int pageable_memory_access;
	int host_native_atomics;
	uint64_t total_memory; /* bytes; 0 if not known */
};

struct revoff_device_options {
	int transport;	   /* REVOFF_TRANSPORT_* */
	int placement;	   /* REVOFF_PLACE_* */
	int lock;	   /* REVOFF_LOCK_* */
	int wait;	   /* REVOFF_WAIT_* */
	int no_packet;	   /* 1: callers use libgomp's lists, no packet */
	unsigned spin_us;  /* adaptive: microseconds of spinning; 0: default */
	unsigned sleep_us; /* adaptive: longest sleep; 0: default */
};

/* Number of devices that the platform reports; loads the driver. */
int revoff_device_count(int platform, int *count);
/* Ask about a device without opening it. */
int revoff_device_query(int platform, int ordinal,
			struct revoff_device_info *info);
/*
 * Open a device: retain its primary context, make its mailbox, streams and
 * staging memory.  REVOFF_EUNSUPPORTED: the placement is not possible here.
 * options may be NULL.
 */
int revoff_device_open(int platform, int ordinal,
		       const struct revoff_device_options *options,
		       struct revoff_device **device);
/* REVOFF_EBUSY while images are loaded or launches run. */
int revoff_device_close(struct revoff_device *device);
/* May be changed between launches. */
int revoff_device_set_wait(struct revoff_device *device, int wait,
			   unsigned spin_us, unsigned sleep_us);
/* The primary context (a CUcontext) and a copy stream (a CUstream). */
void *revoff_device_context(struct revoff_device *device);
void *revoff_device_copy_stream(struct revoff_device *device);

/* Device memory.  Frees are put off while a kernel runs on the device. */
int revoff_alloc(struct revoff_device *device, size_t size, uint64_t *address);
int revoff_free(struct revoff_device *device, uint64_t address);
/*
 * Copies, synchronous, on a stream that does not wait for running kernels.
 * Allowed in handlers.  Large ones go in pieces.
 */
int revoff_copy_to_device(struct revoff_device *device, uint64_t to,
			  const void *from, size_t size);
int revoff_copy_from_device(struct revoff_device *device, void *to,
			    uint64_t from, size_t size);

/*
 * OpenMP's present table: map host memory to the device, counted.  kind is a
 * map kind of protocol.h (ALLOC, TO, FROM, TOFROM).  *address is the device
 * address of host.  REVOFF_EINVAL: it overlaps another mapping in part.
 */
int revoff_map_enter(struct revoff_device *device, void *host, size_t size,
		     int kind, uint64_t *address);
/* Drop one count; at zero copy back (FROM, TOFROM) and free. */
int revoff_map_exit(struct revoff_device *device, void *host, size_t size,
		    int kind);

/*
 * Tie host memory to device memory that exists already (a declare target
 * variable), so that it counts as present.  Nothing is copied or freed.
 */
int revoff_map_associate(struct revoff_device *device, void *host,
			 uint64_t address, size_t size);
int revoff_map_disassociate(struct revoff_device *device, void *host);

/* ---- images ----------------------------------------------------------- */

struct revoff_input {
	const void *data;
	size_t size;	  /* bytes; for PTX including its final NUL */
	int type;	  /* REVOFF_INPUT_* */
	const char *name; /* for messages; may be NULL */
};

struct revoff_image_options {
	/* Names of libgomp's table (REVOFF_SYM_TABLE), in table order, or 0. */
	const char *const *function_names;
	unsigned nfunction_names;
	int device_number; /* given to the image's ICVs; -1: the ordinal */
};

/*
 * Load an image: link if there are several inputs, load, check the ABI word,
 * collect its reverse functions and connect it to the device's mailbox if it
 * has any.  REVOFF_EIMAGE: the driver refused it; the text holds the JIT log.
 */
int revoff_image_load(struct revoff_device *device,
		      const struct revoff_input *inputs, unsigned ninputs,
		      const struct revoff_image_options *options,
		      struct revoff_image **image);
/* REVOFF_EBUSY during a launch of it.  Frees the image. */
int revoff_image_unload(struct revoff_image *image);
/* 1 if kernels of this image are polled for calls, else 0. */
int revoff_image_is_connected(struct revoff_image *image);
int revoff_image_symbol(struct revoff_image *image, const char *name,
			uint64_t *address, size_t *size);

struct revoff_function {
	uint64_t fn;	       /* device address: its identity */
	int kind;	       /* REVOFF_FUNCTION_* */
	const char *name;      /* owned by the image */
	const char *signature; /* "" for REVOFF_FUNCTION_GOMP */
};
unsigned revoff_image_function_count(struct revoff_image *image);
int revoff_image_function(struct revoff_image *image, unsigned index,
			  struct revoff_function *function);
/* Index of a function by name; also finds those of a compressed fatbin. */
int revoff_image_find(struct revoff_image *image, const char *name);

/*
 * One call, as a handler gets it.  Everything is owned by the library and
 * valid until the handler returns, except what is said of kept.
 *
 * words[i] is the value itself (kind FIRSTPRIVATE_INT, low bytes first), or
 * the host address of sizes[i] bytes; 0 for a NULL pointer.
 */
struct revoff_call {
	struct revoff_device *device;
	struct revoff_image *image;
	struct revoff_launch *launch;
	uint64_t fn;
	unsigned index; /* of the function in the image */
	unsigned nargs;
	const uint64_t *words;
	const uint64_t *sizes;	   /* bytes */
	const uint16_t *kinds;	   /* REVOFF_MAP_*, alignment in the top byte */
	const uint64_t *addresses; /* device addresses (or values) as sent */
	uint32_t block[3], thread[3]; /* of the caller; 0 for GOMP functions */
	uint64_t result; /* set by the handler: returned value, 8 bytes */
	int posted;	 /* 1: a post; nobody waits for it */
	struct revoff_later *later; /* set when the answer is asked for again */
	/*
	 * kept[i] = 1 keeps words[i]'s memory beyond the call; the handler's
	 * side then owns it and ends with revoff_block_free().  Only where
	 * keepable[i] is 1: other memory is the user's own mapped array, or
	 * must be copied.
	 */
	uint8_t *kept;
	const uint8_t *keepable;
};
void revoff_block_free(void *memory);

/*
 * A handler: returns 0, or a nonzero value to fail the call, the launch and
 * (as REVOFF_EHANDLER) its caller.  Called in the thread that serves the
 * launch, with no lock held and the device's context current.
 */
typedef int revoff_handler(struct revoff_call *call, void *user);
/* handler NULL unbinds.  Takes effect for launches that start later. */
int revoff_image_bind(struct revoff_image *image, unsigned index,
		      revoff_handler *handler, void *user);

/* One argument, or the result, of many calls. */
struct revoff_column {
	void *data;
	uint64_t size;	 /* bytes of a value */
	uint64_t stride; /* bytes from one call's value to the next one's */
	/*
	 * 1 keeps data beyond the call, as kept of struct revoff_call; only
	 * where keepable is 1 (0: the ring of posts, or memory used again).
	 */
	int kept, keepable;
};

/*
 * Many calls of one function of values, as a batch handler gets them: those
 * that wait for it now, or posts in their order.
 */
struct revoff_batch {
	struct revoff_device *device;
	struct revoff_image *image;
	struct revoff_launch *launch;
	uint64_t fn;
	unsigned index; /* of the function in the image */
	unsigned count; /* calls */
	unsigned nargs;
	const struct revoff_column *arguments; /* nargs */
	struct revoff_column *argument;	       /* the same, to set kept */
	struct revoff_column *result;	       /* to be filled; NULL for void */
	int posted;
	/*
	 * For a handler that fails: the first done calls were answered well.
	 * The next one is failed, and the rest aborted.
	 */
	unsigned done;
	struct revoff_later *later; /* as in struct revoff_call */
	const void *callers;	    /* for revoff_batch_callers */
};
typedef int revoff_batch_handler(struct revoff_batch *batch, void *user);
/* blockIdx and threadIdx of all calls, count times 3 of each. */
void revoff_batch_callers(const struct revoff_batch *batch, uint32_t *block,
			  uint32_t *thread);
/*
 * Bind for many calls at once; only functions whose arguments are values
 * (REVOFF_EUNSUPPORTED).  most: calls in a batch at most, and at least 32, as
 * the lanes of a warp stay together; 0: what fits in a core's cache.  With
 * single != NULL, that one is called where only one call waits.
 */
int revoff_image_bind_batch(struct revoff_image *image, unsigned index,
			    revoff_batch_handler *handler,
			    revoff_handler *single, void *user, unsigned most);

/*
 * Answers that take their time: a handler calls revoff_call_later() (or
 * revoff_batch_later()) and returns REVOFF_LATER.  Other calls are served
 * meanwhile.  When the answer is known, revoff_later_ready() is called, once,
 * from any thread; the thread that serves the launch then calls the handler
 * again with later set (of the same call, whose words, data and kept are as
 * they were), and takes its return value for the answer.  If the launch is
 * given up before that, the callers are told, and the handler is called with
 * later set and posted -1, to let go of what it has; its return value counts
 * for nothing then.  So it is if it asks for a later answer and then fails.
 */
#define REVOFF_LATER 1
struct revoff_later *revoff_call_later(struct revoff_call *call);
struct revoff_later *revoff_batch_later(struct revoff_batch *batch);
void revoff_later_ready(struct revoff_later *later);

/* ---- kernels and launches ---------------------------------------------- */

#define REVOFF_MAX_PARAMS 256
/* Look up and load a kernel.  It lives as long as its image. */
int revoff_kernel_get(struct revoff_image *image, const char *name,
		      struct revoff_kernel **kernel);
/* Number of parameters, or REVOFF_EUNSUPPORTED (driver older than 12.4). */
int revoff_kernel_param_count(struct revoff_kernel *kernel);
int revoff_kernel_param(struct revoff_kernel *kernel, unsigned index,
			size_t *offset, size_t *size);
int revoff_kernel_max_threads(struct revoff_kernel *kernel);
/* Declared type of a parameter, where the device knows it (the CPU device). */
#define REVOFF_PARAM_OTHER   0
#define REVOFF_PARAM_INTEGER 1
#define REVOFF_PARAM_FLOAT   2
#define REVOFF_PARAM_POINTER 3
int revoff_kernel_param_class(struct revoff_kernel *kernel, unsigned index);

struct revoff_launch_config {
	unsigned grid[3];
	unsigned block[3];
	unsigned shared; /* dynamic shared memory, bytes */
	void *stream;	 /* a CUstream; NULL: a non-blocking one of our own */
	void **params;	 /* as cuLaunchKernel */
};

struct revoff_stats {
	uint64_t calls;	 /* calls answered, failed ones included */
	uint64_t failed; /* calls answered with a status not REVOFF_OK */
	uint64_t polls;
	uint64_t sleeps;
	uint64_t elapsed_ns;	/* from launch to the end of the kernel */
	uint64_t last_call_ns;	/* host clock (CLOCK_MONOTONIC) or 0 */
	uint32_t in_handler;	/* 1 while a handler runs */
	uint32_t handler_index; /* of that function, or of the last one */
	uint32_t abort;		/* REVOFF_ABORT_* */
	uint32_t deserted;	/* callers that left without an answer */
	uint64_t mailbox_fn;	/* mailbox flag at this moment; 0: free */
	uint64_t posts;		/* records of posts handled */
	uint64_t dropped;	/* records that try_post did not send */
	uint64_t batches;	/* calls of batch handlers */
	uint32_t open_ports;	/* ports whose request is not answered */
	uint32_t deferred;	/* answers that handlers still owe */
};

/*
 * Launch a kernel.  REVOFF_EBUSY: another launch of this image has not ended
 * (an image runs one launch at a time, so that calls can't cross), or the
 * calling thread is in a handler of this device.
 */
int revoff_launch_start(struct revoff_kernel *kernel,
			const struct revoff_launch_config *config,
			struct revoff_launch **launch);
/*
 * Serve calls until the kernel has ended (returns 1) or timeout_ns passed (0).
 * Negative: the device failed.  One thread at a time.  A failed call does not
 * end the wait: the kernel is told, and revoff_launch_failure() has it.
 */
int revoff_launch_wait(struct revoff_launch *launch, uint64_t timeout_ns);
/* Tell the kernel to give up; from any thread.  reason: REVOFF_ABORT_*. */
int revoff_launch_abort(struct revoff_launch *launch, int reason);
/* Ask the kernel to end early (revoff::stop_requested()); from any thread. */
int revoff_launch_stop(struct revoff_launch *launch);
/* First failure of a call, or code 0; owned by the launch. */
const struct revoff_error *revoff_launch_failure(struct revoff_launch *launch);
/* A snapshot; from any thread. */
void revoff_launch_stats(struct revoff_launch *launch,
			 struct revoff_stats *stats);
/*
 * End with the launch.  If its kernel still runs it is aborted and handed to a
 * thread of the library that answers it until it ends; the image stays busy
 * until then.  Returns 1 if the kernel had ended, 0 if it was handed over.
 */
int revoff_launch_finish(struct revoff_launch *launch);
/* start, wait, finish.  stats may be NULL. */
int revoff_run(struct revoff_kernel *kernel,
	       const struct revoff_launch_config *config, uint64_t timeout_ns,
	       struct revoff_stats *stats);
/* Wait until no handed-over launch is left; 0, or REVOFF_ETIMEOUT. */
int revoff_device_drain(struct revoff_device *device, uint64_t timeout_ns);

/* ---- libgomp's plugin hooks --------------------------------------------- */

/*
 * The three hooks of the 2022 patch at their own level; see GOMP's
 * oacc-plugin/libgomp-plugin interface.  fn_ptr and the three pointers are
 * device addresses.  dev_to_host and host_to_dev copy on the copy stream.
 */
typedef void revoff_copy_fn(void *to, const void *from, size_t size,
			    void *token);
typedef void revoff_target_rev_fn(uint64_t fn_ptr, uint64_t mapnum,
				  uint64_t devaddrs_ptr, uint64_t sizes_ptr,
				  uint64_t kinds_ptr, int dev_num,
				  revoff_copy_fn *dev_to_host,
				  revoff_copy_fn *host_to_dev, void *token);
/*
 * What serves the GOMP functions of a device.  NULL: revoff_target_rev below.
 * The callback reports failure with revoff_target_rev_fail(token, text).
 */
int revoff_set_target_rev(struct revoff_device *device,
			  revoff_target_rev_fn *callback);
void revoff_target_rev_fail(void *token, const char *text);
/* The call that token belongs to (fn, index, launch and image are set). */
struct revoff_call *revoff_target_rev_call(void *token);
/*
 * The default: map the items (docs/protocol.md, "Map kinds"), call the bound
 * handler with translated addresses, map back.
 */
void revoff_target_rev(uint64_t fn_ptr, uint64_t mapnum, uint64_t devaddrs_ptr,
		       uint64_t sizes_ptr, uint64_t kinds_ptr, int dev_num,
		       revoff_copy_fn *dev_to_host, revoff_copy_fn *host_to_dev,
		       void *token);

struct revoff_addr_pair {
	uint64_t start, end;
};
/*
 * GOMP_OFFLOAD_load_image for GCC's nvptx image data ("version" 0x30001 or
 * 0x20001).  *target_table: one pair for each function (start is a
 * struct revoff_kernel *, 0 for a reverse function), each variable, then the
 * ICVs; *rev_fn_table: NULL if the image has no reverse function, else one
 * device address per function, 0 for kernels.  Free both with
 * revoff_gomp_free().  Returns the number of pairs.
 */
int revoff_gomp_load_image(struct revoff_device *device, unsigned version,
			   const void *target_data,
			   struct revoff_addr_pair **target_table,
			   uint64_t **rev_fn_table,
			   struct revoff_image **image);
void revoff_gomp_free(void *table);
/*
 * GOMP_OFFLOAD_run: launch with libgomp's launch arguments (teams and
 * threads), soft stacks included, and serve until it ends.
 */
int revoff_gomp_run(struct revoff_kernel *kernel, void *tgt_vars, void **args,
		    uint64_t timeout_ns);

/* ---- fault injection, for tests ----------------------------------------- */

/*
 * From now on devices are opened with a driver table that can fail.  entry is
 * the name of a driver entry point; its nth call from now (1: the next) gives
 * result.  result -1 makes an entry missing for tables made later.
 */
int revoff_fault_enable(int on);
int revoff_fault_set(const char *entry, unsigned nth, int result);
void revoff_fault_clear(void);
/* Calls of an entry since the last clear. */
int revoff_fault_calls(const char *entry);
/* Name of the index-th entry of the table, or NULL past its end. */
const char *revoff_driver_entry(unsigned index);
/* 1 if the index-th entry is mandatory. */
int revoff_driver_entry_mandatory(unsigned index);

#endif /* REVOFF_H */
