/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: each driver entry fails at its 1st, 2nd, ... call of a whole
 * life (open, load, run, unload, close), until a life has fewer calls.  Each
 * time the caller gets a negative code and a text that names the entry,
 * nothing crashes or hangs, and the next life is a healthy one.
 * Images: typed gomp
 * Covers: V21
 */
#include "cycle.h"

#define CODE 999 /* CUDA_ERROR_UNKNOWN: not one that loses the context */

/*
 * Failures that change nothing for the caller: what only tells more, what is
 * done without, and what happens on the way out.
 */
static const char *const harmless[] = {
	"cuGetErrorName",     "cuGetErrorString",  "cuDeviceTotalMem",
	"cuFuncGetParamInfo", "cuMemHostRegister", "cuMemHostUnregister",
	"cuCtxPopCurrent",    "cuMemFree",	   "cuMemFreeHost",
	"cuStreamDestroy",    "cuModuleUnload",	   "cuDevicePrimaryCtxRelease",
	"cuLinkDestroy",
};

/*
 * A driver that fails here keeps something: a registered range, a context on
 * the thread's stack.  These come last, in this order.
 */
static const char *const leaving[] = {
	"cuMemHostUnregister", "cuMemFree",	  "cuMemFreeHost",
	"cuStreamDestroy",     "cuModuleUnload",  "cuDevicePrimaryCtxRelease",
	"cuCtxPushCurrent",    "cuCtxPopCurrent",
};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static int is_in(const char *const *list, size_t n, const char *entry)
{
	size_t i;

	for (i = 0; i < n; ++i)
		if (!strcmp(list[i], entry))
			return 1;
	return 0;
}

static int is_harmless(const char *entry)
{
	return is_in(harmless, COUNT(harmless), entry);
}

/* Once a device is open, its context is only looked at to close it. */
static int may_be_done_without(const char *entry)
{
	return is_harmless(entry) || !strcmp(entry, "cuCtxPushCurrent") ||
	       !strcmp(entry, "cuCtxGetCurrent");
}

static const int codes[] = { CODE, 2 /* out of memory */ };

static void every_call(struct cycle *c, const char *entry, int code)
{
	int nth, fired, told = 0;

	for (nth = 1;; ++nth) {
		revoff_fault_clear();
		lab_ok(revoff_fault_set(entry, (unsigned)nth, code));
		cycle_run(c);
		fired = revoff_fault_calls(entry) >= nth;
		revoff_fault_clear();
		if (c->rc && !fired) {
			fprintf(stderr, "no fault, but %s: %s\n", c->step,
				c->error.text);
			exit(T_FAIL);
		}
		if (!fired)
			break;
		if (c->rc) {
			++told;
			if (!strstr(c->error.text, entry) || !c->error.code) {
				fprintf(stderr,
					"call %d of %s fails: %s says \"%s\"\n",
					nth, entry, c->step, c->error.text);
				exit(T_FAIL);
			}
		} else if (!may_be_done_without(entry)) {
			fprintf(stderr, "call %d of %s fails unnoticed\n", nth,
				entry);
			exit(T_FAIL);
		}
		t_check(nth < 2000);
	}
	fprintf(stderr, "%s: %d calls, %d failures told\n", entry, nth - 1,
		told);
	if (!is_harmless(entry))
		t_check(told || nth == 1);
	if (cycle_run(c)) {
		fprintf(stderr, "after faults of %s: %s says %s\n", entry,
			c->step, c->error.text);
		exit(T_FAIL);
	}
}

int main(int argc, char **argv)
{
	struct cycle c;
	const char *entry;
	unsigned i, turn;

	lab_begin(argc, argv);
	cycle_prepare(&c);
	revoff_fault_enable(1);
	/* Every placement with every code, half of them without the packet. */
	for (turn = 0; turn < 6; ++turn) {
		c.options.placement = (int)turn % 3;
		c.options.no_packet = turn % 2;
		for (i = 0; (entry = revoff_driver_entry(i)); ++i)
			if (!is_in(leaving, COUNT(leaving), entry))
				every_call(&c, entry, codes[turn / 3]);
	}
	for (i = 0; i < COUNT(leaving); ++i)
		for (turn = 0; turn < 3; ++turn) {
			c.options.placement = (int)turn;
			every_call(&c, leaving[i], CODE);
		}
	cycle_done(&c);
	return T_PASS;
}
