/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: NULL and no bytes.  A NULL stays NULL for every kind, whatever
 * its size says; a zero-length section is the address of the mapping that
 * holds or begins at it, never of one that ends there; the look-up-only kinds
 * give NULL when absent.
 * Images: gomp
 */
#include "maps.h"

#define SIZE 512

static uint64_t words[64];

static int note(struct revoff_call *call, void *user)
{
	++*(int *)user;
	t_check(call->nargs <= 64);
	memcpy(words, call->words, call->nargs * 8);
	return 0;
}

static uint64_t word_of(struct maps *m, uint64_t address, uint64_t size,
			unsigned kind)
{
	struct map_item item = { address, size, (uint16_t)kind };
	int calls = 0;

	words[0] = 1;
	lab_ok(maps_call(m, &item, 1, note, &calls));
	t_check(calls == 1);
	return words[0];
}

static void nulls(struct maps *m)
{
	static const unsigned kinds[] = {
		0x00, 0x80, 0x01, 0x81, 0x11, 0x02, 0x82, 0x12, 0x03,
		0x83, 0x13, 0x06, 0x95, 0x96, 0x97, 0x0f, 0x07, 0x17,
		0x1f, 0x04, 0x50, 0x1d, 0x05, 0x0c, 0x0d, 0x1e, 0x52,
	};
	unsigned i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
		t_check(word_of(m, 0, 0, kinds[i]) == 0);
		t_check(word_of(m, 0, 40, kinds[i] | 0x300) == 0);
	}
	/* An integer of value 0 is not a pointer. */
	t_check(word_of(m, 7, 4, 0x0d) == 7);
	t_check(word_of(m, UINT64_MAX, 8, 0x30d) == UINT64_MAX);
}

static void lengths(struct maps *m)
{
	static char host[2 * SIZE];
	uint64_t block = maps_device(m, 3 * SIZE, 1);
	uint64_t a = block + SIZE, b = a + 64;
	uintptr_t ha = (uintptr_t)host, hb = ha + SIZE;
	static const unsigned lookups[] = { 0x07, 0x17, 0x1f };
	unsigned i;

	/* a ends where b begins. */
	lab_ok(revoff_map_associate(m->device, host, a, 64));
	lab_ok(revoff_map_associate(m->device, host + SIZE, b, 64));
	for (i = 0; i < 4; ++i) {
		unsigned kind = i ? lookups[i - 1] : 0x0f;

		t_check(word_of(m, a, 0, kind) == ha);
		t_check(word_of(m, a + 63, 0, kind) == ha + 63);
		t_check(word_of(m, b, 0, kind) == hb);
		t_check(word_of(m, b + 10, 0, kind) == hb + 10);
	}
	for (i = 0; i < 3; ++i) {
		t_check(word_of(m, b + 64, 0, lookups[i]) == 0);
		t_check(word_of(m, block, 0, lookups[i]) == 0);
	}
	/* Absent: some address, but nobody's. */
	t_check(word_of(m, block, 0, 0x0f) != 0);
	t_check(word_of(m, b + 64, 0, 0x0f) != hb + 64);
	/* No bytes of an ordinary kind. */
	for (i = 0; i < 4; ++i) {
		t_check(word_of(m, b, 0, i) == hb);
		t_check(word_of(m, block, 0, i) != 0);
	}
	lab_ok(revoff_map_disassociate(m->device, host));
	lab_ok(revoff_map_disassociate(m->device, host + SIZE));
	maps_free(m, block);
}

/* Among the items of one call, in both orders. */
static void neighbours(struct maps *m)
{
	uint64_t block = maps_device(m, SIZE, 1);
	struct map_item items[] = { { block, 64, 0x01 },
				    { block + 64, 64, 0x01 },
				    { block + 64, 0, 0x0f },
				    { block + 40, 0, 0x0f },
				    { block + 128, 0, 0x1f } };
	int calls = 0;

	lab_ok(maps_call(m, items, 5, note, &calls));
	t_check(words[2] == words[1] && words[3] == words[0] + 40);
	t_check(!words[4]);
	items[0].address = block + 64;
	items[1].address = block;
	lab_ok(maps_call(m, items, 5, note, &calls));
	t_check(words[2] == words[0] && words[3] == words[1] + 40);
	t_check(!words[4] && calls == 2);
	maps_free(m, block);
}

static void test(struct maps *m)
{
	int calls = 0;

	lab_ok(maps_call(m, NULL, 0, note, &calls));
	t_check(calls == 1);
	nulls(m);
	lengths(m);
	neighbours(m);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
