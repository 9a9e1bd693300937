/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: in placement copy no message is seen in part, with a driver
 * whose copies read fn last and slowly: one copy of the whole struct would
 * pair the fn of a call with the lists of the one before (V8).
 * Images: typed fake-cuda
 * Covers: V8
 */
#include "lab.h"

#define CALLS 400

static int next(struct revoff_call *call, void *user)
{
	uint64_t *expected = user;

	t_check(call->nargs == 2);
	t_check(call->words[0] == *expected);
	t_check(call->words[1] == lab_mix(*expected));
	call->result = lab_mix(~*expected);
	++*expected;
	return 0;
}

static int echo(struct revoff_call *call, void *user)
{
	uint64_t *expected = user, *w = (void *)(uintptr_t)call->words[0];
	uint64_t *out = (void *)(uintptr_t)call->words[1];
	int k;

	t_check(w[0] == *expected && w[1] == lab_mix(*expected));
	for (k = 0; k < 6; ++k) {
		t_check(w[2 + k] == lab_mix(*expected + k));
		out[2 + k] = lab_mix(~*expected - k);
	}
	out[0] = ~*expected;
	out[1] = lab_mix(~*expected);
	++*expected;
	return 0;
}

int main(int argc, char **argv)
{
	struct revoff_device_options o = { .placement = REVOFF_PLACE_COPY };
	struct revoff_device *device;
	struct revoff_image *image;
	uint64_t bad, value = 0, a = 0, b = 0;
	int n = CALLS;
	void *params[] = { &bad, &n };

	lab_begin(argc, argv);
	setenv("FAKE_CUDA_TORN", "1", 1);
	setenv("PYREVOFF_LIBCUDA", lab_image_path("fake-cuda"), 1);
	lab_platform = REVOFF_PLATFORM_CUDA;
	device = lab_open(&o);
	image = lab_load(device, "typed");
	lab_bind(image, "next", next, &a);
	lab_bind(image, "echo", echo, &b);
	lab_ok(revoff_alloc(device, 8, &bad));
	lab_ok(revoff_copy_to_device(device, bad, &value, 8));
	lab_ok(lab_run(lab_kernel(image, "count"), 1, 1, params, NULL));
	lab_ok(lab_run(lab_kernel(image, "count_wide"), 1, 1, params, NULL));
	lab_ok(revoff_copy_from_device(device, &value, bad, 8));
	t_check(!value && a == CALLS && b == CALLS);
	lab_ok(revoff_free(device, bad));
	lab_ok(revoff_image_unload(image));
	lab_close(device);
	return T_PASS;
}
