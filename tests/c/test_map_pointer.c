/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: POINTER, ATTACH, ALWAYS_POINTER and their zero-length forms:
 * the handler finds host addresses behind them, less the bias, stored at the
 * pointer's own place (G7); a target that is not there is NULL or an error
 * (G6); on the device the pointers are its own again afterwards.
 * Images: gomp
 */
#include "maps.h"

#define N	  16
#define DATA_SIZE (N * sizeof(double))

struct holder {
	int32_t a, pad;
	uint64_t p; /* device address of N doubles */
	int32_t b, pad2;
};

static const unsigned plain[] = { 0x04, 0x50, 0x1d };
static const unsigned zero_len[] = { 0x1e, 0x52 };

struct want {
	uint64_t bias;
	int attached; /* index of the pointer item; the target is before it */
	int null;
	int calls;
};

/* The pointer alone. */
static int alone(struct revoff_call *call, void *user)
{
	struct want *w = user;
	uint64_t value;

	w->calls++;
	memcpy(&value, (void *)(uintptr_t)call->words[w->attached], 8);
	if (w->null)
		t_check(!value);
	else
		t_check(value == call->words[w->attached - 1] - w->bias);
	return 0;
}

static void pointers_alone(struct maps *m, uint64_t data, uint64_t holder)
{
	static const uint64_t biases[] = { 0, 8, 64, 4096, 1ull << 40 };
	uint64_t at = holder + 8, got;
	unsigned k, b;

	for (k = 0; k < 5; ++k) {
		unsigned kind = k < 3 ? plain[k] : zero_len[k - 3];

		for (b = 0; b < 5; ++b) {
			struct want w = { biases[b], 1, 0, 0 };
			struct map_item items[] = {
				{ data, DATA_SIZE, 0x303 },
				{ at, biases[b], (uint16_t)kind },
			};

			lab_ok(maps_call(m, items, 2, alone, &w));
			t_check(w.calls == 1);
			/* Firstprivate data can be pointed to as well. */
			items[0].kind = 0x30c;
			lab_ok(maps_call(m, items, 2, alone, &w));
			items[0].kind = 0x01 | 0x60;
			if (!(kind & 0x40))
				items[1].kind |= 0x60;
			lab_ok(maps_call(m, items, 2, alone, &w));
			t_check(w.calls == 3);
			maps_read(m, &got, at, 8);
			t_check(got == data);
		}
	}
	t_check(maps_device_is(m, data, DATA_SIZE, 3));
}

/* Inside a struct that comes back. */
static int inside(struct revoff_call *call, void *user)
{
	struct want *w = user;
	struct holder *h = (void *)(uintptr_t)call->words[0];
	double *data = (double *)(uintptr_t)call->words[1];

	w->calls++;
	t_check(call->words[2] == call->words[0] + 8);
	t_check(h->p == call->words[1] - w->bias);
	t_check(h->a == 7 && h->b == 9);
	h->a = 70;
	h->b = 90;
	h->p = 0; /* not the handler's to change */
	lab_fill(data, DATA_SIZE, 4);
	return 0;
}

static void pointers_inside(struct maps *m, uint64_t data, uint64_t holder)
{
	unsigned k;

	for (k = 0; k < 5; ++k) {
		unsigned kind = k < 3 ? plain[k] : zero_len[k - 3];
		struct holder h = { 7, 0, data, 9, 0 };
		struct want w = { 24, 2, 0, 0 };
		struct map_item items[] = {
			{ holder, sizeof(h), 0x303 },
			{ data, DATA_SIZE, 0x303 },
			{ holder + 8, 24, (uint16_t)kind },
		};

		maps_write(m, holder, &h, sizeof(h));
		lab_ok(maps_call(m, items, 3, inside, &w));
		t_check(w.calls == 1);
		maps_read(m, &h, holder, sizeof(h));
		t_check(h.a == 70 && h.b == 90);
		t_check(h.p == data);
		t_check(maps_device_is(m, data, DATA_SIZE, 4));
	}
}

/* Struct and data are the user's own: nothing is touched. */
static int user_owned(struct revoff_call *call, void *user)
{
	struct holder *h = user;

	t_check(call->words[0] == (uintptr_t)h);
	t_check(call->words[2] == (uintptr_t)&h->p);
	t_check(h->p == 12345);
	h->a++;
	return 0;
}

