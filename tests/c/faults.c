/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

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

void faults_at_every_call(struct cycle *c, const char *entry, int code)
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
