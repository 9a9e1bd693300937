/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: each of the 256 kinds either has a meaning or is refused with
 * its number; a refused call fails its launch only, runs no handler and
 * changes nothing.
 * Images: gomp
 */
#include "maps.h"

static const unsigned char supported[] = {
	0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x0c, 0x0d,
	0x0f, 0x11, 0x12, 0x13, 0x17, 0x1c, 0x1d, 0x1e, 0x1f, 0x50,
	0x52, 0x80, 0x81, 0x82, 0x83, 0x95, 0x96, 0x97,
};

static int is_supported(unsigned kind)
{
	unsigned i;

	if ((kind & 0x60) == 0x60)
		kind &= ~0x60u;
	for (i = 0; i < sizeof(supported); ++i)
		if (supported[i] == kind)
			return 1;
	return 0;
}

static int handler(struct revoff_call *call, void *user)
{
	(void)call;
	++*(int *)user;
	return 0;
}

static void test(struct maps *m)
{
	static char host[64];
	uint64_t at = maps_device(m, 64, 1);
	struct map_item good = { at, 64, 0x03 };
	unsigned kind, refused = 0;
	int calls = 0;

	/* Present, so that the present kinds have something to find. */
	lab_ok(revoff_map_associate(m->device, host, at, 64));
	for (kind = 0; kind < 256; ++kind) {
		struct map_item item = { at, 8, (uint16_t)(kind | 0x300) };
		char number[16];
		int before = calls, rc;

		if (kind == 0x1c || kind == 0x7c)
			item.size = 0;
		rc = maps_call(m, &item, 1, handler, &calls);
		if (is_supported(kind)) {
			lab_ok(rc);
			t_check(calls == before + 1);
			continue;
		}
		snprintf(number, sizeof(number), "kind 0x%02x", kind);
		lab_refused(rc, REVOFF_ECALL, number, "not supported", "region",
			    "item 0 of 1");
		t_check(calls == before && m->stats.failed == 1);
		t_check(m->stats.calls == 1);
		t_check(maps_device_is(m, at, 64, 1));
		++refused;
	}
	t_check(refused > 190);
	lab_ok(revoff_map_disassociate(m->device, host));
	/* Nor as an item among good ones. */
	{
		struct map_item items[] = { good, { at, 8, 0x5c }, good };
		int before = calls;

		lab_refused(maps_call(m, items, 3, handler, &calls),
			    REVOFF_ECALL, "item 1 of 3", "0x5c");
		t_check(calls == before);
		t_check(maps_device_is(m, at, 64, 1));
	}
	lab_ok(maps_call(m, &good, 1, handler, &calls));
	maps_free(m, at);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
