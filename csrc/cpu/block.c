/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block at a time on one worker: its threads are fibers that run until
 * they wait for each other, pause, or end.  A lane that waits is not in the
 * queue; whoever completes the meeting puts it back.
 */
#include "cpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum state {
	READY,
	BARRIER,
	MEETING,
	ENDED
};

struct lane {
	struct cpu_fiber *fiber;
	unsigned idx[3];
	enum state state;
	/* Of a meeting: */
	unsigned mask, operation, came;
	const void *site;    /* of the last pause */
	const void *gathers; /* key of what it waits for others to do, or NULL */
	unsigned group;	     /* who came */
	unsigned long long value, *values;
};

struct cpu_worker {
	struct cpu_side side;
	struct cpu_launch *launch;
	struct cpu_fiber *spare; /* fibers without a thread */
	struct revoff_cpu_vars vars;
	uint64_t module_serial;	       /* that vars belong to */
	uintptr_t shared, shared_size; /* the module's, in this OS thread */
	char *dynamic;
	void *signal_stack;

	unsigned current, started, alive;
	unsigned arrived, agreed; /* at the barrier; with a true predicate */
	int barrier_count, barrier_all;	 /* of the last completed barrier */
	unsigned meeting[CPU_MAX_WARPS]; /* lanes that wait, by warp */
	unsigned exited[CPU_MAX_WARPS];
	unsigned head, queued;
	unsigned pauses;     /* since anything but a pause happened */
	uint64_t idle_since; /* ns; 0: not idle */
	uint64_t block;	     /* index in the grid */
	uint16_t queue[CPU_MAX_THREADS];
	struct lane lanes[CPU_MAX_THREADS];
};

static CPU_SIGNAL_SAFE __thread struct cpu_worker *self;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static unsigned long long clock_ns(void)
{
	return now();
}

static void enqueue(struct cpu_worker *w, unsigned lane)
{
	w->queue[(w->head + w->queued++) % CPU_MAX_THREADS] = (uint16_t)lane;
}

static void wake(struct cpu_worker *w, unsigned lane)
{
	w->lanes[lane].state = READY;
	w->pauses = 0;
	w->idle_since = 0;
	if (lane != w->current)
		enqueue(w, lane);
}

static int stopped(const struct cpu_launch *l)
{
	return atomic_load_explicit(&l->error, memory_order_relaxed) ||
	       atomic_load_explicit(&l->context->failed,
				    memory_order_relaxed) ||
	       atomic_load_explicit(&l->context->dying, memory_order_relaxed);
}

/* The first error of a context is the one it keeps. */
void cpu_fail_launch(struct cpu_launch *launch, int error)
{
	int none = 0;

	atomic_compare_exchange_strong(&launch->context->failed, &none, error);
	none = 0;
	atomic_compare_exchange_strong(&launch->error, &none, error);
}

static void block_at(const struct cpu_worker *w, unsigned at[3])
{
	const unsigned *grid = w->launch->grid;

	at[0] = (unsigned)(w->block % grid[0]);
	at[1] = (unsigned)(w->block / grid[0] % grid[1]);
	at[2] = (unsigned)(w->block / grid[0] / grid[1]);
}

/* ---- meetings ------------------------------------------------------------ */

/* Let a barrier go if all threads that are left have come. */
static void try_barrier(struct cpu_worker *w)
{
	unsigned i, n = w->launch->threads;

	if (!w->arrived || w->arrived != w->alive)
		return;
	/*
	 * Nobody can come to the next barrier's end before all have read
	 * these, so one copy is enough.
	 */
	w->barrier_count = (int)w->agreed;
	w->barrier_all = w->agreed == w->arrived;
	w->arrived = 0;
	w->agreed = 0;
	for (i = 0; i < n; ++i)
		if (w->lanes[i].state == BARRIER)
			wake(w, i);
}

/* Let the lanes of mask go if all that are left of them wait for it. */
static int try_meeting(struct cpu_worker *w, unsigned warp, unsigned mask,
		       unsigned operation)
{
	struct lane *lanes = &w->lanes[warp * REVOFF_CPU_WARP];
	unsigned members = mask & ~w->exited[warp], i, rest;

	if (!members || members & ~w->meeting[warp])
		return 0;
	for (rest = members; rest; rest &= rest - 1) {
		i = (unsigned)__builtin_ctz(rest);
		if (lanes[i].mask != mask || lanes[i].operation != operation)
			return 0;
	}
	for (rest = members; rest; rest &= rest - 1) {
		struct lane *to = &lanes[__builtin_ctz(rest)];
		unsigned from;

		to->came = members;
		if (!to->values)
			continue;
		for (from = members; from; from &= from - 1) {
			i = (unsigned)__builtin_ctz(from);
			to->values[i] = lanes[i].value;
		}
	}
	w->meeting[warp] &= ~members;
	for (rest = members; rest; rest &= rest - 1)
		wake(w, warp * REVOFF_CPU_WARP + (unsigned)__builtin_ctz(rest));
	return 1;
}

