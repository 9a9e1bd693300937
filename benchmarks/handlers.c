/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C handlers, so that what is measured is the transport and not Python; and
 * what the host alone takes for what the serving loop does.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "revoff.h"

#define API __attribute__((visibility("default")))

API int c_nothing(struct revoff_call *call, void *user)
{
	(void)call;
	(void)user;
	return 0;
}

/* double(double): one more. */
API int c_up(struct revoff_call *call, void *user)
{
	double x;

	(void)user;
	memcpy(&x, &call->words[0], sizeof(x));
	x += 1;
	memcpy(&call->result, &x, sizeof(x));
	return 0;
}

/* T(T) of a struct of 64-bit words: one more in each. */
API int c_up_words(struct revoff_call *call, void *user)
{
	const uint64_t *in = (const uint64_t *)call->words[0];
	uint64_t *out = (uint64_t *)call->words[1];
	uint64_t i, n = call->sizes[0] / 8;

	(void)user;
	if (call->nargs != 2 || call->sizes[1] != call->sizes[0])
		return 1;
	for (i = 0; i < n; ++i)
		out[i] = in[i] + 1;
	return 0;
}

/* void(tofrom<unsigned>): one more in each element. */
API int c_up_array(struct revoff_call *call, void *user)
{
	uint32_t *a = (uint32_t *)call->words[0];
	uint64_t i, n = call->sizes[0] / 4;

	(void)user;
	for (i = 0; i < n; ++i)
		++a[i];
	return 0;
}

API int c_twice(struct revoff_call *call, void *user)
{
	double x;

	(void)user;
	memcpy(&x, &call->words[0], sizeof(x));
	x *= 2;
	memcpy(&call->result, &x, sizeof(x));
	return 0;
}

API int c_batch_twice(struct revoff_batch *batch, void *user)
{
	const char *in = batch->arguments[0].data;
	char *out = batch->result->data;
	uint64_t from = batch->arguments[0].stride, to = batch->result->stride;
	unsigned i;

	(void)user;
	for (i = 0; i < batch->count; ++i) {
		double x;

		memcpy(&x, in + i * from, sizeof(x));
		x *= 2;
		memcpy(out + i * to, &x, sizeof(x));
	}
	return 0;
}

/* What came of posts.  last: of each lane, the next number; NULL: not looked. */
struct tally {
	uint64_t count, sum, disorder, nlanes;
	uint64_t *next;
};

static void tally_one(struct tally *t, uint64_t lane, uint64_t number,
		      uint64_t a, uint64_t b)
{
	++t->count;
	t->sum += a + b;
	if (!t->next)
		return;
	if (lane >= t->nlanes || t->next[lane] != number)
		++t->disorder;
	else
		++t->next[lane];
}

/* void(u64, u64, u64, u64) */
API int c_batch_note(struct revoff_batch *batch, void *user)
{
	unsigned i, k;

	if (batch->nargs != 4)
		return 1;
	for (i = 0; i < batch->count; ++i) {
		uint64_t v[4];

		for (k = 0; k < 4; ++k)
			memcpy(&v[k],
			       (const char *)batch->arguments[k].data +
				       i * batch->arguments[k].stride,
			       8);
		tally_one(user, v[0], v[1], v[2], v[3]);
	}
	return 0;
}

/* void(Record) */
API int c_batch_record(struct revoff_batch *batch, void *user)
{
	const char *at = batch->arguments[0].data;
	unsigned i;

	if (batch->nargs != 1 || batch->arguments[0].size != 32)
		return 1;
	for (i = 0; i < batch->count; ++i) {
		uint64_t v[4];

		memcpy(v, at + i * batch->arguments[0].stride, sizeof(v));
		tally_one(user, v[0], v[1], v[2], v[3]);
	}
	return 0;
}

/*
 * What one look at all ports takes when none has called: 8 bytes every stride
 * bytes, compared with those that are expected.  Least of n; ns, or -1.
 */
API double scan_ns(uint64_t bytes, uint64_t stride, int n)
{
	char *seen = calloc(1, bytes), *ports = calloc(1, bytes);
	double least = -1;

	/* Written, or all pages would be the same one of zeros. */
	for (uint64_t at = 0; seen && ports && at < bytes; at += 64)
		seen[at] = ports[at] = 1;
	while (seen && ports && n-- > 0) {
		struct timespec start, end;
		uint64_t odd = 0, at;
		double took;

		clock_gettime(CLOCK_MONOTONIC, &start);
		for (at = 0; at < bytes; at += stride)
			odd |= __atomic_load_n((uint64_t *)(ports + at),
					       __ATOMIC_RELAXED) ^
			       *(uint64_t *)(seen + at / stride * 8);
		clock_gettime(CLOCK_MONOTONIC, &end);
		took = (double)(end.tv_sec - start.tv_sec) * 1e9 +
		       (double)(end.tv_nsec - start.tv_nsec);
		/* Of no use, but the compiler does not know. */
		if (odd == 42)
			break;
		if (least < 0 || took < least)
			least = took;
	}
	free(seen);
	free(ports);
	return least;
}

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * A thread that sleeps sleep_ns again and again for run_ms, with the least
 * timer slack, and does nothing else: its share of a core, in percent.
 */
API double nap_share(uint64_t sleep_ns, int run_ms)
{
	int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	double start = seconds(CLOCK_MONOTONIC), now;
	double spent = seconds(CLOCK_THREAD_CPUTIME_ID);
	struct timespec t = { 0, (long)sleep_ns };

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	do {
		nanosleep(&t, NULL);
		now = seconds(CLOCK_MONOTONIC);
	} while (now - start < run_ms * 1e-3);
	spent = seconds(CLOCK_THREAD_CPUTIME_ID) - spent;
	prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
	return 100 * spent / (now - start);
}
