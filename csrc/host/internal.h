/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the host library share.  Not for users, not for tests.
 *
 * Locks, outermost first; none is held while a handler runs:
 *   launch.m     hand-over of a launch from its serving thread to the reaper
 *   laters.m     answers that handlers owe (taken from any thread)
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

/* What travels with an image's calls; see ports.c. */
struct ports {
	struct ports *free_next; /* of those free for other images */
	void *mapped;		 /* behind shared, if we mapped it; or NULL */
	size_t mapped_size;
	void *shared; /* all that host and device share */
	uint64_t shared_address;
	uint64_t own_address; /* device memory: who has what */
	size_t own_size;

	/* Host's views; protocol.h says what they are. */
	unsigned nports, nslots, nheads, nrecords;
	struct revoff_request *requests;
	struct revoff_reply *replies;
	uint8_t *bells;
	char *slots;
	struct revoff_post *heads;
	char *records;
	uint64_t *done;

	/* The host's own. */
	uint8_t *seen;		 /* low byte of the last request taken up */
	uint32_t *answered;	 /* number of the last request answered */
	uint8_t *owed;		 /* lanes of an open request still to answer */
	unsigned hot[4], hot_at; /* ports that called last */
	unsigned sweep_at, turn; /* of bells; of heads without theirs */
	unsigned busy;		 /* looks in a row that found a hot port */
	unsigned *rung;		 /* ports whose bell rang */
	unsigned *found;	 /* ports with a complete request */
	int *found_index;	 /* and its function */
	unsigned nfound;
	uint64_t next; /* post to be handled, as the ring's tail */
	uint64_t last_fn;
	int last_index;
	int dirty; /* reset before the next launch */
	struct stream *streams;
	struct revoff_link link; /* as the image gets it */
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
	struct ports *ports; /* free ones */
	struct pool *pool;
	revoff_target_rev_fn *target_rev;
};

/* A signature, as far as the host has to know it. */
struct shape {
	unsigned nargs, words, result_words;
	uint32_t arrays; /* mask of arguments that are arrays or text */
	uint32_t result; /* bytes */
	int in_words;	 /* travels without a frame */
	uint16_t result_kind;
	uint32_t size[REVOFF_PACKET_MAPS];
	uint16_t kind[REVOFF_PACKET_MAPS];
	unsigned at[REVOFF_PACKET_MAPS]; /* first word */
};

struct bound {
	revoff_handler *handler;
	revoff_batch_handler *batch;
	void *user;
	unsigned most;
};

struct function {
	uint64_t fn;
	int kind;
	char *name;
	char *signature;
	struct shape shape;
	struct bound bound;
};

struct revoff_image {
	struct revoff_device *device;
	struct revoff_image *next;
	CUmodule module;
	struct function *functions;
	unsigned nfunctions, mfunctions;
	int connected;
	int by_mailbox;	     /* its calls come through the mailbox */
	struct ports *ports; /* NULL: image knows none */
	int has_link;
	int opaque; /* may hold functions that scan could not see */
	int control_index;
	struct revoff_control *control;
	struct revoff_kernel *kernels;
	struct revoff_launch *launch; /* at most one */
	uint64_t stacks;	      /* gomp: soft stacks, device memory */
	size_t stacks_size;
};

/* How many entries of the table there are; more may come meanwhile. */
static inline unsigned image_count(const struct revoff_image *image)
{
	/* [functions load] */
	return __atomic_load_n(&image->nfunctions, __ATOMIC_ACQUIRE);
}

struct revoff_kernel {
	struct revoff_kernel *next;
	struct revoff_image *image;
	CUfunction function;
	char *name;
	int nparams; /* -1: not known */
	int max_threads;
	size_t offset[REVOFF_MAX_PARAMS], size[REVOFF_MAX_PARAMS];
};

/* The lists of a call, as a handler sees them; grows. */
struct scratch {
	unsigned mitems;
	uint64_t *addrs, *sizes, *words;
	uint64_t *values; /* by-value structs, and a large result */
	uint16_t *kinds;
	uint8_t *kept, *keepable;
};

/* Answers that handlers of a launch owe; see later.c. */
struct laters {
	pthread_mutex_t m;
	unsigned refs;
	int closed;
	int any; /* ready is not empty: looked at without m */
	struct revoff_later *ready;
	/* The serving thread's own. */
	struct revoff_later *pending;
	unsigned npending;
};

struct revoff_launch {
	/* These survive from launch to launch. */
	pthread_mutex_t m;
	struct revoff_launch *next; /* spare, or orphans */
	struct bound *bound;	    /* as of the launch */
	unsigned mbound;
	struct scratch list; /* of the serving thread */
	struct run *run;     /* batch memory, used again; see batch.c */

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
	uint64_t calls, failed, polls, sleeps, posts, batches;
	struct laters *laters; /* NULL while no handler owes anything */
	int mailbox_owed;      /* the open call of the mailbox is deferred */
	unsigned handler_index;
	int has_failure;
	struct revoff_error failure; /* last: not zeroed, see has_failure */
};

/* Memory that a call brought with it: a packet, or a frame. */
struct area {
	uint64_t address; /* device address */
	char *host;
	uint64_t size;
};

#define FROM_MAILBOX 0
#define FROM_PORT    1
#define FROM_POST    2