/* A thread has ended, which may be all that others waited for. */
static void end_lane(struct cpu_worker *w, unsigned lane)
{
	unsigned warp = lane / REVOFF_CPU_WARP, rest;
	struct lane *lanes = &w->lanes[warp * REVOFF_CPU_WARP];
	struct cpu_fiber *f = w->lanes[lane].fiber;

	w->lanes[lane].state = ENDED;
	w->lanes[lane].fiber = NULL;
	f->next = w->spare;
	w->spare = f;
	w->exited[warp] |= 1u << lane % REVOFF_CPU_WARP;
	--w->alive;
	w->pauses = 0;
	w->idle_since = 0;
	w->current = UINT_MAX;
	try_barrier(w);
	for (rest = w->meeting[warp]; rest; rest &= rest - 1) {
		struct lane *l = &lanes[__builtin_ctz(rest)];

		/* A meeting that ends takes others out of rest as well. */
		if (l->state == MEETING)
			try_meeting(w, warp, l->mask, l->operation);
	}
}

/* ---- what kernels call, on their fibers ---------------------------------- */

static void leave(struct cpu_worker *w)
{
	cpu_fiber_leave(w->lanes[w->current].fiber, 0);
}

/*
 * A lane that pauses at another place than before has got on; one that waits
 * pauses at the same place again and again.
 */
static void pause_lane(void)
{
	struct cpu_worker *w = self;
	struct lane *l = &w->lanes[w->current];
	const void *site = __builtin_return_address(0);

	++w->pauses;
	if (l->site != site) {
		l->site = site;
		w->idle_since = 0;
	}
	enqueue(w, w->current);
	leave(w);
}

static void progress(void)
{
	self->pauses = 0;
	self->idle_since = 0;
}

static int is_local(const void *p)
{
	return cpu_is_stack(p);
}

static int is_shared(const void *p)
{
	const struct cpu_worker *w = self;

	return (uintptr_t)p - w->shared < w->shared_size ||
	       (uintptr_t)p - (uintptr_t)w->dynamic < CPU_DYNAMIC_SHARED;
}

static int sync_threads(int what, int predicate)
{
	struct cpu_worker *w = self;

	w->lanes[w->current].state = BARRIER;
	++w->arrived;
	w->agreed += !!predicate;
	try_barrier(w);
	if (w->lanes[w->current].state == BARRIER)
		leave(w);
	return what == REVOFF_CPU_SYNC_COUNT ? w->barrier_count
	       : what == REVOFF_CPU_SYNC_AND ? w->barrier_all
					     : w->barrier_count != 0;
}

void cpu_escape(struct cpu_worker *w)
{
	for (;;)
		leave(w); /* the scheduler sees the error and never returns */
}

static void fail(int error, const char *text)
{
	struct cpu_worker *w = self;
	unsigned *t = w->lanes[w->current].idx, b[3];

	block_at(w, b);
	cpu_fault_text(error,
		       "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s",
		       w->launch->function->kernel->name, b[0], b[1], b[2],
		       t[0], t[1], t[2], text);
	cpu_fail_launch(w->launch, error);
	cpu_escape(w);
}

static unsigned lane_number(void)
{
	return self->current % REVOFF_CPU_WARP;
}

static unsigned meet(unsigned mask, unsigned operation,
		     unsigned long long value, unsigned long long *values)
{
	struct cpu_worker *w = self;
	unsigned warp = w->current / REVOFF_CPU_WARP;
	struct lane *l = &w->lanes[w->current];

	if (!(mask >> w->current % REVOFF_CPU_WARP & 1))
		fail(CUDA_ERROR_LAUNCH_FAILED,
		     "a warp operation's mask lacks the lane that calls it");
	l->mask = mask;
	l->operation = operation;
	l->value = value;
	l->values = values;
	l->state = MEETING;
	w->meeting[warp] |= 1u << w->current % REVOFF_CPU_WARP;
	if (!try_meeting(w, warp, mask, operation))
		leave(w);
	return l->came;
}