static void pointers_present(struct maps *m, uint64_t data, uint64_t holder)
{
	struct holder h = { 1, 0, 12345, 2, 0 }, back;
	unsigned k;

	lab_ok(revoff_map_associate(m->device, &h, holder, sizeof(h)));
	for (k = 0; k < 5; ++k) {
		unsigned kind = k < 3 ? plain[k] : zero_len[k - 3];
		struct map_item items[] = {
			{ holder, sizeof(h), 0x303 },
			{ data, DATA_SIZE, 0x303 },
			{ holder + 8, 8, (uint16_t)kind },
		};

		lab_ok(maps_call(m, items, 3, user_owned, &h));
		maps_read(m, &back, holder, sizeof(back));
		t_check(back.p == data);
	}
	t_check(h.a == 6 && h.p == 12345);
	lab_ok(revoff_map_disassociate(m->device, &h));
}

/* Nothing before the pointer, or nothing mapped. */
static void no_target(struct maps *m, uint64_t data, uint64_t holder)
{
	struct want w = { 0, 1, 1, 0 };
	unsigned k;

	for (k = 0; k < 5; ++k) {
		unsigned kind = k < 3 ? plain[k] : zero_len[k - 3];
		struct map_item null[] = { { 0, 0, 0x0f },
					   { holder + 8, 0, (uint16_t)kind } };
		/* Looked up only, and not there. */
		struct map_item gone[] = { { data, 0, 0x1f },
					   { holder + 8, 0, (uint16_t)kind } };
		int calls = w.calls;

		lab_ok(maps_call(m, null, 2, alone, &w));
		t_check(w.calls == calls + 1);
		if (k < 3) {
			lab_refused(maps_call(m, gone, 2, alone, &w),
				    REVOFF_ECALL, "target is not mapped",
				    "item 1 of 2");
			t_check(w.calls == calls + 1);
		} else {
			lab_ok(maps_call(m, gone, 2, alone, &w));
			t_check(w.calls == calls + 2);
		}
		w.attached = 0;
		lab_ok(maps_call(m, null + 1, 1, alone, &w));
		w.attached = 1;
	}
}

/* A list of three nodes, each attached to the one before. */
static int walk(struct revoff_call *call, void *user)
{
	uint64_t *node = (uint64_t *)(uintptr_t)call->words[0];

	++*(int *)user;
	t_check(node[1] == 100);
	node = (uint64_t *)(uintptr_t)node[0];
	t_check(node == (uint64_t *)(uintptr_t)call->words[1]);
	t_check(node[1] == 101);
	node = (uint64_t *)(uintptr_t)node[0];
	t_check(node == (uint64_t *)(uintptr_t)call->words[3]);
	t_check(node[1] == 102);
	node[1] = 103;
	return 0;
}

static void chain(struct maps *m)
{
	uint64_t node[3][2], at[3];
	struct map_item items[5];
	int i, calls = 0;

	for (i = 2; i >= 0; --i) {
		at[i] = maps_device(m, 16, 1);
		node[i][0] = i < 2 ? at[i + 1] : 0;
		node[i][1] = 100 + (uint64_t)i;
		maps_write(m, at[i], node[i], 16);
	}
	items[0] = (struct map_item){ at[0], 16, 0x303 };
	items[1] = (struct map_item){ at[1], 16, 0x303 };
	items[2] = (struct map_item){ at[0], 0, 0x50 };
	items[3] = (struct map_item){ at[2], 16, 0x303 };
	items[4] = (struct map_item){ at[1], 0, 0x50 };
	lab_ok(maps_call(m, items, 5, walk, &calls));
	t_check(calls == 1);
	for (i = 0; i < 3; ++i) {
		maps_read(m, node[i], at[i], 16);
		t_check(node[i][0] == (i < 2 ? at[i + 1] : 0));
		maps_free(m, at[i]);
	}
	t_check(node[2][1] == 103);
}

static void test(struct maps *m)
{
	uint64_t data = maps_device(m, DATA_SIZE, 3);
	uint64_t holder = maps_device(m, sizeof(struct holder), 0);
	struct holder h = { 7, 0, data, 9, 0 };

	maps_write(m, holder, &h, sizeof(h));
	pointers_alone(m, data, holder);
	pointers_inside(m, data, holder);
	pointers_present(m, data, holder);
	no_target(m, data, holder);
	chain(m);
	maps_free(m, data);
	maps_free(m, holder);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
