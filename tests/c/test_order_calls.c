/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: 100 000 calls in a row, each with a counter and its hash,
 * checked on both sides, and 64 bytes each way; with all of it, kernel
 * included, under ThreadSanitizer: each store that publishes is a release,
 * each load that sees it an acquire (V6, V7).
 * Images: typed
 * Variants: plain tsan
 * Covers: V6
 */
#include "lab.h"

static int next(struct revoff_call *call, void *user)
{
	uint64_t *expected = user, n = *expected;

	t_check(call->nargs == 2);
	t_check(call->words[0] == n && call->words[1] == lab_mix(n));
	call->result = lab_mix(~n);
	*expected = n + 1;
	return 0;
}

static int echo(struct revoff_call *call, void *user)
{
	uint64_t *expected = user, n = *expected, k;
	const uint64_t *w = (void *)(uintptr_t)call->words[0];
	uint64_t *out = (void *)(uintptr_t)call->words[1];

	t_check(call->nargs == 2 && call->sizes[0] == 64);
	t_check(w[0] == n && w[1] == lab_mix(n));
	for (k = 0; k < 6; ++k) {
		t_check(w[2 + k] == lab_mix(n + k));
		out[2 + k] = lab_mix(~n - k);
	}
	out[0] = ~n;
	out[1] = lab_mix(~n);
	*expected = n + 1;
	return 0;
}

static void test(const struct revoff_device_options *o)
{
	int all = !o->placement && !o->lock && !o->no_packet;
	/* ThreadSanitizer takes its time. */
	int n = all ? 100000 : 2000;
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed");
	struct revoff_stats stats;
	uint64_t bad, value = 0, a = 0, b = 0;
	void *params[] = { &bad, &n };

	lab_bind(image, "next", next, &a);
	lab_bind(image, "echo", echo, &b);
	lab_ok(revoff_alloc(d, 8, &bad));
	lab_ok(revoff_copy_to_device(d, bad, &value, 8));
	lab_ok(lab_run(lab_kernel(image, "count"), 1, 1, params, &stats));
	t_check(a == (uint64_t)n && stats.calls == (uint64_t)n);
	n /= 4;
	lab_ok(lab_run(lab_kernel(image, "count_wide"), 1, 1, params, &stats));
	t_check(b == (uint64_t)n && stats.calls == (uint64_t)n);
	lab_ok(revoff_copy_from_device(d, &value, bad, 8));
	t_check(!value);
	lab_ok(revoff_free(d, bad));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
}

int main(int argc, char **argv)
{
	lab_begin(argc, argv);
	lab_each_config(test);
	return T_PASS;
}
