/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: as test_driver_faults, for the entries that give something
 * back.  If they fail the driver keeps it (a stream with its thread, a context
 * on the stack of contexts), but the caller's life goes on, and so does the
 * next one.
 * Images: typed gomp plain
 */
#include "faults.h"

/*
 * LeakSanitizer would report what the driver keeps, and its search can hang
 * when threads are left.
 */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

int main(int argc, char **argv)
{
	/* What a later one needs most is kept last. */
	static const char *const entries[] = {
		"cuMemHostUnregister", "cuMemFree",
		"cuMemFreeHost",       "cuStreamDestroy",
		"cuModuleUnload",      "cuDevicePrimaryCtxRelease",
		"cuCtxPushCurrent",    "cuCtxPopCurrent",
	};
	struct cycle c;
	unsigned i;
	int placement;

	lab_begin(argc, argv);
	cycle_prepare(&c);
	revoff_fault_enable(1);
	for (i = 0; i < sizeof(entries) / sizeof(entries[0]); ++i)
		for (placement = -1; placement < 3; ++placement) {
			c.options.transport =
				placement < 0 ? REVOFF_TRANSPORT_PORTS
					      : REVOFF_TRANSPORT_MAILBOX;
			c.options.placement = placement < 0 ? 0 : placement;
			faults_at_every_call(&c, entries[i], FAULT_UNKNOWN);
		}
	cycle_done(&c);
	return T_PASS;
}
