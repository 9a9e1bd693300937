/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: a queue of kernels, copies and fills, done in order by one thread,
 * which calls helpers in for kernels of several blocks.  Threads are made when
 * there is first something for them to do.
 */
#include "cpu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum kind {
	LAUNCH,
	COPY,
	FILL
};

struct op {
	struct op *next;
	enum kind kind;
	void *to;
	const void *from;
	size_t size;
	unsigned char value;
	struct cpu_launch launch;
	_Alignas(16) char bytes[]; /* parameters, or what is to be copied */
};

struct cpu_stream {
	void *handle;
	CUcontext context;
	struct cpu_stream *next; /* of the context */

	pthread_mutex_t lock;
	pthread_cond_t work, team, done;
	struct op *first, **last;
	/* Operations that have not ended; all that a query reads. */
	_Atomic(unsigned) pending;
	uint64_t submitted, completed;
	pthread_t thread;
	int started, closing;
	_Atomic(int) finished; /* the thread only has to be joined */

	/* The launch that helpers may join, and how many more. */
	struct cpu_launch *launch;
	unsigned wanted, active, nhelpers;
	pthread_t helpers[CPU_MAX_WORKERS];
};

/* ---- threads ------------------------------------------------------------- */

/*
 * Signals of the process belong to its own threads: Ctrl-C must reach
 * Python's.  Those that a thread causes itself must not be blocked.
 */
static int make_thread(pthread_t *thread, void *(*main)(void *), void *argument)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGABRT);
	sigdelset(&all, SIGTRAP);
	cpu_watch_forks();
	cpu_segv_install();
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, main, argument);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		pthread_setname_np(*thread, "pyrevoff-cpu");
	return rc;
}

static void begin_thread(void)
{
	/* The short sleeps of idle blocks are meant to be short. */
	prctl(PR_SET_TIMERSLACK, 1000ul);
}

static void *helper_main(void *argument)
{
	struct cpu_stream *s = argument;
	struct cpu_worker *w;

	begin_thread();
	w = cpu_worker_new();
	pthread_mutex_lock(&s->lock);
	while (w && !(s->closing == 2)) {
		struct cpu_launch *l = s->launch;

		if (!s->wanted) {
			pthread_cond_wait(&s->team, &s->lock);
			continue;
		}
		--s->wanted;
		++s->active;
		pthread_mutex_unlock(&s->lock);
		cpu_worker_run(w, l);
		pthread_mutex_lock(&s->lock);
		if (--s->active == 0)
			pthread_cond_broadcast(&s->done);
	}
	pthread_mutex_unlock(&s->lock);
	cpu_worker_free(w);
	return NULL;
}

/* Fewer helpers than wanted only make it slower. */
static void run_launch(struct cpu_stream *s, struct cpu_worker *w,
		       struct cpu_launch *l)
{
	unsigned team = cpu_workers();

