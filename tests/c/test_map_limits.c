/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: lists of any length, in the packet (up to 32 items) or fetched;
 * counts, sizes and addresses that nobody can mean are errors, and the next
 * run works.
 * Images: gomp
 */
#include "maps.h"

static unsigned expected;

static int integers(struct revoff_call *call, void *user)
{
	unsigned i;

	++*(int *)user;
	t_check(call->nargs == expected);
	for (i = 0; i < call->nargs; ++i) {
		t_check(call->words[i] == lab_mix(i));
		t_check(call->sizes[i] == 1u << i % 4);
		t_check(call->kinds[i] == (0x0d | i % 7 << 8));
	}
	return 0;
}

static int swap(struct revoff_call *call, void *user)
{
	unsigned i;

	++*(int *)user;
	t_check(call->nargs == expected);
	for (i = 0; i < call->nargs; ++i) {
		uint64_t *p = (uint64_t *)(uintptr_t)call->words[i];

		t_check(*p == i);
		*p = lab_mix(i);
	}
	return 0;
}

static int never(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	t_check(!"called");
	return 0;
}

static void lengths(struct maps *m)
{
	static const unsigned counts[] = { 1, 2, 31, 32, 33, 34, 64, 200, 3000 };
	struct map_item *items = malloc(65536 * sizeof(*items));
	uint64_t *data = malloc(3000 * 8);
	uint64_t at = maps_device(m, 3000 * 8, 0);
	unsigned c, i;
	int calls = 0;

	t_check(items && data);
	for (c = 0; c < sizeof(counts) / sizeof(counts[0]) + 1; ++c) {
		unsigned n = c < sizeof(counts) / sizeof(counts[0]) ? counts[c]
								    : 65536;

		expected = n;
		for (i = 0; i < n; ++i)
			items[i] = (struct map_item){ lab_mix(i), 1u << i % 4,
						      (uint16_t)(0x0d |
								 i % 7 << 8) };
		lab_ok(maps_call(m, items, n, integers, &calls));
		t_check(calls == (int)c + 1);
	}
	calls = 0;
	for (c = 0; c < sizeof(counts) / sizeof(counts[0]); ++c) {
		unsigned n = counts[c];

		expected = n;
		for (i = 0; i < n; ++i) {
			data[i] = i;
			items[i] = (struct map_item){ at + i * 8, 8, 0x303 };
		}
		maps_write(m, at, data, n * 8);
		lab_ok(maps_call(m, items, n, swap, &calls));
		t_check(calls == (int)c + 1);
		maps_read(m, data, at, n * 8);
		for (i = 0; i < n; ++i)
			t_check(data[i] == lab_mix(i));
	}
	maps_free(m, at);
	free(items);
	free(data);
}

static void counts(struct maps *m)
{
	static const uint64_t wrong[] = {
		65537,	    1ull << 31, (1ull << 32) + 1, 1ull << 40,
		1ull << 61, 1ull << 63, UINT64_MAX
	};
	uint64_t at = maps_device(m, 4096, 1);
	struct maps_step step = {
		.device = -2, .fn = m->fn, .addrs = at, .sizes = at, .kinds = at
	};
	char number[32];
	unsigned i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
		step.mapnum = wrong[i];
		snprintf(number, sizeof(number), "%llu map items",
			 (unsigned long long)wrong[i]);
		lab_refused(maps_call_raw(m, &step, never, NULL), REVOFF_ECALL,
			    number, "region");
		t_check(m->stats.failed == 1);
	}
	/* Lists that are not there: the copies say so. */
	step.mapnum = 40;
	step.addrs = 0;
	lab_refused(maps_call_raw(m, &step, never, NULL), REVOFF_EDRIVER,
		    "region", "cuMemcpyDtoHAsync");
	step.addrs = at;
	step.kinds = 16;
	lab_refused(maps_call_raw(m, &step, never, NULL), REVOFF_EDRIVER,
		    "region", "0x10");
	maps_free(m, at);
}

static void sizes(struct maps *m)
{
	static const uint64_t wrong[] = { (1ull << 47) + 1, 1ull << 62,
					  1ull << 63, UINT64_MAX - 7,
					  UINT64_MAX };
	static const unsigned kinds[] = { 0x00, 0x01, 0x02, 0x03, 0x80,
					  0x83, 0x13, 0x0c, 0x05, 0x97 };
	uint64_t at = maps_device(m, 64, 1);
	unsigned i, k;
	int calls = 0;

	for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); ++k) {
		struct map_item item = { at, 0, (uint16_t)(kinds[k] | 0x200) };

		for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
			item.size = wrong[i];
			lab_refused(maps_call(m, &item, 1, never, NULL),
				    REVOFF_ECALL, "region", "item 0 of 1");
		}
		/* Memory that is not the device's. */
		if ((kinds[k] & 3) && kinds[k] != 0x97) {
			item.address = 0x10;
			item.size = 64;
			lab_refused(maps_call(m, &item, 1, never, NULL),
				    REVOFF_EDRIVER, "region", "0x10",
				    "cuMemcpyDtoHAsync");
		}
	}
	t_check(maps_device_is(m, at, 64, 1));
	expected = 0;
	lab_ok(maps_call(m, NULL, 0, integers, &calls));
	t_check(calls == 1);
	maps_free(m, at);
}

static void test(struct maps *m)
{
	lengths(m);
	counts(m);
	sizes(m);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
