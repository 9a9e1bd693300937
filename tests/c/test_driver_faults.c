/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: each driver entry fails at its 1st, 2nd, ... call of a whole
 * life (open, load, run, unload, close), until a life has fewer calls.  Each
 * time the caller gets a negative code and a text that names the entry,
 * nothing crashes, hangs or leaks, and the next life is a healthy one.
 * Images: typed gomp plain
 * Covers: V21
 */
#include "faults.h"

/* test_driver_faults_at_end has these. */
static int gives_back(const char *entry)
{
	static const char *const entries[] = {
		"cuMemHostUnregister", "cuMemFree",
		"cuMemFreeHost",       "cuStreamDestroy",
		"cuModuleUnload",      "cuDevicePrimaryCtxRelease",
		"cuCtxPushCurrent",    "cuCtxPopCurrent",
	};
	unsigned i;

	for (i = 0; i < sizeof(entries) / sizeof(entries[0]); ++i)
		if (!strcmp(entries[i], entry))
			return 1;
	return 0;
}

/* Where memory cannot be registered, the driver's own has to do for ports. */
static void without_register(struct cycle *c)
{
	unsigned nth;

	for (nth = 1; nth < 20; ++nth) {
		revoff_fault_clear();
		lab_ok(revoff_fault_set("cuMemHostRegister", 1, -1));
		lab_ok(revoff_fault_set("cuMemHostAlloc", nth,
					FAULT_OUT_OF_MEMORY));
		if (!cycle_run(c))
			break;
		t_check(strstr(c->error.text, "cuMemHostAlloc"));
		t_check(revoff_fault_calls("cuMemHostAlloc") >= (int)nth);
	}
	/* Of them for the mailbox, the control words and two sets of ports. */
	t_check(nth >= 4 && nth < 20);
	revoff_fault_clear();
}

/* A driver that cannot even name its error. */
static void nameless(void)
{
	struct revoff_device *device;

	revoff_fault_clear();
	lab_ok(revoff_fault_set("cuGetErrorName", 1, 1));
	lab_ok(revoff_fault_set("cuGetErrorString", 1, 1));
	lab_ok(revoff_fault_set("cuStreamCreate", 1, 4711));
	lab_refused(revoff_device_open(lab_platform, 0, NULL, &device),
		    REVOFF_EDRIVER, "cuStreamCreate", "4711",
		    "unknown driver error", "no description");
	t_check(revoff_last_error()->driver_code == 4711);
	t_check(!strcmp(revoff_last_error()->entry, "cuStreamCreate"));
	revoff_fault_clear();
}

int main(int argc, char **argv)
{
	static const int codes[] = { FAULT_UNKNOWN, FAULT_OUT_OF_MEMORY };
	struct cycle c;
	const char *entry;
	unsigned i, turn;

	lab_begin(argc, argv);
	cycle_prepare(&c);
	revoff_fault_enable(1);
	/*
	 * Ports, and every placement of the mailbox, with every code; half of
	 * them without the packet.
	 */
	for (turn = 0; turn < 8; ++turn) {
		c.options.transport = turn / 2 ? REVOFF_TRANSPORT_MAILBOX
					       : REVOFF_TRANSPORT_PORTS;
		c.options.placement = turn / 2 ? (int)turn % 3 : 0;
		c.options.no_packet = turn % 2;
		for (i = 0; (entry = revoff_driver_entry(i)); ++i)
			if (!gives_back(entry))
				faults_at_every_call(
					&c, entry,
					codes[turn % 8 / 5 ^ turn % 2]);
	}
	c.options.transport = REVOFF_TRANSPORT_PORTS;
	c.options.placement = 0;
	without_register(&c);
	nameless();
	cycle_done(&c);
	return T_PASS;
}
