/* SPDX-License-Identifier: Apache-2.0 */
#include "maps.h"

void maps_open(struct maps *m, const struct revoff_device_options *options)
{
	static const char *const names[] = { "steps", "region", "region2" };
	struct revoff_image_options io = { names, 3, -1 };
	struct revoff_function f;

	memset(m, 0, sizeof(*m));
	m->device = lab_open(options);
	lab_ok(lab_try_load(m->device, "gomp", &io, &m->image));
	t_check(revoff_image_is_connected(m->image));
	m->index = (unsigned)lab_ok(revoff_image_find(m->image, "region"));
	lab_ok(revoff_image_function(m->image, m->index, &f));
	t_check(f.kind == REVOFF_FUNCTION_GOMP);
	m->fn = f.fn;
	m->kernel = lab_kernel(m->image, "steps");
}

void maps_close(struct maps *m)
{
	lab_ok(revoff_device_drain(m->device, LAB_LIMIT));
	lab_ok(revoff_image_unload(m->image));
	lab_close(m->device);
}

int maps_call_raw(struct maps *m, const struct maps_step *step,
		  revoff_handler *handler, void *user)
{
	uint64_t at;
	int n = 1, rc;
	void *params[] = { &at, &n };

	lab_ok(revoff_image_bind(m->image, m->index, handler, user));
	lab_ok(revoff_alloc(m->device, sizeof(*step), &at));
	lab_ok(revoff_copy_to_device(m->device, at, step, sizeof(*step)));
	rc = lab_run(m->kernel, 1, 1, params, &m->stats);
	/* What works leaves the last error alone, so it stays the run's. */
	lab_ok(revoff_free(m->device, at));
	return rc;
}

int maps_call(struct maps *m, const struct map_item *items, unsigned n,
	      revoff_handler *handler, void *user)
{
	uint64_t *addrs = malloc((n + 1) * 8), *sizes = malloc((n + 1) * 8);
	uint16_t *kinds = malloc((n + 1) * 2);
	struct maps_step step = { .device = -2, .fn = m->fn, .mapnum = n };
	unsigned i;
	int rc;

	t_check(addrs && sizes && kinds);
	for (i = 0; i < n; ++i) {
		addrs[i] = items[i].address;
		sizes[i] = items[i].size;
		kinds[i] = items[i].kind;
	}
	if (n) {
		lab_ok(revoff_alloc(m->device, n * 8, &step.addrs));
		lab_ok(revoff_alloc(m->device, n * 8, &step.sizes));
		lab_ok(revoff_alloc(m->device, n * 2, &step.kinds));
		maps_write(m, step.addrs, addrs, n * 8);
		maps_write(m, step.sizes, sizes, n * 8);
		maps_write(m, step.kinds, kinds, n * 2);
	}
	rc = maps_call_raw(m, &step, handler, user);
	maps_free(m, step.addrs);
	maps_free(m, step.sizes);
	maps_free(m, step.kinds);
	free(addrs);
	free(sizes);
	free(kinds);
	return rc;
}

uint64_t maps_device(struct maps *m, size_t size, unsigned seed)
{
	char *data = malloc(size);
	uint64_t at;

	t_check(data);
	lab_fill(data, size, seed);
	lab_ok(revoff_alloc(m->device, size, &at));
	maps_write(m, at, data, size);
	free(data);
	return at;
}

void maps_free(struct maps *m, uint64_t address)
{
	lab_ok(revoff_free(m->device, address));
}

void maps_read(struct maps *m, void *to, uint64_t address, size_t size)
{
	lab_ok(revoff_copy_from_device(m->device, to, address, size));
}

void maps_write(struct maps *m, uint64_t address, const void *from, size_t size)
{
	lab_ok(revoff_copy_to_device(m->device, address, from, size));
}

int maps_device_is(struct maps *m, uint64_t address, size_t size, unsigned seed)
{
	char *data = malloc(size);
	int same;

	t_check(data);
	maps_read(m, data, address, size);
	same = lab_is(data, size, seed);
	free(data);
	return same;
}

void maps_each_config(void (*test)(struct maps *m))
{
	int placement, no_packet;

	for (placement = 0; placement < 3; ++placement)
		for (no_packet = 0; no_packet < 2; ++no_packet) {
			struct revoff_device_options o = {
				.placement = placement,
				.no_packet = no_packet,
			};
			struct maps m;

			fprintf(stderr, "[%s]\n", lab_config_name(&o));
			maps_open(&m, &o);
			test(&m);
			maps_close(&m);
		}
}
