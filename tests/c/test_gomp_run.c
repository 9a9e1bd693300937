/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: GOMP_OFFLOAD_run: teams and threads as libgomp passes them (in
 * the word, or in the next one), soft stacks that every warp can use to the
 * last byte, also when they have to grow, and never under a running kernel;
 * regions are served.
 * Images: gomprun
 * Variants: plain asan tsan
 */
#include "lab.h"

struct vars {
	uint64_t blocks, threads, bad;
};

static uint32_t in_region, go_on;

static int region(struct revoff_call *call, void *user)
{
	++*(int *)user;
	lab_set(&in_region, 1);
	lab_await(&go_on, 1);
	*(uint32_t *)(uintptr_t)call->words[0] += 5;
	return 0;
}

struct setup {
	struct revoff_device *device;
	struct revoff_image *image;
	uint64_t counters, vars;
};

static void counters(struct setup *s, uint32_t *value)
{
	uint32_t zero[3] = { 0, 0, 0 };

	lab_ok(revoff_copy_from_device(s->device, value, s->counters, 12));
	lab_ok(revoff_copy_to_device(s->device, s->counters, zero, 12));
}

static void shape(struct setup *s, void **args, unsigned teams,
		  unsigned threads)
{
	uint32_t value[3];

	lab_ok(revoff_gomp_run(lab_kernel(s->image, "entry"),
			       (void *)(uintptr_t)s->vars, args, LAB_LIMIT));
	counters(s, value);
	t_check(value[0] == teams && value[1] == teams * threads);
	t_check(!value[2]);
}

static void shapes(struct setup *s)
{
	void *none[] = { NULL };
	void *both[] = { (void *)(uintptr_t)(0x100 | 3 << 16),
			 (void *)(uintptr_t)(0x200 | 2 << 16), NULL };
	void *next[] = { (void *)(uintptr_t)(0x100 | 0x80), (void *)5,
			 (void *)(uintptr_t)(0x200 | 0x80), (void *)4, NULL };
	void *most[] = { (void *)(uintptr_t)(0x200 | 1000 << 16), NULL };
	void *other[] = { (void *)(uintptr_t)(0x300 | 9 << 16),
			  (void *)(uintptr_t)(0x100 | 2 << 16), NULL };

	shape(s, NULL, 1, 8);
	shape(s, none, 1, 8);
	shape(s, both, 3, 2);
	shape(s, next, 5, 4);
	shape(s, most, 1, 32);
	shape(s, other, 2, 8);
	shape(s, both, 3, 2);
}

static void *run_region(void *arg)
{
	struct setup *s = arg;
	void *args[] = { (void *)(uintptr_t)(0x100 | 1 << 16),
			 (void *)(uintptr_t)(0x200 | 1 << 16), NULL };

	lab_ok(revoff_gomp_run(lab_kernel(s->image, "calls"),
			       (void *)(uintptr_t)s->vars, args, LAB_LIMIT));
	return NULL;
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "entry", "region", "calls" };
	struct revoff_image_options io = { names, 3, -1 };
	void *large[] = { (void *)(uintptr_t)(0x100 | 64 << 16), NULL };
	struct setup s;
	struct vars v;
	uint32_t value[3] = { 0, 0, 0 };
	pthread_t thread;
	int calls = 0;

	lab_begin(argc, argv);
	revoff_fault_enable(1);
	s.device = lab_open(NULL);
	lab_ok(lab_try_load(s.device, "gomprun", &io, &s.image));
	lab_bind(s.image, "region", region, &calls);
	lab_ok(revoff_alloc(s.device, 12, &s.counters));
	lab_ok(revoff_copy_to_device(s.device, s.counters, value, 12));
	lab_ok(revoff_alloc(s.device, sizeof(v), &s.vars));
	v = (struct vars){ s.counters, s.counters + 4, s.counters + 8 };
	lab_ok(revoff_copy_to_device(s.device, s.vars, &v, sizeof(v)));
	shapes(&s);
	/* Larger stacks while a kernel has the old ones. */
	thread = lab_thread(run_region, &s);
	lab_await(&in_region, 1);
	revoff_fault_clear();
	lab_refused(revoff_gomp_run(lab_kernel(s.image, "entry"),
				    (void *)(uintptr_t)s.vars, large,
				    LAB_LIMIT),
		    REVOFF_EBUSY, "calls");
	t_check(!revoff_fault_calls("cuMemFree"));
	lab_set(&go_on, 1);
	lab_join(thread);
	counters(&s, value);
	/* One warp of 32 lanes, each of which called. */
	t_check(calls == 32 && value[2] == 32 * 5);
	shape(&s, large, 64, 8);
	lab_ok(revoff_free(s.device, s.counters));
	lab_ok(revoff_free(s.device, s.vars));
	lab_ok(revoff_image_unload(s.image));
	lab_close(s.device);
	return T_PASS;
}
