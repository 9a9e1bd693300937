/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a range that a mapping holds only in part is refused, however
 * it lies; one that merely touches a mapping is absent (G10).  Two mappings
 * side by side do not make one.
 * Images: gomp
 */
#include "maps.h"

#define SIZE 512

static uint64_t mapped; /* device address of SIZE mapped bytes */
static char host[SIZE];

static int count(struct revoff_call *call, void *user)
{
	(void)call;
	++*(int *)user;
	return 0;
}

static void partly(struct maps *m, uint64_t address, uint64_t size,
		   unsigned kind)
{
	struct map_item item = { address, size, (uint16_t)kind };
	int calls = 0;

	lab_refused(maps_call(m, &item, 1, count, &calls), REVOFF_ECALL,
		    "in part");
	t_check(!calls);
}

static int touching(struct revoff_call *call, void *user)
{
	uint64_t w = call->words[0];

	++*(int *)user;
	t_check(w);
	/* Not the user's array: a temporary. */
	t_check(w + call->sizes[0] <= (uintptr_t)host ||
		w >= (uintptr_t)host + SIZE);
	return 0;
}

/*
 * A block whose middle third is tied to host memory: what lies left and right
 * of it is real device memory, so that only the mapping can be at fault.
 */
static void test(struct maps *m)
{
	static const unsigned kinds[] = { 0x00, 0x01, 0x02, 0x03, 0x83,
					  0x13, 0x06, 0x97, 0x61 };
	uint64_t block = maps_device(m, 3 * SIZE, 1);
	struct map_item item = { 0, 16, 0x03 };
	unsigned i;
	int calls = 0;

	mapped = block + SIZE;
	lab_ok(revoff_map_associate(m->device, host, mapped, SIZE));
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
		partly(m, mapped - 8, 16, kinds[i]);
		partly(m, mapped + SIZE - 8, 16, kinds[i]);
		partly(m, mapped - 1, SIZE + 2, kinds[i]);
		partly(m, mapped, SIZE + 1, kinds[i]);
		partly(m, mapped - 1, SIZE + 1, kinds[i]);
		partly(m, block, 3 * SIZE, kinds[i]);
	}
	item.address = mapped - 16;
	lab_ok(maps_call(m, &item, 1, touching, &calls));
	item.address = mapped + SIZE;
	lab_ok(maps_call(m, &item, 1, touching, &calls));
	t_check(calls == 2);
	lab_ok(revoff_map_disassociate(m->device, host));

	/* Two halves next to each other on the device, apart on the host. */
	lab_ok(revoff_map_associate(m->device, host, mapped, 64));
	lab_ok(revoff_map_associate(m->device, host + 256, mapped + 64, 64));
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
		partly(m, mapped + 32, 64, kinds[i]);
		partly(m, mapped, 128, kinds[i]);
	}
	lab_ok(revoff_map_disassociate(m->device, host));
	lab_ok(revoff_map_disassociate(m->device, host + 256));

	/* The same among the items of one call. */
	{
		struct map_item two[] = { { block, 64, 0x03 },
					  { block + 32, 64, 0x03 } };

		calls = 0;
		lab_refused(maps_call(m, two, 2, count, &calls), REVOFF_ECALL,
			    "item 1 of 2", "in part");
		t_check(!calls);
		two[1].address = block + 16;
		two[1].size = 48;
		lab_ok(maps_call(m, two, 2, count, &calls));
		t_check(calls == 1);
	}
	maps_free(m, block);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
