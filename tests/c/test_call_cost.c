/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: what a launch and a call ask of the driver.  No stream is made
 * per launch (V10); serving allocates and frees nothing; lists in the packet
 * need no copy, lists elsewhere one wait, and so do any number of items each
 * way (V11).
 * Images: gomp typed
 * Covers: V10 V11
 */
#include "maps.h"

#define ITEMS 20

static int nothing(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	return 0;
}

static const char *const never[] = {
	"cuMemAlloc",	       "cuMemFree",	    "cuMemHostAlloc",
	"cuMemFreeHost",       "cuMemAllocManaged", "cuMemHostRegister",
	"cuStreamCreate",      "cuStreamDestroy",   "cuMemsetD8Async",
	"cuMemHostUnregister",
};

/* Copies and waits of one call, next to those of the test itself. */
static void cost(struct maps *m, const struct map_item *items, unsigned n,
		 int in, int out, int waits)
{
	int bare[3], full[3], i, k;

	for (k = 0; k < 2; ++k) {
		for (i = 0; i < 2; ++i) {
			/* The second time, all memory is there. */
			revoff_fault_clear();
			if (k)
				lab_ok(maps_call(m, items, n, nothing, NULL));
			else
				/* The test's own: lists of no call. */
				lab_ok(maps_call(m, items, 0, nothing, NULL));
		}
		for (i = 0; i < (int)(sizeof(never) / sizeof(never[0])); ++i)
			t_check(!revoff_fault_calls(never[i]));
		i = k ? 1 : 0;
		(i ? full : bare)[0] = revoff_fault_calls("cuMemcpyDtoHAsync");
		(i ? full : bare)[1] = revoff_fault_calls("cuMemcpyHtoDAsync");
		(i ? full : bare)[2] =
			revoff_fault_calls("cuStreamSynchronize");
	}
	/* The three lists are written by the test, with a wait each. */
	full[1] -= 3;
	full[2] -= 3;
	fprintf(stderr, "%u items: in %d, out %d, waits %d\n", n,
		full[0] - bare[0], full[1] - bare[1], full[2] - bare[2]);
	t_check(full[0] - bare[0] == in);
	t_check(full[1] - bare[1] == out);
	t_check(full[2] - bare[2] == waits);
}

static void calls(int no_packet)
{
	struct revoff_device_options o = { .no_packet = no_packet };
	struct map_item items[40], integers[40];
	struct maps m;
	uint64_t at;
	int i;

	maps_open(&m, &o);
	at = maps_device(&m, 64 * 40, 1);
	for (i = 0; i < 40; ++i) {
		items[i] = (struct map_item){ at + 64 * (unsigned)i, 64, 3 };
		integers[i] = (struct map_item){ 1, 4, 0x0d };
	}
	cost(&m, integers, 32, no_packet ? 3 : 0, 0, no_packet ? 1 : 0);
	cost(&m, integers, 40, 3, 0, 1);
	cost(&m, items, ITEMS, ITEMS + (no_packet ? 3 : 0), ITEMS,
	     2 + (no_packet ? 1 : 0));
	maps_free(&m, at);
	maps_close(&m);
}

static void launches(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed");
	struct revoff_kernel *statuses = lab_kernel(image, "statuses");
	uint64_t at;
	int n = 3, i;
	void *params[] = { &at, &n };

	lab_bind(image, "nothing", nothing, NULL);
	lab_ok(revoff_alloc(d, 64, &at));
	lab_ok(lab_run(statuses, 1, 1, params, NULL));
	revoff_fault_clear();
	for (i = 0; i < 30; ++i)
		lab_ok(lab_run(statuses, 1, 1, params, NULL));
	for (i = 0; i < (int)(sizeof(never) / sizeof(never[0])); ++i)
		t_check(!revoff_fault_calls(never[i]));
	t_check(revoff_fault_calls("cuLaunchKernel") == 30);
	/* By-value calls in memory that the host sees need no copy at all. */
	if (o->placement != REVOFF_PLACE_COPY) {
		t_check(!revoff_fault_calls("cuMemcpyDtoHAsync"));
		t_check(!revoff_fault_calls("cuMemcpyHtoDAsync"));
		t_check(!revoff_fault_calls("cuStreamSynchronize"));
	}
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	revoff_fault_enable(1);
	calls(0);
	calls(1);
	lab_each_config(launches);
	return T_PASS;
}
