/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: what is taken from the driver is given back (V19): after a
 * whole life, and after one that fails half-way, allocations, streams,
 * modules, contexts and registrations balance, entry by entry; the caller's
 * context is pushed as often as popped.
 * Images: typed gomp plain
 * Covers: V19
 */
#include "cycle.h"

static int calls(const char *entry)
{
	return revoff_fault_calls(entry);
}

static void balanced(const char *when)
{
	static const char *const pairs[][2] = {
		{ "cuMemHostAlloc", "cuMemFreeHost" },
		{ "cuMemHostRegister", "cuMemHostUnregister" },
		{ "cuStreamCreate", "cuStreamDestroy" },
		{ "cuModuleLoadDataEx", "cuModuleUnload" },
		{ "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease" },
		{ "cuCtxPushCurrent", "cuCtxPopCurrent" },
		{ "cuLinkCreate", "cuLinkDestroy" },
	};
	unsigned i;

	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); ++i)
		if (calls(pairs[i][0]) != calls(pairs[i][1])) {
			fprintf(stderr, "%s: %d x %s, %d x %s\n", when,
				calls(pairs[i][0]), pairs[i][0],
				calls(pairs[i][1]), pairs[i][1]);
			exit(T_FAIL);
		}
	if (calls("cuMemAlloc") + calls("cuMemAllocManaged") !=
	    calls("cuMemFree")) {
		fprintf(stderr, "%s: device memory: %d + %d, %d freed\n", when,
			calls("cuMemAlloc"), calls("cuMemAllocManaged"),
			calls("cuMemFree"));
		exit(T_FAIL);
	}
}

/* A launch that fails in the driver ends the life there. */
static void half_way(struct cycle *c)
{
	revoff_fault_clear();
	lab_ok(revoff_fault_set("cuLaunchKernel", 2, 1));
	t_check(cycle_run(c) < 0);
	balanced("half-way");
}

int main(int argc, char **argv)
{
	struct cycle c;
	int i;

	lab_begin(argc, argv);
	cycle_prepare(&c);
	revoff_fault_enable(1);
	for (i = 0; i < 14; ++i) {
		/* Ports, then the mailbox in all its forms. */
		c.options.transport = i < 2 ? REVOFF_TRANSPORT_PORTS
					    : REVOFF_TRANSPORT_MAILBOX;
		c.options.placement = i < 2 ? 0 : (int)((i - 2) / 4);
		c.options.lock = i < 2 ? 0 : (int)((i - 2) / 2 % 2);
		c.options.no_packet = i % 2;
		revoff_fault_clear();
		if (cycle_run(&c))
			lab_ok(c.rc);
		t_check(calls("cuMemHostAlloc") && calls("cuStreamCreate"));
		t_check(calls("cuModuleLoadDataEx") == 3);
		balanced(lab_config_name(&c.options));
		half_way(&c);
	}
	cycle_done(&c);
	return T_PASS;
}
