/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of kernels.  A GPU answers a bad access with an error code, so where
 * it is safe the process survives here as well: if the instruction that failed
 * lies in the kernel's own module, no lock of the C library can be held, and
 * the fiber can be left for good.  Everything else goes to the handler that
 * was there before, which usually ends the process.
 *
 * PYREVOFF_CPU_FAULTS=0 leaves the process's signal handlers alone.
 */
#include "cpu.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define ALT_STACK (64 << 10)

static const int watched[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };
#define NWATCHED (sizeof(watched) / sizeof(watched[0]))
static struct sigaction former[NWATCHED];

/* Pass a signal on to whoever had it before. */
static void pass_on(int number, siginfo_t *info, void *context)
{
	struct sigaction *old = NULL;
	unsigned i;

	for (i = 0; i < NWATCHED; ++i)
		if (watched[i] == number)
			old = &former[i];
	if (old && old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(number, info, context);
		return;
	}
	if (old && old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
		old->sa_handler(number);
		return;
	}
	/* The instruction runs again, and now the default happens. */
	signal(number, SIG_DFL);
}

#if defined(__x86_64__) && !defined(CPU_ASAN) && !defined(CPU_TSAN)

static CPU_SIGNAL_SAFE __thread int fault_number;
static CPU_SIGNAL_SAFE __thread int fault_in_guard;

/* On the fiber's stack again, from its top: what was there is given up. */
static void after_fault(void)
{
	const char *text;
	int error = CUDA_ERROR_LAUNCH_FAILED;

	if (fault_in_guard) {
		text = "stack overflow (PYREVOFF_CPU_STACK sets the bytes of a "
		       "thread's stack)";
	} else if (fault_number == SIGFPE) {
		text = "integer division by zero";
	} else if (fault_number == SIGILL) {
		text = "illegal instruction, or a trap of the compiler's";
	} else {
		text = "access to an address that is not mapped";
		error = CUDA_ERROR_ILLEGAL_ADDRESS;
	}
	revoff_cpu_runtime.fail(error, text);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	uintptr_t pc = (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
	struct cpu_place place;

	/* A signal that somebody sent is none of ours. */
	if (info->si_code <= 0 || !cpu_where(&place) ||
	    !cpu_module_has_code(place.launch->function->module, pc)) {
		pass_on(number, info, context);
		return;
	}
	fault_number = number;
	fault_in_guard = number == SIGSEGV &&
			 cpu_is_guard(place.fiber, info->si_addr);
	/*
	 * Returning from the handler, rather than switching here, restores the
	 * signal mask and frees the alternate stack.  The ABI wants rsp to be
	 * 8 off a multiple of 16 at a function's first instruction.
	 */
	u->uc_mcontext.gregs[REG_RSP] =
		(greg_t)(((uintptr_t)cpu_fiber_top(place.fiber) &
			  ~(uintptr_t)15) -
			 8);
	u->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)after_fault;
}

#else

/* A sanitizer's report is worth more, and other CPUs lack the code. */
static void on_fault(int number, siginfo_t *info, void *context)
{
	pass_on(number, info, context);
}
#define DO_NOT_INSTALL 1

#endif

static void install(void)
{
	struct sigaction action;
	unsigned i;

#ifdef DO_NOT_INSTALL
	return;
#endif
	if (!cpu_env("PYREVOFF_CPU_FAULTS", 1, 0, 1))
		return;
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_fault;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigemptyset(&action.sa_mask);
	for (i = 0; i < NWATCHED; ++i)
		sigaction(watched[i], &action, &former[i]);
}

void cpu_segv_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

void *cpu_segv_thread_begin(void)
{
	stack_t s;

	memset(&s, 0, sizeof(s));
	/* A sanitizer gives its threads one already. */
	if (!sigaltstack(NULL, &s) && !(s.ss_flags & SS_DISABLE))
		return NULL;
	memset(&s, 0, sizeof(s));
	s.ss_size = ALT_STACK;
	s.ss_sp = mmap(NULL, ALT_STACK, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s.ss_sp == MAP_FAILED)
		return NULL;
	if (sigaltstack(&s, NULL)) {
		munmap(s.ss_sp, ALT_STACK);
		return NULL;
	}
	return s.ss_sp;
}

void cpu_segv_thread_end(void *stack)
{
	stack_t s;

	if (!stack)
		return;
	memset(&s, 0, sizeof(s));
	s.ss_flags = SS_DISABLE;
	sigaltstack(&s, NULL);
	munmap(stack, ALT_STACK);
}
