/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: the CUDA threads of a block, each on a stack of its own, switched on
 * one OS thread.  swapcontext() makes two system calls a switch to keep the
 * signal mask, which is 14 times the whole cost here, so x86-64 has its own.
 */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef CPU_ASM_SWITCH
#include <ucontext.h>
#endif
#ifdef CPU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef CPU_TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

/* Sanitizers make frames several times larger. */
#if defined(CPU_ASAN) || defined(CPU_TSAN)
#define STACK_DEFAULT (256 << 10)
#else
#define STACK_DEFAULT (64 << 10)
#endif
#define STACK_LOWEST  (16 << 10)
#define STACK_HIGHEST ((size_t)1 << 30)
#define SLAB	      64 /* stacks made at once */
#define MAX_SLABS     1024

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cpu_fiber *pool;
/* Append only, so that cpu_is_stack needs no lock. */
static uintptr_t slabs[MAX_SLABS];
static _Atomic(unsigned) nslabs;
static size_t stack_size, page_size; /* set once, under pool_lock */

size_t cpu_stack_size(void)
{
	size_t size, page = (size_t)sysconf(_SC_PAGESIZE);

	size = cpu_env("PYREVOFF_CPU_STACK", STACK_DEFAULT, STACK_LOWEST,
		       STACK_HIGHEST);
	return (size + page - 1) / page * page;
}

/* Under pool_lock.  All stacks have one size: the first use decides it. */
static int grow(void)
{
	unsigned at = atomic_load_explicit(&nslabs, memory_order_relaxed);
	struct cpu_fiber *f;
	size_t step;
	char *memory;
	unsigned i;

	if (at == MAX_SLABS)
		return -1;
	if (!stack_size) {
		page_size = (size_t)sysconf(_SC_PAGESIZE);
		stack_size = cpu_stack_size();
	}
	step = stack_size + page_size;
	f = calloc(SLAB, sizeof(*f));
	if (!f)
		return -1;
	memory = mmap(NULL, SLAB * step, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		free(f);
		return -1;
	}
	for (i = 0; i < SLAB; ++i) {
		if (mprotect(memory + i * step, page_size, PROT_NONE)) {
			munmap(memory, SLAB * step);
			free(f);
			return -1;
		}
		f[i].stack = memory + i * step + page_size;
		f[i].next = i + 1 < SLAB ? &f[i + 1] : NULL;
	}
	slabs[at] = (uintptr_t)memory;
	atomic_store_explicit(&nslabs, at + 1, memory_order_release);
	f[SLAB - 1].next = pool;
	pool = f;
	return 0;
}

struct cpu_fiber *cpu_fiber_take(unsigned n)
{
	struct cpu_fiber *chain, *last;

	pthread_mutex_lock(&pool_lock);
	if (!pool && grow()) {
		pthread_mutex_unlock(&pool_lock);
		return NULL;
	}
	chain = last = pool;
	while (--n && last->next)
		last = last->next;
	pool = last->next;
	last->next = NULL;
	pthread_mutex_unlock(&pool_lock);
	return chain;
}

void cpu_fiber_give(struct cpu_fiber *chain)
{
	struct cpu_fiber *last = chain;

	if (!chain)
		return;
	while (last->next)
		last = last->next;
	pthread_mutex_lock(&pool_lock);
	last->next = pool;
	pool = chain;
	pthread_mutex_unlock(&pool_lock);
}

char *cpu_fiber_top(const struct cpu_fiber *f)
{
	return f->stack + stack_size;
}

int cpu_is_stack(const void *p)
{
	unsigned i, n = atomic_load_explicit(&nslabs, memory_order_acquire);

	for (i = 0; i < n; ++i)
		if ((uintptr_t)p - slabs[i] < SLAB * (stack_size + page_size))
			return 1;
	return 0;
}

int cpu_is_guard(const struct cpu_fiber *f, const void *p)
{
	return (uintptr_t)f->stack - (uintptr_t)p - 1 < page_size;
}

/*
 * start() never returns, nor do the last cpu_fiber_leave() of a fiber and what
 * it calls, so their entries would pile up on ThreadSanitizer's idea of the
 * fiber's stack until that overflows.
 */
#if defined(CPU_TSAN) && defined(__clang__)
#define UNTRACED __attribute__((disable_sanitizer_instrumentation))
#elif defined(CPU_TSAN)
#define UNTRACED __attribute__((no_sanitize("thread")))
#else
#define UNTRACED
#endif

/* ---- the switch ---------------------------------------------------------- */

#ifdef CPU_ASM_SWITCH

/*
 * Only what the System V ABI lets a callee keep is saved, the floating point
 * control words included: a kernel may change the rounding mode.
 */
void revoff_cpu_switch(void **from, void *to);
void revoff_cpu_first(void);
__asm__(".text\n"
	".p2align 4\n"
	".hidden revoff_cpu_switch\n"
	".globl revoff_cpu_switch\n"
	".type revoff_cpu_switch, @function\n"
	"revoff_cpu_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	subq $8, %rsp\n"
	"	stmxcsr (%rsp)\n"
	"	fnstcw 4(%rsp)\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	ldmxcsr (%rsp)\n"
	"	fldcw 4(%rsp)\n"
	"	addq $8, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	popq %rcx\n" /* a ret would be predicted to the caller */
	"	jmp *%rcx\n"
	".size revoff_cpu_switch, .-revoff_cpu_switch\n"
	/* A fiber's outermost frame: debuggers and unwinders stop here. */
	".p2align 4\n"
	".hidden revoff_cpu_first\n"
	".globl revoff_cpu_first\n"
	".type revoff_cpu_first, @function\n"
	"revoff_cpu_first:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	"	movq %r12, %rdi\n"
	"	call *%r13\n"
	"	ud2\n"
	"	.cfi_endproc\n"
	".size revoff_cpu_first, .-revoff_cpu_first\n");

