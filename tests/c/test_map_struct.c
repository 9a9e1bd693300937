/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: members of a struct, in every order: they lie in the host's
 * block as in the struct, each is copied by its own kind, and what lies
 * between them on the device stays as it was.  A present struct is the user's.
 * Images: gomp
 */
#include "maps.h"

struct body {
	int32_t id;	 /* 0, tofrom */
	char gap[4];	 /* 4, not mapped */
	double mass;	 /* 8, to */
	uint64_t vector; /* 16, pointer to 64 bytes */
	char name[5];	 /* 24, from */
	char gap2[11];	 /* 29, not mapped */
	int64_t last;	 /* 40, alloc */
};
_Static_assert(sizeof(struct body) == 48, "the test's offsets");

static const struct member {
	uint64_t at, size;
	unsigned kind;
} members[4] = {
	{ 0, 4, 0x203 },
	{ 8, 8, 0x301 },
	{ 24, 5, 0x002 },
	{ 40, 8, 0x300 },
};

static const struct body start = {
	11, "gap", 2.5, 0, { 'n', 'a', 'm', 'e', '!' }, "between", 77
};

struct want {
	int order[4];
	int calls;
	int with_vector;
};

static uint64_t member_word(struct revoff_call *call, const struct want *w,
			    int member)
{
	int i;

	for (i = 0; i < 4; ++i)
		if (w->order[i] == member)
			return call->words[1 + i];
	return 0;
}

static int handler(struct revoff_call *call, void *user)
{
	struct want *w = user;
	int32_t *id = (int32_t *)(uintptr_t)member_word(call, w, 0);
	double *mass = (double *)(uintptr_t)member_word(call, w, 1);
	char *name = (char *)(uintptr_t)member_word(call, w, 2);
	int64_t *last = (int64_t *)(uintptr_t)member_word(call, w, 3);
	char *base = (char *)id;

	w->calls++;
	t_check((char *)mass == base + 8 && name == base + 24);
	t_check((char *)last == base + 40);
	t_check(*id == 11 && *mass == 2.5 && !memcmp(name, "name!", 5));
	*id = 12;
	*mass = 0;
	memcpy(name, "other", 5);
	*last = 1;
	memset(base + 4, 0xee, 4);
	memset(base + 29, 0xee, 11);
	if (w->with_vector) {
		uint64_t value;

		memcpy(&value, base + 16, 8);
		t_check(value == call->words[5]);
		t_check(call->words[6] == (uintptr_t)base + 16);
		t_check(lab_is((void *)(uintptr_t)value, 64, 8));
		lab_fill((void *)(uintptr_t)value, 64, 9);
	}
	return 0;
}

static void check_device(struct maps *m, uint64_t at, uint64_t vector)
{
	char raw[16 + sizeof(struct body) + 16];
	struct body b;
	unsigned i;

	maps_read(m, raw, at - 16, sizeof(raw));
	memcpy(&b, raw + 16, sizeof(b));
	t_check(b.id == 12 && b.mass == 2.5 && b.vector == vector);
	t_check(!memcmp(b.name, "other", 5) && b.last == 77);
	t_check(!memcmp(b.gap, start.gap, 4));
	t_check(!memcmp(b.gap2, start.gap2, 11));
	for (i = 0; i < 16; ++i)
		t_check(raw[i] == 0x33 && raw[16 + sizeof(b) + i] == 0x33);
}

