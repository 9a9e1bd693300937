/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a handler keeps the memory of an array beyond the call, the
 * launch, the image and the device, from the staging arena and from malloc;
 * it stays intact, and goes when the last one is freed.
 * Images: typed
 */
#include "lab.h"

#define KEPT 60

static void *kept[KEPT];
static unsigned nkept;

static int keep(struct revoff_call *call, void *user)
{
	const int *want = user;

	t_check(call->nargs == 1 && call->keepable[0] && !call->kept[0]);
	t_check(call->sizes[0] == (uint64_t)*want * 8);
	t_check(lab_is((void *)(uintptr_t)call->words[0], call->sizes[0],
		       (unsigned)*want));
	t_check(nkept < KEPT);
	if (call->kept) {
		call->kept[0] = 1;
		kept[nkept++] = (void *)(uintptr_t)call->words[0];
	}
	return 0;
}

static void round_of(const struct revoff_device_options *o)
{
	/* Small and large blocks of the arena, more than it has, and more. */
	static const int sizes[] = { 600, 5000, 100000, 400000 };
	struct revoff_device *d = lab_open(o);
	struct revoff_image *image = lab_load(d, "typed");
	struct revoff_kernel *give = lab_kernel(image, "give");
	char *data = malloc(400000 * 8);
	uint64_t at;
	int n, turn;
	unsigned i, size[KEPT];
	void *params[] = { &at, &n };

	t_check(data);
	nkept = 0;
	lab_bind(image, "keep", keep, &n);
	lab_ok(revoff_alloc(d, 400000 * 8, &at));
	for (i = 0; i < 4; ++i)
		for (turn = 0; turn < (i < 2 ? 20 : 3); ++turn) {
			n = sizes[i];
			lab_fill(data, (size_t)n * 8, (unsigned)n);
			lab_ok(revoff_copy_to_device(d, at, data,
						     (size_t)n * 8));
			size[nkept] = (unsigned)n;
			lab_ok(lab_run(give, 1, 1, params, NULL));
			/* Some come back in between. */
			if (nkept % 5 == 4)
				revoff_block_free(kept[--nkept]);
		}
	for (i = 1; i < nkept; ++i)
		t_check(kept[i] != kept[i - 1]);
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	for (i = 0; i < nkept; ++i) {
		t_check(lab_is(kept[i], (size_t)size[i] * 8, size[i]));
		memset(kept[i], 0, (size_t)size[i] * 8);
		revoff_block_free(kept[i]);
	}
	revoff_block_free(NULL);
	free(data);
}

int main(int argc, char **argv)
{
	struct revoff_device_options o = { 0 };

	lab_begin(argc, argv);
	for (o.placement = 0; o.placement < 3; ++o.placement)
		round_of(&o);
	return T_PASS;
}
