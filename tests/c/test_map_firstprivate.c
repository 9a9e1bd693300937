/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: firstprivate data is a copy, whatever its alignment (G1):
 * 1 to 128 bytes, honoured in the host's memory too; changes of the handler
 * are seen by nobody, even if a mapping holds the data.  Integers of every
 * size come as they are.
 * Images: gomp
 */
#include "maps.h"

#define SIZE 300

struct want {
	uint64_t device;
	unsigned log2;
	int calls;
};

static int handler(struct revoff_call *call, void *user)
{
	struct want *want = user;
	char *data = (char *)(uintptr_t)call->words[0];

	want->calls++;
	t_check(call->words[0] != want->device);
	t_check(call->words[0] % (1u << want->log2) == 0);
	t_check(lab_is(data, SIZE, 5));
	t_check(call->addresses[0] == want->device);
	memset(data, 0, SIZE);
	return 0;
}

static int integers(struct revoff_call *call, void *user)
{
	unsigned i;

	++*(int *)user;
	t_check(call->nargs == 40);
	for (i = 0; i < call->nargs; ++i)
		t_check(call->words[i] == lab_mix(i));
	return 0;
}

static void test(struct maps *m)
{
	uint64_t at = maps_device(m, SIZE, 5);
	struct map_item item, many[40];
	unsigned log2, i;
	int calls = 0;
	char host[SIZE];

	for (log2 = 0; log2 < 8; ++log2) {
		struct want want = { at, log2, 0 };

		item = (struct map_item){ at, SIZE,
					  (uint16_t)(0x0c | log2 << 8) };
		lab_ok(maps_call(m, &item, 1, handler, &want));
		t_check(want.calls == 1);
		t_check(maps_device_is(m, at, SIZE, 5));
		/* Also if the data is mapped. */
		lab_fill(host, SIZE, 9);
		lab_ok(revoff_map_associate(m->device, host, at, SIZE));
		item.kind |= 0x60;
		lab_ok(maps_call(m, &item, 1, handler, &want));
		lab_ok(revoff_map_disassociate(m->device, host));
		t_check(want.calls == 2);
		t_check(maps_device_is(m, at, SIZE, 5));
		t_check(lab_is(host, SIZE, 9));
	}
	for (i = 0; i < 40; ++i)
		many[i] = (struct map_item){ lab_mix(i), 1u << i % 4,
					     (uint16_t)(0x0d | (i % 8) << 8 |
							(i & 8 ? 0x60 : 0)) };
	lab_ok(maps_call(m, many, 40, integers, &calls));
	t_check(calls == 1);
	maps_free(m, at);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