/*
 * Every other lane gets one turn to come with the same key.  The first that is
 * back takes all that have; they find their group when it is their turn again.
 */
static unsigned together(const void *key)
{
	struct cpu_worker *w = self;
	struct lane *l = &w->lanes[w->current];
	struct lane *lanes = l - w->current % REVOFF_CPU_WARP;
	unsigned first = w->current - w->current % REVOFF_CPU_WARP;
	unsigned n = w->launch->threads - first, i, group = 0;

	l->gathers = key;
	w->pauses = 0;
	w->idle_since = 0;
	enqueue(w, w->current);
	leave(w);
	if (!l->gathers)
		return l->group;
	n = n < REVOFF_CPU_WARP ? n : REVOFF_CPU_WARP;
	for (i = 0; i < n; ++i)
		if (lanes[i].gathers == key)
			group |= 1u << i;
	for (i = 0; i < n; ++i)
		if (group >> i & 1) {
			lanes[i].gathers = NULL;
			lanes[i].group = group;
		}
	return group;
}

static void exit_thread(void)
{
	struct cpu_fiber *f = self->lanes[self->current].fiber;

	f->main = NULL;
	cpu_fiber_leave(f, 1);
}

const struct revoff_cpu_runtime revoff_cpu_runtime = {
	.abi = REVOFF_CPU_ABI,
	.pause = pause_lane,
	.progress = progress,
	.is_local = is_local,
	.is_shared = is_shared,
	.clock_ns = clock_ns,
	.sync_threads = sync_threads,
	.meet = meet,
	.lane = lane_number,
	.together = together,
	.exit_thread = exit_thread,
	.fail = fail,
};

static void lane_main(void *argument)
{
	struct cpu_launch *l = argument;

	l->function->kernel->run(l->params);
}

/* ---- the scheduler ------------------------------------------------------- */

/*
 * Every thread of the block only pauses.  The one who can help may want this
 * core, so first it is offered.  Later the worker sleeps for a thousandth of
 * the time it has waited, up to a limit: a wait costs no core for ever, and
 * its end is seen hardly later.
 */
#define YIELD_NS (2 * 1000 * 1000)
#define SLEEP_NS (50 * 1000)

static void idle(struct cpu_worker *w)
{
	struct timespec ts = { 0, 0 };
	uint64_t t = now(), waited;

	w->pauses = 0;
	if (!w->idle_since)
		w->idle_since = t;
	waited = t - w->idle_since;
	if (waited < YIELD_NS) {
		sched_yield();
		return;
	}
	waited /= 1000;
	ts.tv_nsec = waited > SLEEP_NS ? SLEEP_NS : (long)waited;
	nanosleep(&ts, NULL);
}

static void deadlock(struct cpu_worker *w)
{
	unsigned i, barrier = 0, meeting = 0, ended, b[3];

	for (i = 0; i < w->started; ++i) {
		barrier += w->lanes[i].state == BARRIER;
		meeting += w->lanes[i].state == MEETING;
	}
	ended = w->started - w->alive;
	block_at(w, b);
	cpu_fault_text(CUDA_ERROR_LAUNCH_FAILED,
		       "kernel %s, block (%u,%u,%u): deadlock: %u threads wait "
		       "in __syncthreads and %u in a warp operation, %u have "
		       "ended",
		       w->launch->function->kernel->name, b[0], b[1], b[2],
		       barrier, meeting, ended);
	cpu_fail_launch(w->launch, CUDA_ERROR_LAUNCH_FAILED);
}