	if (!w) {
		cpu_fault_text(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
			       "no memory for a worker");
		cpu_fail_launch(l, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
		return;
	}
	if (team > l->blocks)
		team = (unsigned)l->blocks;
	if (team > 1) {
		pthread_mutex_lock(&s->lock);
		while (s->nhelpers < team - 1 &&
		       !make_thread(&s->helpers[s->nhelpers], helper_main, s))
			++s->nhelpers;
		s->launch = l;
		s->wanted = team - 1;
		pthread_cond_broadcast(&s->team);
		pthread_mutex_unlock(&s->lock);
	}
	cpu_worker_run(w, l);
	if (team > 1) {
		pthread_mutex_lock(&s->lock);
		s->wanted = 0;
		while (s->active)
			pthread_cond_wait(&s->done, &s->lock);
		s->launch = NULL;
		pthread_mutex_unlock(&s->lock);
	}
	fflush(stdout); /* what kernels printed, as at a synchronisation */
}

/*
 * A kernel may write what is being copied.  As a GPU's copy engine does, small
 * copies move aligned words whole, and later copies of a stream see no older
 * memory than earlier ones.
 */
#define WORDWISE 1024

static void move(void *to, const void *from, size_t size)
{
	uintptr_t bits = (uintptr_t)to | (uintptr_t)from | size;
	uint64_t *t = to;
	const uint64_t *f = from;
	size_t i;

	if (size == sizeof(uint32_t) && bits % sizeof(uint32_t) == 0) {
		__atomic_store_n((uint32_t *)to,
				 __atomic_load_n((const uint32_t *)from,
						 __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
	} else if (size <= WORDWISE && bits % sizeof(*t) == 0) {
		for (i = 0; i < size / sizeof(*t); ++i)
			__atomic_store_n(
				&t[i], __atomic_load_n(&f[i], __ATOMIC_ACQUIRE),
				__ATOMIC_RELEASE);
	} else {
		memmove(to, from, size);
	}
}

static void run_op(struct cpu_stream *s, struct cpu_worker *w, struct op *o)
{
	int usable = !atomic_load(&s->context->failed) &&
		     !atomic_load(&s->context->dying);

	switch (o->kind) {
	case LAUNCH:
		if (usable)
			run_launch(s, w, &o->launch);
		cpu_module_drop(o->launch.function->module);
		break;
	case COPY:
		if (usable)
			move(o->to, o->from, o->size);
		break;
	case FILL:
		if (usable)
			memset(o->to, o->value, o->size);
		break;
	}
}

static void *stream_main(void *argument)
{
	struct cpu_stream *s = argument;
	struct cpu_worker *w;
	struct op *o;
	unsigned i;

	begin_thread();
	w = cpu_worker_new();
	pthread_mutex_lock(&s->lock);
	for (;;) {
		o = s->first;
		if (!o) {
			if (s->closing)
				break;
			pthread_cond_wait(&s->work, &s->lock);
			continue;
		}
		s->first = o->next;
		if (!s->first)
			s->last = &s->first;
		pthread_mutex_unlock(&s->lock);
		run_op(s, w, o);
		free(o);
		pthread_mutex_lock(&s->lock);
		++s->completed;
		/* Publishes what the operation wrote to whoever sees 0. */
		atomic_fetch_sub_explicit(&s->pending, 1, memory_order_release);
		pthread_cond_broadcast(&s->done);
	}
	s->closing = 2;
	pthread_cond_broadcast(&s->team);
	pthread_mutex_unlock(&s->lock);
	for (i = 0; i < s->nhelpers; ++i)
		pthread_join(s->helpers[i], NULL);
	cpu_worker_free(w);
	atomic_store(&s->finished, 1);
	return NULL;
}

/* ---- life of a stream ---------------------------------------------------- */

static struct cpu_stream *stream_new(CUcontext context)
{
	struct cpu_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->context = context;
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->team, NULL);
	pthread_cond_init(&s->done, NULL);
	return s;
}

static void close_stream(struct cpu_stream *s)
{
	pthread_mutex_lock(&s->lock);
	if (!s->closing)
		s->closing = 1;
	pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->lock);
}

static void stream_free(struct cpu_stream *s)
{
	if (s->started)
		pthread_join(s->thread, NULL);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->team);
	pthread_cond_destroy(&s->done);
	free(s);
}

/* Under context->lock: free streams that were destroyed while busy. */
static void reap(CUcontext context)
{
	struct cpu_stream **p, *s;

	for (p = &context->streams; *p;) {
		s = *p;
		if (!atomic_load(&s->finished)) {
			p = &s->next;
			continue;
		}
		*p = s->next;
		stream_free(s);
	}
}

/* Under context->lock, with no user left. */
void cpu_streams_reset(CUcontext context)
{
	struct cpu_stream *s, *next;

	atomic_store(&context->null_stream, NULL);
	for (s = context->streams; s; s = s->next)
		close_stream(s);
	for (s = context->streams; s; s = next) {
		next = s->next;
		if (s->handle)
			cpu_handle_drop(s->handle);
		stream_free(s);
	}
	context->streams = NULL;
}