static void order(struct maps *m, const int *o, uint64_t block, int with_vector,
		  int own_address)
{
	uint64_t at = block + 16;
	struct map_item items[7];
	struct want w = { .with_vector = with_vector };
	struct body b = start;
	char raw[16 + sizeof(b) + 16];
	uint64_t vector = with_vector ? maps_device(m, 64, 8) : 0;
	int i;

	memset(raw, 0x33, sizeof(raw));
	b.vector = vector;
	memcpy(raw + 16, &b, sizeof(b));
	maps_write(m, block, raw, sizeof(raw));
	memcpy(w.order, o, sizeof(w.order));
	items[0] = (struct map_item){ own_address ? at : 0, 4, 0x1c };
	for (i = 0; i < 4; ++i)
		items[1 + i] =
			(struct map_item){ at + members[o[i]].at,
					   members[o[i]].size,
					   (uint16_t)members[o[i]].kind };
	items[5] = (struct map_item){ vector, 64, 0x303 };
	items[6] = (struct map_item){ at + 16, 0, 0x50 };
	lab_ok(maps_call(m, items, with_vector ? 7 : 5, handler, &w));
	t_check(w.calls == 1);
	check_device(m, at, vector);
	if (with_vector) {
		t_check(maps_device_is(m, vector, 64, 9));
		maps_free(m, vector);
	}
}

static int mine(struct revoff_call *call, void *user)
{
	struct body *b = user;

	t_check(call->words[0] == (uintptr_t)b);
	t_check(call->words[1] == (uintptr_t)&b->mass);
	t_check(call->words[2] == (uintptr_t)&b->id);
	b->id++;
	return 0;
}

static void present(struct maps *m, uint64_t block)
{
	struct body b = start;
	struct map_item items[] = { { block, 2, 0x1c },
				    { block + 8, 8, 0x301 },
				    { block, 4, 0x203 } };

	lab_ok(revoff_map_associate(m->device, &b, block, sizeof(b)));
	lab_ok(maps_call(m, items, 3, mine, &b));
	t_check(b.id == 12 && b.mass == 2.5);
	lab_ok(revoff_map_disassociate(m->device, &b));
	/* Held in part by the user's memory: no half temporary. */
	lab_ok(revoff_map_associate(m->device, &b, block, 8));
	lab_refused(maps_call(m, items, 3, mine, &b), REVOFF_ECALL, "in part");
	lab_ok(revoff_map_disassociate(m->device, &b));
}

static int never(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	t_check(!"called");
	return 0;
}

static int empty(struct revoff_call *call, void *user)
{
	++*(int *)user;
	t_check(call->nargs == 1);
	return 0;
}

static void refused(struct maps *m, uint64_t block)
{
	struct map_item items[] = { { block, 3, 0x1c },
				    { block + 8, 8, 0x301 },
				    { block, 4, 0x203 } };
	static const uint64_t counts[] = { 3, 4, 1ull << 32, 1ull << 63,
					   UINT64_MAX };
	unsigned i;
	int calls = 0;

	for (i = 0; i < 5; ++i) {
		items[0].size = counts[i];
		lab_refused(maps_call(m, items, 3, never, NULL), REVOFF_ECALL,
			    "members", "item 0 of 3");
	}
	items[0].size = 2;
	items[1].address = block + (1ull << 50);
	lab_refused(maps_call(m, items, 3, never, NULL), REVOFF_ECALL,
		    "too far apart");
	items[1].address = UINT64_MAX - 3;
	lab_refused(maps_call(m, items, 3, never, NULL), REVOFF_ECALL,
		    "larger than any memory");
	items[1].address = block + 8;
	items[1].size = 1ull << 63;
	lab_refused(maps_call(m, items, 3, never, NULL), REVOFF_ECALL,
		    "larger than any memory");
	items[0].size = 0;
	lab_ok(maps_call(m, items, 1, empty, &calls));
	t_check(calls == 1);
}

static void test(struct maps *m)
{
	uint64_t block = maps_device(m, 16 + sizeof(struct body) + 16, 0);
	int o[4], seen = 0, a, b, c;

	for (a = 0; a < 4; ++a)
		for (b = 0; b < 4; ++b)
			for (c = 0; c < 4; ++c) {
				o[0] = a;
				o[1] = b;
				o[2] = c;
				o[3] = 6 - a - b - c;
				if (a == b || a == c || b == c)
					continue;
				order(m, o, block, seen % 2, seen / 2 % 2);
				++seen;
			}
	t_check(seen == 24);
	present(m, block);
	refused(m, block);
	maps_free(m, block);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
