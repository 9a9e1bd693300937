/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: four host threads run kernels of four images on one device at
 * once, again and again: no lock is held over a kernel (V14), every call is
 * answered by its own image's handler, none crosses, none is lost, and no
 * block starves (V15).
 * Images: typed
 * Variants: plain asan tsan
 * Covers: V15
 */
#include "lab.h"

#define THREADS 4
#define RUNS	3
#define BLOCKS	6
#define LANES	5

struct worker {
	struct revoff_device *device;
	struct revoff_image *image;
	unsigned calls;
	unsigned per_block[BLOCKS];
};

static int lane(struct revoff_call *call, void *user)
{
	struct worker *w = user;

	t_check(call->image == w->image);
	t_check(call->block[0] < BLOCKS && call->thread[0] < LANES);
	t_check(call->words[0] == call->block[0] * LANES + call->thread[0]);
	call->result = lab_mix(call->words[0]);
	w->calls++;
	w->per_block[call->block[0]]++;
	return 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct revoff_kernel *lanes = lab_kernel(w->image, "lanes");
	uint64_t bad, value = 0;
	void *params[] = { &bad };
	struct revoff_stats stats;
	int i;

	lab_ok(revoff_alloc(w->device, 8, &bad));
	lab_ok(revoff_copy_to_device(w->device, bad, &value, 8));
	for (i = 0; i < RUNS; ++i) {
		lab_ok(lab_run(lanes, BLOCKS, LANES, params, &stats));
		t_check(stats.calls == BLOCKS * LANES && !stats.failed);
	}
	lab_ok(revoff_copy_from_device(w->device, &value, bad, 8));
	t_check(!value);
	lab_ok(revoff_free(w->device, bad));
	t_check(w->calls == RUNS * BLOCKS * LANES);
	for (i = 0; i < BLOCKS; ++i)
		t_check(w->per_block[i] == RUNS * LANES);
	return NULL;
}

static void test(const struct revoff_device_options *o)
{
	struct revoff_device *d = lab_open(o);
	struct worker w[THREADS];
	pthread_t thread[THREADS];
	int i;

	memset(w, 0, sizeof(w));
	for (i = 0; i < THREADS; ++i) {
		w[i].device = d;
		w[i].image = lab_load(d, "typed");
		lab_bind(w[i].image, "lane", lane, &w[i]);
	}
	for (i = 0; i < THREADS; ++i)
		thread[i] = lab_thread(work, &w[i]);
	for (i = 0; i < THREADS; ++i)
		lab_join(thread[i]);
	for (i = 0; i < THREADS; ++i)
		lab_ok(revoff_image_unload(w[i].image));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