static CUresult null_stream(CUcontext context, struct cpu_stream **stream)
{
	struct cpu_stream *s = atomic_load(&context->null_stream);

	if (!s) {
		pthread_mutex_lock(&context->lock);
		s = atomic_load(&context->null_stream);
		if (!s)
			s = stream_new(context);
		if (s && !atomic_load(&context->null_stream)) {
			s->next = context->streams;
			context->streams = s;
			atomic_store(&context->null_stream, s);
		}
		pthread_mutex_unlock(&context->lock);
	}
	*stream = s;
	return s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* NULL and the driver's two special handles are one stream here. */
static CUresult look_up(CUcontext context, CUstream handle,
			struct cpu_stream **stream)
{
	if ((uintptr_t)handle <= 2)
		return null_stream(context, stream);
	*stream = cpu_handle_object(handle, CPU_STREAM);
	return *stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cpu_cuStreamCreate(CUstream *stream, unsigned flags)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct cpu_stream *s;

	if (result)
		return result;
	if (!stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	s = stream_new(context);
	if (s)
		s->handle = cpu_handle_new(CPU_STREAM, s);
	if (!s || !s->handle) {
		if (s)
			stream_free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&context->lock);
	reap(context);
	s->next = context->streams;
	context->streams = s;
	pthread_mutex_unlock(&context->lock);
	*stream = s->handle;
	return CUDA_SUCCESS;
}

/* Does not wait for work that was submitted; that is still done. */
CUresult cpu_cuStreamDestroy(CUstream stream)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct cpu_stream **p, *s;

	if (result)
		return result;
	s = cpu_handle_object(stream, CPU_STREAM);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	context = s->context;
	pthread_mutex_lock(&context->lock);
	cpu_handle_drop(s->handle);
	s->handle = NULL;
	close_stream(s);
	if (!s->started || !atomic_load(&s->pending)) {
		for (p = &context->streams; *p && *p != s; p = &(*p)->next)
			;
		if (*p)
			*p = s->next;
		stream_free(s);
	}
	reap(context);
	pthread_mutex_unlock(&context->lock);
	return CUDA_SUCCESS;
}

static CUresult query(struct cpu_stream *s)
{
	unsigned pending =
		atomic_load_explicit(&s->pending, memory_order_acquire);
	/* After pending: a failure is noted before its operation ends. */
	int failed =
		atomic_load_explicit(&s->context->failed, memory_order_relaxed);

	return failed ? failed : pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cpu_cuStreamQuery(CUstream stream)
{
	struct cpu_stream *s = NULL;
	CUcontext context;
	CUresult result = CUDA_SUCCESS;

	if ((uintptr_t)stream <= 2)
		result = cpu_enter(&context);
	if (!result)
		result = look_up((uintptr_t)stream <= 2 ? context : NULL,
				 stream, &s);
	return result ? result : query(s);
}

CUresult cpu_cuStreamSynchronize(CUstream stream)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct cpu_stream *s;
	uint64_t mine;

	if (!result)
		result = look_up(context, stream, &s);
	if (result)
		return result;
	pthread_mutex_lock(&s->lock);
	mine = s->submitted;
	while (s->completed < mine)
		pthread_cond_wait(&s->done, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return atomic_load(&s->context->failed);
}

/* ---- operations ---------------------------------------------------------- */

static struct op *op_new(enum kind kind, size_t bytes)
{
	struct op *o;

	if (bytes > PTRDIFF_MAX - sizeof(*o))
		return NULL;
	o = malloc(sizeof(*o) + bytes);
	if (o) {
		memset(o, 0, sizeof(*o));
		o->kind = kind;
	}
	return o;
}

static CUresult submit(struct cpu_stream *s, struct op *o)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&s->lock);
	if (s->closing) {
		result = CUDA_ERROR_INVALID_HANDLE;
	} else if (!s->started) {
		if (make_thread(&s->thread, stream_main, s))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else
			s->started = 1;
	}
	if (!result) {
		atomic_fetch_add_explicit(&s->pending, 1, memory_order_relaxed);
		++s->submitted;
		*s->last = o;
		s->last = &o->next;
		pthread_cond_signal(&s->work);
	}
	pthread_mutex_unlock(&s->lock);
	return result;
}

/* With nothing before it in the stream, a copy is done here and now. */
static int is_idle(struct cpu_stream *s)
{
	return !atomic_load_explicit(&s->pending, memory_order_acquire);
}

static CUresult copy(void *to, const void *from, size_t size, int staged,
		     struct cpu_stream *s)
{
	CUresult result;
	struct op *o;

	if (is_idle(s)) {
		move(to, from, size);
		return CUDA_SUCCESS;
	}
	o = op_new(COPY, staged ? size : 0);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->to = to;
	o->from = from;
	o->size = size;
	if (staged) {
		memcpy(o->bytes, from, size);
		o->from = o->bytes;
	}
	result = submit(s, o);
	if (result)
		free(o);
	return result;
}

static CUresult check_copy(CUstream stream, CUdeviceptr device,
			   const void *host, size_t size, int write,
			   struct cpu_stream **s)
{
	CUcontext context;
	CUresult result = cpu_enter(&context);

	if (!result)
		result = look_up(context, stream, s);
	if (result || !size)
		return result;
	if (!host)
		return CUDA_ERROR_INVALID_VALUE;
	return cpu_range_check((uintptr_t)device, size, write);
}

