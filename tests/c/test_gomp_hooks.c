/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a target_rev of the user's own gets the nine arguments of the
 * patch raw, copies both ways with the functions it is given, tells which call
 * it serves, and can fail it; without one the default is back; failing copies
 * fail the call.
 * Images: gomp
 * Covers: V16 V18
 */
#include "maps.h"

static struct seen {
	int calls, fail;
	uint64_t fn, mapnum, address, size;
	uint16_t kind;
	int dev_num;
	struct revoff_image *image;
	unsigned index;
	uint64_t copy_from;
} seen;

static void mine(uint64_t fn_ptr, uint64_t mapnum, uint64_t devaddrs_ptr,
		 uint64_t sizes_ptr, uint64_t kinds_ptr, int dev_num,
		 revoff_copy_fn *dev_to_host, revoff_copy_fn *host_to_dev,
		 void *token)
{
	struct revoff_call *call = revoff_target_rev_call(token);
	char data[64];

	seen.calls++;
	seen.fn = fn_ptr;
	seen.mapnum = mapnum;
	seen.dev_num = dev_num;
	seen.image = call->image;
	seen.index = call->index;
	t_check(call->fn == fn_ptr && call->launch);
	dev_to_host(&seen.address, (void *)(uintptr_t)devaddrs_ptr, 8, token);
	dev_to_host(&seen.size, (void *)(uintptr_t)sizes_ptr, 8, token);
	dev_to_host(&seen.kind, (void *)(uintptr_t)kinds_ptr, 2, token);
	if (seen.copy_from) {
		dev_to_host(data, (void *)(uintptr_t)seen.copy_from, 64, token);
		return;
	}
	t_check(seen.size == 64);
	dev_to_host(data, (void *)(uintptr_t)seen.address, 64, token);
	t_check(lab_is(data, 64, 1));
	lab_fill(data, 64, 2);
	host_to_dev((void *)(uintptr_t)seen.address, data, 64, token);
	if (seen.fail)
		revoff_target_rev_fail(token, "not today");
}

/* Around the default, as a profiler would do it. */
static void around(uint64_t fn_ptr, uint64_t mapnum, uint64_t devaddrs_ptr,
		   uint64_t sizes_ptr, uint64_t kinds_ptr, int dev_num,
		   revoff_copy_fn *dev_to_host, revoff_copy_fn *host_to_dev,
		   void *token)
{
	seen.calls++;
	revoff_target_rev(fn_ptr, mapnum, devaddrs_ptr, sizes_ptr, kinds_ptr,
			  dev_num, dev_to_host, host_to_dev, token);
}

static int copies_in, copies_out;
static revoff_copy_fn *true_in, *true_out;

static void counted_in(void *to, const void *from, size_t size, void *token)
{
	++copies_in;
	true_in(to, from, size, token);
}

static void counted_out(void *to, const void *from, size_t size, void *token)
{
	++copies_out;
	true_out(to, from, size, token);
}

/* The default with copy functions that are not the library's. */
static void counting(uint64_t fn_ptr, uint64_t mapnum, uint64_t devaddrs_ptr,
		     uint64_t sizes_ptr, uint64_t kinds_ptr, int dev_num,
		     revoff_copy_fn *dev_to_host, revoff_copy_fn *host_to_dev,
		     void *token)
{
	seen.calls++;
	true_in = dev_to_host;
	true_out = host_to_dev;
	revoff_target_rev(fn_ptr, mapnum, devaddrs_ptr, sizes_ptr, kinds_ptr,
			  dev_num, counted_in, counted_out, token);
}

static int handler(struct revoff_call *call, void *user)
{
	++*(int *)user;
	t_check(lab_is((void *)(uintptr_t)call->words[0], 64, 1));
	lab_fill((void *)(uintptr_t)call->words[0], 64, 3);
	return 0;
}

static void renew(struct maps *m, uint64_t at)
{
	char data[64];

	lab_fill(data, 64, 1);
	maps_write(m, at, data, 64);
}

static void test(struct maps *m)
{
	uint64_t at = maps_device(m, 64, 1);
	struct map_item item = { at, 64, 0x303 };
	int calls = 0;

	memset(&seen, 0, sizeof(seen));
	lab_ok(revoff_set_target_rev(m->device, mine));
	lab_ok(maps_call(m, &item, 1, handler, &calls));
	t_check(seen.calls == 1 && !calls);
	t_check(seen.fn == m->fn && seen.mapnum == 1 && seen.kind == 0x303);
	t_check(seen.address == at && seen.dev_num == 0);
	t_check(seen.image == m->image && seen.index == m->index);
	t_check(maps_device_is(m, at, 64, 2));

	renew(m, at);
	seen.fail = 1;
	lab_refused(maps_call(m, &item, 1, handler, &calls), REVOFF_EHANDLER,
		    "not today");
	t_check(m->stats.failed == 1 && m->stats.calls == 1);
	seen.fail = 0;
	seen.copy_from = 0x10;
	lab_refused(maps_call(m, &item, 1, handler, &calls), REVOFF_EDRIVER,
		    "cuMemcpyDtoHAsync", "0x10", "region");

	seen.calls = 0;
	renew(m, at);
	lab_ok(revoff_set_target_rev(m->device, around));
	lab_ok(maps_call(m, &item, 1, handler, &calls));
	t_check(seen.calls == 1 && calls == 1);
	t_check(maps_device_is(m, at, 64, 3));

	renew(m, at);
	copies_in = copies_out = 0;
	lab_ok(revoff_set_target_rev(m->device, counting));
	lab_ok(maps_call(m, &item, 1, handler, &calls));
	t_check(calls == 2 && copies_in >= 1 && copies_out == 1);
	t_check(maps_device_is(m, at, 64, 3));

	renew(m, at);
	lab_ok(revoff_set_target_rev(m->device, NULL));
	lab_ok(maps_call(m, &item, 1, handler, &calls));
	t_check(seen.calls == 2 && calls == 3);
	t_check(maps_device_is(m, at, 64, 3));
	lab_refused(maps_call(m, &item, 1, NULL, NULL), REVOFF_ECALL, "region",
		    "no handler");
	maps_free(m, at);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	maps_each_config(test);
	return T_PASS;
}
