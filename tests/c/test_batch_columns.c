/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: batch handlers get values of 1, 2, 4, 8 and 16 bytes in columns
 * and answer in columns; columns that a handler keeps stay as they are; no
 * batch exceeds the limit; a handler that fails after some answers them, fails
 * the next call and aborts the others.  A single call goes to the handler for
 * single calls.
 * Images: batch
 * Variants: plain asan tsan
 */
#include "lab.h"

#define BLOCKS	4
#define THREADS 64
#define ALL	(BLOCKS * THREADS)

static unsigned largest, calls, batches, singles;

/* Values as the handler's side reads them: low bytes first, padded by 0. */
static uint64_t value(const struct revoff_column *c, unsigned i)
{
	uint64_t v = 0;

	memcpy(&v, (char *)c->data + i * c->stride, c->size < 8 ? c->size : 8);
	return v;
}

static void note(const struct revoff_batch *b)
{
	t_check(b->count && !b->posted && !b->later);
	largest = b->count > largest ? b->count : largest;
	calls += b->count;
	++batches;
}

/* v + 1 of one argument; user points to its size. */
static int same(struct revoff_batch *b, void *user)
{
	uint64_t size = *(uint64_t *)user, w;
	const struct revoff_column *a = b->arguments;
	unsigned i, k;

	note(b);
	t_check(b->nargs == 1 && a[0].size == size);
	t_check(a[0].stride == size && b->result->size == size);
	t_check(b->result->stride == size && a[0].keepable);
	for (i = 0; i < b->count; ++i)
		for (k = 0; k < size; k += 8) {
			struct revoff_column part = a[0];

			part.data = (char *)a[0].data + k;
			w = value(&part, i) + 1;
			memcpy((char *)b->result->data + i * size + k, &w,
			       size < 8 ? size : 8);
		}
	return 0;
}

static int mixed(struct revoff_batch *b, void *user)
{
	static const uint64_t sizes[] = { 1, 2, 4, 8, 16 };
	const struct revoff_column *a = b->arguments;
	unsigned i, k;

	(void)user;
	note(b);
	t_check(b->nargs == 5 && b->result->size == 8);
	for (k = 0; k < 5; ++k)
		t_check(a[k].size == sizes[k] && a[k].stride == sizes[k]);
	for (i = 0; i < b->count; ++i) {
		uint64_t v = value(&a[3], i), low;

		t_check(value(&a[0], i) == (uint8_t)v);
		t_check(value(&a[1], i) == (uint16_t)v);
		t_check(value(&a[2], i) == (uint32_t)v);
		t_check(value(&a[4], i) == v);
		memcpy(&low, (char *)a[4].data + i * 16 + 8, 8);
		t_check(low == ~v);
		((uint64_t *)b->result->data)[i] = v + 1;
	}
	return 0;
}

static int no_result(struct revoff_batch *b, void *user)
{
	(void)user;
	note(b);
	t_check(b->nargs == 1 && !b->result);
	return 0;
}

static void bind(struct revoff_image *image, const char *name,
		 revoff_batch_handler *handler, revoff_handler *single,
		 void *user, unsigned most)
{
	int index = lab_ok(revoff_image_find(image, name));

	largest = calls = batches = singles = 0;
	lab_ok(revoff_image_bind_batch(image, (unsigned)index, handler, single,
				       user, most));
}

/* ---- sizes ------------------------------------------------------------------ */

static void sizes(struct revoff_device *d, struct revoff_image *image)
{
	static uint64_t n[] = { 1, 2, 4, 8, 16 };
	static const char *const names[] = { "one", "two", "four", "eight",
					     "wide" };
	struct revoff_stats stats;
	uint64_t at;
	uint32_t bad = 0;
	int turns = 5, i;
	void *params[] = { &at, &turns };

	for (i = 0; i < 5; ++i)
		bind(image, names[i], same, NULL, &n[i], 0);
	bind(image, "all", mixed, NULL, NULL, 0);
	bind(image, "none", no_result, NULL, NULL, 0);
	lab_ok(revoff_alloc(d, sizeof(bad), &at));
	lab_ok(revoff_copy_to_device(d, at, &bad, sizeof(bad)));
	lab_ok(lab_run(lab_kernel(image, "sizes"), BLOCKS, THREADS, params,
		       &stats));
	lab_ok(revoff_copy_from_device(d, &bad, at, sizeof(bad)));
	lab_ok(revoff_free(d, at));
	t_check(!bad && calls == 7u * 5 * ALL);
	t_check(stats.calls == calls && !stats.failed);
	t_check(stats.batches == batches && batches < calls);
}

/* ---- rows of calls of one function ----------------------------------------- */

static void row(struct revoff_device *d, struct revoff_image *image, int n,
		unsigned blocks, int *status)
{
	uint64_t at, sum, bad = 0;
	void *params[] = { &at, &sum, &n };
	unsigned threads = blocks * THREADS;
	int rc;

	lab_ok(revoff_alloc(d, threads * sizeof(*status), &at));
	lab_ok(revoff_alloc(d, sizeof(bad), &sum));
	lab_ok(revoff_copy_to_device(d, sum, &bad, sizeof(bad)));
	rc = lab_run(lab_kernel(image, "row"), blocks, THREADS, params, NULL);
	t_check(!rc || rc == REVOFF_EHANDLER);
	lab_ok(revoff_copy_from_device(d, &bad, sum, sizeof(bad)));
	lab_ok(revoff_copy_from_device(d, status, at,
				       threads * sizeof(*status)));
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_free(d, sum));
	t_check(!bad);
}

