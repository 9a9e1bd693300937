/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: each data kind, present and absent, with every bit that does
 * not change its meaning: what the handler sees, what comes back on either
 * side, and that the bytes around the range stay as they were.
 * Images: gomp
 * Covers: V16
 */
#include "maps.h"

#define GUARD 64
#define N     200
#define WHOLE (GUARD + N + GUARD)

enum {
	ON_HOST = 1,   /* what was on the host */
	ON_DEVICE = 2, /* what was on the device */
	BY_HANDLER = 3,
};

enum sight {
	HOST,	/* the handler sees what was on the host */
	DEVICE, /* ... on the device */
	ZEROS,
	ERROR,
};

static const struct row {
	unsigned kind;
	enum sight present, absent;
	int present_back, absent_back;
} rows[] = {
	{ 0x00, HOST, ZEROS, 0, 0 },	{ 0x80, HOST, ZEROS, 0, 0 },
	{ 0x01, HOST, DEVICE, 0, 0 },	{ 0x81, DEVICE, DEVICE, 0, 0 },
	{ 0x11, DEVICE, DEVICE, 0, 0 }, { 0x02, HOST, DEVICE, 0, 1 },
	{ 0x82, HOST, DEVICE, 1, 1 },	{ 0x12, HOST, DEVICE, 1, 1 },
	{ 0x03, HOST, DEVICE, 0, 1 },	{ 0x83, DEVICE, DEVICE, 1, 1 },
	{ 0x13, DEVICE, DEVICE, 1, 1 }, { 0x06, HOST, ERROR, 0, 0 },
	{ 0x95, DEVICE, ERROR, 0, 0 },	{ 0x96, HOST, ERROR, 1, 0 },
	{ 0x97, DEVICE, ERROR, 1, 0 },
};

struct seen {
	enum sight want;
	char *user; /* the user's memory, if present */
	int calls;
};

static int handler(struct revoff_call *call, void *user)
{
	struct seen *seen = user;
	char *data = (char *)(uintptr_t)call->words[0];
	int i;

	seen->calls++;
	t_check(call->nargs == 1 && call->sizes[0] == N);
	t_check(data);
	t_check(!seen->user || data == seen->user);
	if (seen->want == ZEROS)
		for (i = 0; i < N; ++i)
			t_check(!data[i]);
	else
		t_check(lab_is(data, N,
			       seen->want == HOST ? ON_HOST : ON_DEVICE));
	/* All but the last byte: that one has to come back as it was. */
	lab_fill(data, N - 1, BY_HANDLER);
	return 0;
}

static void check_back(const char *got, int back, unsigned otherwise)
{
	char expected[N];

	lab_fill(expected, N, otherwise);
	if (back)
		lab_fill(expected, N - 1, BY_HANDLER);
	t_check(!memcmp(got, expected, N));
}

static void one(struct maps *m, const struct row *row, unsigned kind,
		int present)
{
	struct seen seen = { present ? row->present : row->absent, NULL, 0 };
	struct map_item item = { 0, N, (uint16_t)kind };
	char host[WHOLE], device[WHOLE];
	uint64_t at;
	int rc;

	memset(host, 0x55, sizeof(host));
	memset(device, 0x66, sizeof(device));
	lab_fill(host + GUARD, N, ON_HOST);
	lab_fill(device + GUARD, N, ON_DEVICE);
	if (present) {
		lab_ok(revoff_map_enter(m->device, host, WHOLE,
					REVOFF_MAP_ALLOC, &at));
		seen.user = host + GUARD;
	} else {
		lab_ok(revoff_alloc(m->device, WHOLE, &at));
	}
	maps_write(m, at, device, WHOLE);
	item.address = at + GUARD;
	rc = maps_call(m, &item, 1, handler, &seen);
	maps_read(m, device, at, WHOLE);
	if (present)
		lab_ok(revoff_map_exit(m->device, host, WHOLE,
				       REVOFF_MAP_ALLOC));
	else
		maps_free(m, at);
	fprintf(stderr, "kind 0x%03x, %s\n", kind,
		present ? "present" : "absent");
	if (seen.want == ERROR) {
		char number[16];

		snprintf(number, sizeof(number), "0x%02x", kind & 0xff);
		lab_refused(rc, REVOFF_ECALL, "region", number, "present");
		t_check(!seen.calls);
		check_back(device + GUARD, 0, ON_DEVICE);
	} else {
		lab_ok(rc);
		t_check(seen.calls == 1);
		/* What the handler left alone is what it saw. */
		check_back(device + GUARD,
			   present ? row->present_back : row->absent_back,
			   present && row->present_back && seen.want == HOST
				   ? ON_HOST
				   : ON_DEVICE);
	}
	if (present)
		/* The handler wrote to the user's own memory. */
		t_check(lab_is(host + GUARD, N - 1, BY_HANDLER));
	else
		t_check(lab_is(host + GUARD, N, ON_HOST));
	for (rc = 0; rc < GUARD; ++rc) {
		t_check(host[rc] == 0x55 && host[GUARD + N + rc] == 0x55);
		t_check(device[rc] == 0x66 && device[GUARD + N + rc] == 0x66);
	}
}

static void test(struct maps *m)
{
	unsigned i, align, implicit, present;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
		for (align = 0; align < 8; ++align)
			for (implicit = 0; implicit < 2; ++implicit)
				for (present = 0; present < 2; ++present)
					one(m, &rows[i],
					    rows[i].kind | align << 8 |
						    (implicit ? 0x60 : 0),
					    (int)present);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