/*
 * Memory that is not pinned is read before the call returns, so the caller may
 * change it at once, as with CUDA's own staging.
 */
CUresult cpu_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size,
			       CUstream stream)
{
	struct cpu_stream *s;
	CUresult result = check_copy(stream, to, from, size, 1, &s);

	if (result || !size)
		return result;
	return copy((void *)(uintptr_t)to, from, size,
		    !cpu_range_is_pinned((uintptr_t)from, size), s);
}

CUresult cpu_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size,
			       CUstream stream)
{
	struct cpu_stream *s;
	CUresult result = check_copy(stream, from, to, size, 0, &s);

	if (result || !size)
		return result;
	return copy(to, (const void *)(uintptr_t)from, size, 0, s);
}

CUresult cpu_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size,
			     CUstream stream)
{
	struct cpu_stream *s;
	struct op *o;
	CUresult result = check_copy(stream, to, &to, size, 1, &s);

	if (result || !size)
		return result;
	if (is_idle(s)) {
		memset((void *)(uintptr_t)to, value, size);
		return CUDA_SUCCESS;
	}
	o = op_new(FILL, 0);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->to = (void *)(uintptr_t)to;
	o->size = size;
	o->value = value;
	result = submit(s, o);
	if (result)
		free(o);
	return result;
}

/* ---- launches ------------------------------------------------------------ */

static int good_shape(const unsigned grid[3], const unsigned block[3])
{
	return grid[0] && grid[1] && grid[2] && block[0] && block[1] &&
	       block[2] && grid[0] <= 0x7fffffff && grid[1] <= 65535 &&
	       grid[2] <= 65535 && block[0] <= CPU_MAX_THREADS &&
	       block[1] <= CPU_MAX_THREADS && block[2] <= 64 &&
	       (uint64_t)block[0] * block[1] * block[2] <= CPU_MAX_THREADS;
}

/* The parameters' values at the time of the call, as the kernel wants them. */
static CUresult gather(char *block, const struct revoff_cpu_kernel *k,
		       void **params, void **extra)
{
	const void *packed = NULL;
	size_t i, *size = NULL;

	if (params) {
		for (i = 0; i < k->nparams; ++i) {
			if (!params[i])
				return CUDA_ERROR_INVALID_VALUE;
			memcpy(block + k->params[i].offset, params[i],
			       k->params[i].size);
		}
		return CUDA_SUCCESS;
	}
	/* Pairs of a tag (1: buffer, 2: its size) and a value, ended by 0. */
	for (i = 0; extra && extra[i]; i += 2) {
		if ((uintptr_t)extra[i] == 1)
			packed = extra[i + 1];
		else if ((uintptr_t)extra[i] == 2)
			size = extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!k->nparams)
		return CUDA_SUCCESS;
	if (!packed || !size || *size < k->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(block, packed, k->bytes);
	return CUDA_SUCCESS;
}

CUresult cpu_cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy,
			    unsigned gz, unsigned bx, unsigned by, unsigned bz,
			    unsigned shared, CUstream stream, void **params,
			    void **extra)
{
	const unsigned grid[3] = { gx, gy, gz }, block[3] = { bx, by, bz };
	struct cpu_function *f;
	struct cpu_stream *s;
	struct cpu_launch *l;
	CUcontext context;
	CUresult result = cpu_enter(&context);
	struct op *o;

	if (result)
		return result;
	f = cpu_handle_object(function, CPU_FUNCTION);
	if (!f || f->module->context != context)
		return CUDA_ERROR_INVALID_HANDLE;
	result = look_up(context, stream, &s);
	if (result)
		return result;
	if (s->context != context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!good_shape(grid, block) || shared > CPU_DYNAMIC_SHARED ||
	    (params && extra))
		return CUDA_ERROR_INVALID_VALUE;
	o = op_new(LAUNCH, f->kernel->bytes);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = gather(o->bytes, f->kernel, params, extra);
	if (result) {
		free(o);
		return result;
	}
	l = &o->launch;
	l->function = f;
	l->context = context;
	memcpy(l->grid, grid, sizeof(grid));
	memcpy(l->block, block, sizeof(block));
	l->threads = bx * by * bz;
	l->blocks = (uint64_t)gx * gy * gz;
	l->params = o->bytes;
	cpu_module_use(f->module);
	result = submit(s, o);
	if (result) {
		cpu_module_drop(f->module);
		free(o);
	}
	return result;
}