static int single(struct revoff_call *call, void *user)
{
	(void)user;
	t_check(call->nargs == 1 && call->sizes[0] == 8);
	call->result = call->words[0] + 1;
	++singles;
	return 0;
}

static void limits(struct revoff_device *d, struct revoff_image *image)
{
	static uint64_t eight = 8;
	static const unsigned most[] = { 32, 64, 128, 0 };
	int status[ALL], k, i;

	for (k = 0; k < 4; ++k) {
		bind(image, "eight", same, NULL, &eight, most[k]);
		row(d, image, 20, BLOCKS, status);
		for (i = 0; i < ALL; ++i)
			t_check(status[i] == REVOFF_OK);
		t_check(calls == 20 * ALL);
		t_check(!most[k] || largest <= most[k]);
	}
	/* A launch of one thread has a single call at a time. */
	bind(image, "eight", same, single, &eight, 0);
	{
		uint64_t at, bad;
		int n = 10;
		void *params[] = { &at, &bad, &n };

		lab_ok(revoff_alloc(d, 8, &at));
		lab_ok(revoff_alloc(d, 8, &bad));
		lab_ok(lab_run(lab_kernel(image, "row"), 1, 1, params, NULL));
		lab_ok(revoff_free(d, at));
		lab_ok(revoff_free(d, bad));
	}
	t_check(singles == 10 && !calls);
}

/* ---- kept -------------------------------------------------------------------- */

struct kept {
	uint64_t *data[512], copy[512];
	unsigned count[512], n;
};

static int keep(struct revoff_batch *b, void *user)
{
	struct kept *k = user;
	unsigned i;

	note(b);
	t_check(b->argument[0].keepable && b->result->keepable);
	for (i = 0; i < b->count; ++i)
		((uint64_t *)b->result->data)[i] =
			((uint64_t *)b->arguments[0].data)[i] + 1;
	if (k->n + 2 > 512)
		return 0;
	/* Every second time both, else neither. */
	if (batches % 2) {
		for (i = 0; i < 2; ++i) {
			struct revoff_column *c = i ? b->result : b->argument;
			uint64_t *v = c->data;
			unsigned j;

			c->kept = 1;
			k->data[k->n] = v;
			k->count[k->n] = b->count;
			k->copy[k->n] = 0;
			for (j = 0; j < b->count; ++j)
				k->copy[k->n] += lab_mix(v[j] + j);
			++k->n;
		}
	}
	return 0;
}

static void keeping(struct revoff_device *d, struct revoff_image *image)
{
	static struct kept k;
	int status[ALL];
	unsigned i, j;

	bind(image, "eight", keep, NULL, &k, 64);
	row(d, image, 20, BLOCKS, status);
	t_check(calls == 20 * ALL && k.n >= 2);
	for (i = 0; i < k.n; ++i) {
		uint64_t sum = 0;

		for (j = 0; j < k.count[i]; ++j)
			sum += lab_mix(k.data[i][j] + j);
		t_check(sum == k.copy[i]);
		/* Ours to write, and to give back. */
		k.data[i][0] = 0;
		revoff_block_free(k.data[i]);
	}
}

/* ---- failures ----------------------------------------------------------------- */

static unsigned done_before;

static int fail_after(struct revoff_batch *b, void *user)
{
	unsigned i;

	(void)user;
	note(b);
	for (i = 0; i < b->count; ++i)
		((uint64_t *)b->result->data)[i] =
			((uint64_t *)b->arguments[0].data)[i] + 1;
	b->done = done_before < b->count ? done_before : b->count - 1;
	done_before = b->done;
	return 1;
}

static void failing(struct revoff_device *d, struct revoff_image *image)
{
	static const unsigned done[] = { 0, 1, 31, 40 };
	uint64_t at, results, result[THREADS];
	int status[THREADS], k;
	void *params[] = { &at, &results };

	lab_ok(revoff_alloc(d, sizeof(status), &at));
	lab_ok(revoff_alloc(d, sizeof(result), &results));
	for (k = 0; k < 4; ++k) {
		unsigned ok = 0, failed = 0, aborted = 0, i;

		bind(image, "eight", fail_after, NULL, NULL, 0);
		done_before = done[k];
		lab_refused(lab_run(lab_kernel(image, "once"), 1, THREADS,
				    params, NULL),
			    REVOFF_EHANDLER, "handler of eight");
		lab_ok(revoff_copy_from_device(d, status, at, sizeof(status)));
		lab_ok(revoff_copy_from_device(d, result, results,
					       sizeof(result)));
		for (i = 0; i < THREADS; ++i) {
			ok += status[i] == REVOFF_OK;
			failed += status[i] == REVOFF_HANDLER;
			aborted += status[i] == REVOFF_ABORTED;
			t_check(result[i] ==
				(status[i] == REVOFF_OK ? i + 1 : 0));
		}
		fprintf(stderr, "%u answered, %u failed, %u aborted\n", ok,
			failed, aborted);
		t_check(batches == 1 && ok == done_before && failed == 1);
		t_check(aborted == THREADS - ok - 1);
	}
	lab_ok(revoff_free(d, at));
	lab_ok(revoff_free(d, results));
}

int main(int argc, char **argv)
{
	struct revoff_device_options o = { .transport =
						   REVOFF_TRANSPORT_PORTS };
	struct revoff_device *d;
	struct revoff_image *image;

	lab_begin(argc, argv);
	d = lab_open(&o);
	image = lab_load(d, "batch");
	sizes(d, image);
	limits(d, image);
	keeping(d, image);
	failing(d, image);
	/* After failures the image works as before. */
	sizes(d, image);
	lab_ok(revoff_image_unload(image));
	lab_close(d);
	return T_PASS;
}
