/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: the present table itself: counted, found by any address inside,
 * sorted whatever the order of mapping; overlaps refused; what an unmapped
 * array leaves is absent again; copies happen at the first and last mapping.
 * Images: gomp
 */
#include "maps.h"

#define ARRAYS 40
#define SIZE   700

static char host[ARRAYS][SIZE + 100];
static uint64_t device[ARRAYS];

static int at_host(struct revoff_call *call, void *user)
{
	unsigned i;

	++*(int *)user;
	for (i = 0; i < call->nargs; ++i)
		t_check(call->words[i] == (uintptr_t)host[i] + 3 * i);
	return 0;
}

static int not_at_host(struct revoff_call *call, void *user)
{
	uint64_t all = (uintptr_t)host, w = call->words[0];

	++*(int *)user;
	t_check(w < all || w >= all + sizeof(host));
	return 0;
}

static void many(struct maps *m)
{
	struct map_item items[ARRAYS];
	int calls = 0, i, k;

	for (k = 0; k < ARRAYS; ++k) {
		i = k * 27 % ARRAYS;
		lab_fill(host[i], SIZE, (unsigned)i);
		lab_ok(revoff_map_enter(
			m->device, host[i], SIZE,
			i % 2 ? REVOFF_MAP_TO : REVOFF_MAP_ALLOC, &device[i]));
	}
	for (i = 0; i < ARRAYS; ++i)
		items[i] = (struct map_item){ device[i] + 3 * (unsigned)i, 100,
					      0x03 };
	lab_ok(maps_call(m, items, ARRAYS, at_host, &calls));
	t_check(calls == 1);
	for (i = 1; i < ARRAYS; i += 2)
		t_check(maps_device_is(m, device[i], SIZE, (unsigned)i));
	for (k = 0; k < ARRAYS; ++k) {
		i = k * 11 % ARRAYS;
		lab_ok(revoff_map_exit(m->device, host[i], SIZE,
				       REVOFF_MAP_ALLOC));
	}
}

static void counting(struct maps *m)
{
	uint64_t a, b, c;
	struct map_item item = { 0, 50, 0x03 };
	int calls = 0;

	lab_fill(host[0], SIZE, 1);
	lab_ok(revoff_map_enter(m->device, host[0], SIZE, REVOFF_MAP_TO, &a));
	lab_fill(host[0], SIZE, 2);
	lab_ok(revoff_map_enter(m->device, host[0] + 10, 100, REVOFF_MAP_TO,
				&b));
	t_check(b == a + 10);
	t_check(maps_device_is(m, a, SIZE, 1));
	lab_refused(revoff_map_enter(m->device, host[0] + SIZE - 10, 20,
				     REVOFF_MAP_TO, &c),
		    REVOFF_EINVAL, "overlap");
	lab_ok(revoff_map_enter(m->device, host[0] + SIZE, 20, REVOFF_MAP_TO,
				&c));
	lab_ok(revoff_map_exit(m->device, host[0] + SIZE, 20, 0));
	lab_ok(revoff_map_exit(m->device, host[0] + 10, 100, REVOFF_MAP_FROM));
	/* One count is left: nothing was copied, all is present. */
	t_check(lab_is(host[0], SIZE, 2));
	item.address = a;
	lab_ok(maps_call(m, &item, 1, at_host, &calls));
	lab_ok(revoff_map_exit(m->device, host[0], SIZE, REVOFF_MAP_FROM));
	t_check(lab_is(host[0], SIZE, 1));
	lab_refused(revoff_map_exit(m->device, host[0], SIZE, 0), REVOFF_EINVAL,
		    "not mapped");
	a = maps_device(m, SIZE, 1);
	item.address = a;
	lab_ok(maps_call(m, &item, 1, not_at_host, &calls));
	t_check(calls == 2);
	maps_free(m, a);
	/* No bytes need no mapping. */
	lab_ok(revoff_map_enter(m->device, host[0], 0, REVOFF_MAP_TO, &a));
	t_check(!a);
	lab_ok(revoff_map_exit(m->device, host[0], 0, REVOFF_MAP_TO));
	lab_refused(revoff_map_enter(m->device, NULL, 8, 1, &a), REVOFF_EINVAL,
		    "map");
	lab_refused(revoff_map_enter(m->device, host[0], 8, 0x50, &a),
		    REVOFF_EINVAL, "kind");
}

static void test(struct maps *m)
{
	many(m);
	counting(m);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