/* A call in service: what the token of target_rev points to. */
struct service {
	struct revoff_launch *launch;
	struct revoff_call call;
	struct bound bound;
	int status; /* REVOFF_OK until something fails */
	int left;   /* the launch was handed over: answer nothing */
	int rc;	    /* of the device: could the call be answered? */
	struct revoff_later *later;
	struct area area;
	struct stream *stream;
	/* Whom to answer. */
	int from;
	size_t payload; /* of the mailbox */
	unsigned port, rank, lanes;
	uint32_t seq;
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
int image_global(struct revoff_image *image, const char *name,
		 CUdeviceptr *address, size_t *size);
void image_destroy(struct revoff_image *image);

/* whole.c */
int image_is_whole(const void *data, size_t size);

/* functions.c */
int functions_room(struct revoff_image *image);
void functions_free(struct revoff_image *image);
int functions_scan(struct revoff_image *image, const struct revoff_input *in);
int functions_table(struct revoff_image *image,
		    const struct revoff_image_options *options);
int function_is_builtin(const char *name);
int image_find_fn(struct revoff_image *image, uint64_t fn);
int image_adopt(struct revoff_image *image, uint64_t fn);

/* mailbox.c */
int mailbox_open(struct revoff_device *device);
void mailbox_close(struct revoff_device *device);
int mailbox_peek(struct revoff_device *device, uint64_t *fn);
int mailbox_fetch(struct revoff_device *device);
int mailbox_answer(struct revoff_device *device, int status, uint64_t result,
		   size_t payload);
int mailbox_reset(struct revoff_device *device);
/* The packet, as the area of a call. */
struct area mailbox_area(struct revoff_device *device);

/* signature.c */
int signature_parse(const char *text, struct shape *shape);

/* ports.c */
/* The head of a request, taken apart. */
struct request {
	uint64_t fn;
	uint32_t seq, mask, block_x, block_yz, thread, slot;
	unsigned lanes, words, form, stride;
};
/* 1 if the head of the port's next request is there. */
int port_head(const struct ports *ports, unsigned port, struct request *r);
/* Words from unit first on, step apart in out; 1 if all carry the number. */
int port_words(const struct ports *ports, unsigned port, uint32_t seq,
	       unsigned first, unsigned count, uint64_t *out, unsigned step);
void ports_reply_all(struct ports *ports, const struct request *r,
		     unsigned port, int status, const uint64_t *words,
		     unsigned nwords);
unsigned reply_words(struct revoff_image *image, const struct request *r);
int ports_take(struct revoff_image *image);
void ports_give(struct revoff_image *image);
void ports_close(struct revoff_device *device);
int ports_begin(struct revoff_launch *launch);
/* Serve what waits: how many requests, or negative if the device failed. */
int ports_poll(struct revoff_launch *launch, int rested);
/* Tell all that wait that the launch was given up. */
void ports_abandon(struct revoff_image *image);
unsigned ports_open_count(const struct ports *ports);
int ports_index(struct revoff_launch *launch, uint64_t fn);
void ports_reply(struct ports *ports, unsigned port, unsigned rank,
		 unsigned lanes, uint32_t seq, int status,
		 const uint64_t *words, unsigned nwords);
void caller_of(uint32_t block_x, uint32_t block_yz, uint32_t thread,
	       unsigned lane, uint32_t *block, uint32_t *at);

/* stream.c */
void *stream_view(struct stream *stream, uint64_t at, uint64_t size);
struct stream *stream_find(struct ports *ports, unsigned port);
int stream_transfer(struct ports *ports, unsigned port, unsigned slot, int form,
		    uint64_t at, uint64_t bytes, uint64_t total);
void stream_drop(struct ports *ports, unsigned port);
void streams_close(struct ports *ports);

/* post.c: heads taken out, or negative */
int posts_serve(struct revoff_launch *launch);
int posts_waiting(const struct ports *ports);

/* batch.c */
int batch_serve(struct revoff_launch *launch, int index);
int batch_posts(struct revoff_launch *launch, int index, char *records,
		uint64_t stride, unsigned count, unsigned nheads,
		uint64_t first);
/* The call of a batch handler with one call, which is in scratch memory. */
int batch_of_one(struct service *s);
/* The handler of a deferred batch once more; ready 0: it is given up. */
void batch_resume(struct revoff_launch *launch, struct run *run, int ready);
void run_free(struct run *run);

/* later.c */
struct revoff_later *later_new(struct revoff_launch *launch);
void later_cancel(struct revoff_later *later);
void later_keep_service(struct service *service);
void later_keep_run(struct revoff_later *later, struct run *run);
int laters_serve(struct revoff_launch *launch);
void laters_drop(struct revoff_launch *launch);
void laters_close(struct revoff_launch *launch);

/* serve.c */
int serve(struct revoff_launch *launch, uint64_t fn);
void launch_fail(struct revoff_launch *launch, int code, const char *format,
		 ...) __attribute__((format(printf, 3, 4)));
struct revoff_launch *serving(void);
int service_reserve(struct service *s, uint64_t n);
void service_prepare(struct service *s, uint64_t n);
/* 0, REVOFF_LATER, or negative: the call failed, or (left) no answer. */
int run_handler(struct service *s);
/* What comes after the handler, and the answer. */
void service_end(struct service *s);
void serve_service(struct service *s, const struct rev_offload *m);
/* A call whose arguments are words. */
void serve_words(struct service *s, const uint64_t *words);
void service_start(struct service *s, struct revoff_launch *launch, int index);
/* Host view of memory that came with the call, or NULL if it is elsewhere. */
void *service_view(const struct service *s, uint64_t address, uint64_t size);
int launch_given_up(const struct revoff_launch *launch);
int enter_handler(struct revoff_launch *launch);
int leave_handler(struct revoff_launch *launch);
int scratch_reserve(struct scratch *list, uint64_t n);
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

/* wait.c: 1 ended, 0 time is up, negative failed */
int launch_poll(struct revoff_launch *launch, uint64_t timeout_ns);

/* orphan.c */
int launch_hand_over(struct revoff_launch *launch);

#endif /* REVOFF_INTERNAL_H */
