/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a declare target variable that was associated counts as
 * present: the handler works on the host's variable, not on a temporary (G4),
 * and always,tofrom carries both ways.
 * Images: gomp
 */
#include "maps.h"

static int counter[4] = { 10, 20, 30, 40 };

static int add(struct revoff_call *call, void *user)
{
	int *v = (int *)(uintptr_t)call->words[0], i;

	++*(int *)user;
	t_check(v == counter);
	for (i = 0; i < 4; ++i)
		v[i] += 100;
	return 0;
}

static void test(struct maps *m)
{
	static const int start[4] = { 10, 20, 30, 40 };
	struct revoff_kernel *bump = lab_kernel(m->image, "bump");
	int by = 5, calls = 0, i, device[4];
	struct map_item item = { 0, sizeof(counter), 0x203 };
	void *params[] = { &by };
	size_t size;

	lab_ok(revoff_image_symbol(m->image, "counter", &item.address, &size));
	t_check(size == sizeof(counter));
	memcpy(counter, start, sizeof(counter));
	lab_ok(revoff_map_associate(m->device, counter, item.address, size));
	/* Associating copies nothing. */
	maps_read(m, device, item.address, size);
	for (i = 0; i < 4; ++i)
		t_check(device[i] == i + 1 && counter[i] == start[i]);
	lab_refused(revoff_map_associate(m->device, counter, item.address,
					 size),
		    REVOFF_EINVAL, "mapped already");
	lab_ok(maps_call(m, &item, 1, add, &calls));
	maps_read(m, device, item.address, size);
	for (i = 0; i < 4; ++i)
		t_check(counter[i] == start[i] + 100 && device[i] == i + 1);
	item.kind = 0x213;
	lab_ok(lab_run(bump, 1, 1, params, NULL));
	lab_ok(maps_call(m, &item, 1, add, &calls));
	maps_read(m, device, item.address, size);
	for (i = 0; i < 4; ++i)
		t_check(counter[i] == i + 106 && device[i] == i + 106);
	t_check(calls == 2);
	/* What was only associated is not unmapped, or freed. */
	lab_refused(revoff_map_exit(m->device, counter, size, 0), REVOFF_EINVAL,
		    "not mapped");
	lab_ok(revoff_map_disassociate(m->device, counter));
	lab_refused(revoff_map_disassociate(m->device, counter), REVOFF_EINVAL,
		    "not associated");
	lab_ok(lab_run(bump, 1, 1, params, NULL));
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