static int start_lane(struct cpu_worker *w)
{
	struct cpu_launch *l = w->launch;
	unsigned n = w->started;
	struct lane *lane = &w->lanes[n];

	if (!w->spare) {
		w->spare = cpu_fiber_take(REVOFF_CPU_WARP);
		if (!w->spare) {
			cpu_fault_text(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
				       "no memory for the stacks of kernel %s",
				       l->function->kernel->name);
			cpu_fail_launch(l, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
			return -1;
		}
	}
	lane->fiber = w->spare;
	w->spare = lane->fiber->next;
	lane->state = READY;
	lane->site = NULL;
	lane->gathers = NULL;
	lane->idx[0] = n % l->block[0];
	lane->idx[1] = n / l->block[0] % l->block[1];
	lane->idx[2] = n / l->block[0] / l->block[1];
	cpu_fiber_set(lane->fiber, lane_main, l);
	w->current = n;
	++w->started;
	return 0;
}

/* The next thread to run: one that has not begun, else one that is ready. */
static int choose(struct cpu_worker *w)
{
	if (w->started < w->launch->threads)
		return start_lane(w);
	if (!w->queued) {
		deadlock(w);
		return -1;
	}
	if (w->pauses >= w->queued) {
		idle(w);
		if (stopped(w->launch))
			return -1;
	}
	w->current = w->queue[w->head];
	w->head = (w->head + 1) % CPU_MAX_THREADS;
	--w->queued;
	return 0;
}

static void abandon(struct cpu_worker *w)
{
	unsigned i;

	for (i = 0; i < w->started; ++i) {
		struct cpu_fiber *f = w->lanes[i].fiber;

		if (!f)
			continue;
		cpu_fiber_abandon(f);
		w->lanes[i].fiber = NULL;
		f->next = w->spare;
		w->spare = f;
	}
}

static void run_block(struct cpu_worker *w, uint64_t block)
{
	struct cpu_launch *l = w->launch;
	unsigned warps = (l->threads + REVOFF_CPU_WARP - 1) / REVOFF_CPU_WARP;
	unsigned tail = l->threads % REVOFF_CPU_WARP;

	w->block = block;
	w->started = 0;
	w->alive = l->threads;
	w->arrived = w->agreed = 0;
	w->head = w->queued = 0;
	w->pauses = 0;
	w->idle_since = 0;
	memset(w->meeting, 0, warps * sizeof(w->meeting[0]));
	memset(w->exited, 0, warps * sizeof(w->exited[0]));
	/* Lanes that a short last warp lacks count as ended. */
	if (tail)
		w->exited[warps - 1] = ~0u << tail;
	block_at(w, w->vars.block_idx);
	while (w->alive) {
		struct lane *lane;
		struct cpu_fiber *f;

		if (stopped(l) || choose(w)) {
			abandon(w);
			return;
		}
		lane = &w->lanes[w->current];
		f = lane->fiber;
		memcpy(w->vars.thread_idx, lane->idx, sizeof(lane->idx));
		cpu_fiber_enter(&w->side, f);
		if (!f->main)
			end_lane(w, w->current);
	}
}

/*
 * A module's thread-local variables exist once per OS thread, made when they
 * are first touched, which is here.
 */
static void bind_module(struct cpu_worker *w, struct cpu_module *m)
{
	void *block = NULL;

	if (w->module_serial == m->serial)
		return;
	m->table->vars(&w->vars);
	*w->vars.dynamic_shared = w->dynamic;
	w->shared_size = 0;
	if (m->tls_size && !dlinfo(m->library, RTLD_DI_TLS_DATA, &block) &&
	    block) {
		w->shared = (uintptr_t)block;
		w->shared_size = m->tls_size;
	}
	w->module_serial = m->serial;
}

void cpu_worker_run(struct cpu_worker *w, struct cpu_launch *launch)
{
	uint64_t block;

	self = w;
	w->launch = launch;
	bind_module(w, launch->function->module);
	memcpy(w->vars.block_dim, launch->block, sizeof(launch->block));
	memcpy(w->vars.grid_dim, launch->grid, sizeof(launch->grid));
	while (!stopped(launch)) {
		block = atomic_fetch_add_explicit(&launch->next, 1,
						  memory_order_relaxed);
		if (block >= launch->blocks)
			break;
		run_block(w, block);
	}
	w->launch = NULL;
	cpu_fiber_give(w->spare);
	w->spare = NULL;
}

int cpu_where(struct cpu_place *place)
{
	struct cpu_worker *w = self;

	if (!w || !w->launch || w->current >= CPU_MAX_THREADS)
		return 0;
	place->worker = w;
	place->launch = w->launch;
	place->fiber = w->lanes[w->current].fiber;
	return place->fiber != NULL;
}

struct cpu_worker *cpu_worker_new(void)
{
	struct cpu_worker *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->dynamic = mmap(NULL, CPU_DYNAMIC_SHARED, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (w->dynamic == MAP_FAILED) {
		free(w);
		return NULL;
	}
	cpu_side_init(&w->side);
	w->signal_stack = cpu_segv_thread_begin();
	return w;
}

void cpu_worker_free(struct cpu_worker *w)
{
	if (!w)
		return;
	cpu_segv_thread_end(w->signal_stack);
	munmap(w->dynamic, CPU_DYNAMIC_SHARED);
	free(w);
	self = NULL;
}