static void set_up(struct cpu_fiber *f, void (*start)(struct cpu_fiber *))
{
	uint64_t *sp = (uint64_t *)(f->stack + stack_size);
	uint32_t mxcsr;
	uint16_t control;

	__asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
	__asm__ volatile("fnstcw %0" : "=m"(control));
	*--sp = 0;
	*--sp = 0;
	*--sp = (uint64_t)(uintptr_t)revoff_cpu_first;
	*--sp = 0;			    /* rbp: end of the chain */
	*--sp = 0;			    /* rbx */
	*--sp = (uint64_t)(uintptr_t)f;	    /* r12 */
	*--sp = (uint64_t)(uintptr_t)start; /* r13 */
	*--sp = 0;			    /* r14 */
	*--sp = 0;			    /* r15 */
	*--sp = mxcsr | (uint64_t)control << 32;
	f->side.sp = sp;
}

UNTRACED static void go(struct cpu_side *from, struct cpu_side *to)
{
	revoff_cpu_switch(&from->sp, to->sp);
}

void cpu_side_init(struct cpu_side *self)
{
	memset(self, 0, sizeof(*self));
}

#else /* ucontext */

/* makecontext passes ints only. */
static void first(unsigned high, unsigned low)
{
	struct cpu_fiber *f = (struct cpu_fiber *)((uintptr_t)high << 16 << 16 |
						   (uintptr_t)low);
	void (*start)(struct cpu_fiber *);

	memcpy(&start, f->stack, sizeof(start));
	start(f);
}

static void set_up(struct cpu_fiber *f, void (*start)(struct cpu_fiber *))
{
	/* The context lies at the far end of the stack that it describes. */
	size_t at = (sizeof(start) + 63) / 64 * 64;
	ucontext_t *u = (ucontext_t *)(f->stack + at);
	size_t used = (at + sizeof(*u) + 63) / 64 * 64;

	memcpy(f->stack, &start, sizeof(start));
	getcontext(u);
	u->uc_stack.ss_sp = f->stack + used;
	u->uc_stack.ss_size = stack_size - used;
	u->uc_link = NULL;
	makecontext(u, (void (*)(void))first, 2,
		    (unsigned)((uintptr_t)f >> 16 >> 16),
		    (unsigned)(uintptr_t)f);
	f->side.sp = u;
}

UNTRACED static void go(struct cpu_side *from, struct cpu_side *to)
{
	swapcontext(from->sp, to->sp);
}

static __thread ucontext_t own_context;

void cpu_side_init(struct cpu_side *self)
{
	memset(self, 0, sizeof(*self));
	self->sp = &own_context;
}

#endif

/* ---- what the sanitizers must be told ------------------------------------ */

UNTRACED static void start(struct cpu_fiber *f)
{
#ifdef CPU_ASAN
	__sanitizer_finish_switch_fiber(NULL, &f->back->bottom, &f->back->size);
#endif
	f->main(f->argument);
	f->main = NULL;
	cpu_fiber_leave(f, 1);
}

void cpu_fiber_set(struct cpu_fiber *f, void (*main)(void *), void *argument)
{
	f->main = main;
	f->argument = argument;
	f->side.bottom = f->stack;
	f->side.size = stack_size;
	f->side.fake_stack = NULL;
#ifdef CPU_TSAN
	if (!f->side.tsan)
		f->side.tsan = __tsan_create_fiber(0);
#endif
	set_up(f, start);
}

void cpu_fiber_abandon(struct cpu_fiber *f)
{
#ifdef CPU_ASAN
	/* Its frames' red zones would be found by the next user. */
	__asan_unpoison_memory_region(f->stack, stack_size);
#endif
#ifdef CPU_TSAN
	/* Nor may the next user inherit a call stack that never returned. */
	if (f->side.tsan)
		__tsan_destroy_fiber(f->side.tsan);
#endif
	f->side.tsan = NULL;
}

void cpu_fiber_enter(struct cpu_side *self, struct cpu_fiber *f)
{
	f->back = self;
#ifdef CPU_TSAN
	self->tsan = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(f->side.tsan, 0);
#endif
#ifdef CPU_ASAN
	__sanitizer_start_switch_fiber(&self->fake_stack, f->side.bottom,
				       f->side.size);
#endif
	go(self, &f->side);
#ifdef CPU_ASAN
	__sanitizer_finish_switch_fiber(self->fake_stack, NULL, NULL);
#endif
}

UNTRACED void cpu_fiber_leave(struct cpu_fiber *f, int last)
{
	struct cpu_side *back = f->back;

#ifdef CPU_TSAN
	__tsan_switch_to_fiber(back->tsan, 0);
#endif
#ifdef CPU_ASAN
	__sanitizer_start_switch_fiber(last ? NULL : &f->side.fake_stack,
				       back->bottom, back->size);
#endif
	(void)last;
	go(&f->side, back);
#ifdef CPU_ASAN
	__sanitizer_finish_switch_fiber(f->side.fake_stack, &f->back->bottom,
					&f->back->size);
#endif
}
