/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a Fortran array descriptor (TO_PSET and its POINTER): the
 * handler finds a host address in it; an array that is not allocated stays so;
 * a present descriptor is the user's; on the device nothing of it changes.
 * Images: gomp
 */
#include "maps.h"

struct descriptor {
	uint64_t base;
	int64_t offset, dtype[2], span, dim[3];
};

static struct want {
	uint64_t base; /* expected; 1: that of item 0 */
	uint64_t bias;
	int calls;
} want;

static int handler(struct revoff_call *call, void *user)
{
	struct descriptor *d = (void *)(uintptr_t)call->words[1];

	(void)user;
	want.calls++;
	t_check(call->nargs == 3);
	t_check(call->words[2] == call->words[1]);
	t_check(d->offset == -1 && d->span == 8 && d->dim[2] == 12);
	t_check(d->base ==
		(want.base == 1 ? call->words[0] - want.bias : want.base));
	if (want.base == 1)
		lab_fill((void *)(uintptr_t)call->words[0], 96, 3);
	return 0;
}

static void test(struct maps *m)
{
	uint64_t data = maps_device(m, 96, 2);
	uint64_t at = maps_device(m, sizeof(struct descriptor), 0);
	struct descriptor d = { data, -1, { 8, 1 }, 8, { 1, 1, 12 } }, back;
	struct map_item items[] = { { data, 96, 0x303 },
				    { at, sizeof(d), 0x305 },
				    { at, 0, 0x304 } };
	char host[96];

	/* Allocated and absent: item 0 is a temporary. */
	maps_write(m, at, &d, sizeof(d));
	want = (struct want){ 1, 0, 0 };
	lab_ok(maps_call(m, items, 3, handler, NULL));
	t_check(want.calls == 1 && maps_device_is(m, data, 96, 3));
	maps_read(m, &back, at, sizeof(back));
	t_check(!memcmp(&back, &d, sizeof(d)));

	/* The same with a bias: the pointer lies before the section. */
	d.base = data - 40;
	maps_write(m, at, &d, sizeof(d));
	items[2].size = 40;
	want = (struct want){ 1, 40, 0 };
	lab_ok(maps_call(m, items, 3, handler, NULL));
	t_check(want.calls == 1);
	items[2].kind = 0x350;
	lab_ok(maps_call(m, items, 3, handler, NULL));
	items[2].kind = 0x304;
	items[2].size = 0;

	/* Data in the user's array. */
	d.base = data + 16;
	maps_write(m, at, &d, sizeof(d));
	lab_ok(revoff_map_associate(m->device, host, data, 96));
	want = (struct want){ (uintptr_t)host + 16, 0, 0 };
	lab_ok(maps_call(m, items, 3, handler, NULL));
	t_check(want.calls == 1);
	lab_ok(revoff_map_disassociate(m->device, host));

	/* Not allocated. */
	d.base = 0;
	maps_write(m, at, &d, sizeof(d));
	want = (struct want){ 0, 0, 0 };
	items[0] = (struct map_item){ 0, 0, 0x0f };
	lab_ok(maps_call(m, items, 3, handler, NULL));
	t_check(want.calls == 1);

	/* Pointing to what nobody mapped. */
	d.base = data;
	maps_write(m, at, &d, sizeof(d));
	lab_refused(maps_call(m, items, 3, handler, NULL), REVOFF_ECALL,
		    "descriptor", "not mapped");
	t_check(want.calls == 1);

	/* A descriptor of the user's. */
	back = d;
	back.base = 4711;
	lab_ok(revoff_map_associate(m->device, &back, at, sizeof(back)));
	want = (struct want){ 4711, 0, 0 };
	lab_ok(maps_call(m, items, 3, handler, NULL));
	t_check(want.calls == 1 && back.base == 4711);
	lab_ok(revoff_map_disassociate(m->device, &back));
	maps_read(m, &back, at, sizeof(back));
	t_check(!memcmp(&back, &d, sizeof(d)));

	/* A descriptor too short for the pointer that follows. */
	items[0] = (struct map_item){ data, 96, 0x303 };
	items[1].size = 4;
	lab_refused(maps_call(m, items, 3, handler, NULL), REVOFF_ECALL,
		    "in part");
	maps_free(m, data);
	maps_free(m, at);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
