/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a device that writes rubbish into ports: forms, counts, lanes,
 * slots, strides, pieces and functions that no device half makes.  Each such
 * request is answered with a failed status and named, its port stays usable,
 * and the next launch works.  Requests that are never whole are left alone,
 * and do not keep a launch from being given up.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "ports_hand.h"

#define ALL   0xffffffffu
#define WORDS REVOFF_FORM_WORDS
#define FRAME REVOFF_FORM_FRAME
#define GOMP  REVOFF_FORM_GOMP
#define SEND  REVOFF_FORM_SEND
#define FETCH REVOFF_FORM_FETCH
#define SLOT  REVOFF_SLOT_BYTES

static struct hand h;

static const struct hostile {
	const char *name, *function; /* NULL: none that there is */
	uint32_t mask;
	unsigned words, form, stride;
	uint32_t slot;
	uint64_t word[4];
	int status;
	const char *told;
} cases[] = {
	{ "an unknown form",
	  "lane",
	  1,
	  1,
	  9,
	  0,
	  0,
	  { 0 },
	  REVOFF_BADCALL,
	  "unknown form" },
	{ "form 255",
	  "lane",
	  ALL,
	  1,
	  255,
	  0,
	  0,
	  { 0 },
	  REVOFF_BADCALL,
	  "unknown form" },
	{ "no words",
	  "lane",
	  1,
	  0,
	  WORDS,
	  0,
	  0,
	  { 0 },
	  REVOFF_BADCALL,
	  "signature" },
	{ "a word too many",
	  "lane",
	  3,
	  2,
	  WORDS,
	  0,
	  0,
	  { 0 },
	  REVOFF_BADCALL,
	  "signature" },
	{ "255 words of 32 lanes",
	  "lane",
	  ALL,
	  255,
	  WORDS,
	  0,
	  0,
	  { 0 },
	  REVOFF_BADCALL,
	  "port holds" },
	{ "words for a function of arrays",
	  "change",
	  1,
	  1,
	  WORDS,
	  0,
	  0,
	  { 0 },
	  REVOFF_BADCALL,
	  "signature" },
	{ "a frame in no slot",
	  "change",
	  1,
	  1,
	  FRAME,
	  64,
	  1u << 20,
	  { 1 },
	  REVOFF_BADCALL,
	  "slots" },
	{ "a frame past the slot",
	  "change",
	  1,
	  1,
	  FRAME,
	  SLOT + 16,
	  0,
	  { 1 },
	  REVOFF_BADCALL,
	  "slots" },
	{ "32 frames past the slot",
	  "change",
	  ALL,
	  1,
	  FRAME,
	  1024,
	  0,
	  { 1 },
	  REVOFF_BADCALL,
	  "slots" },
	{ "a frame of two words",
	  "change",
	  1,
	  2,
	  FRAME,
	  64,
	  0,
	  { 1 },
	  REVOFF_BADCALL,
	  "frame" },
	{ "a frame of no items",
	  "change",
	  1,
	  1,
	  FRAME,
	  64,
	  0,
	  { 0 },
	  REVOFF_BADMAP,
	  "items" },
	{ "a frame of 2^61 items",
	  "change",
	  1,
	  1,
	  FRAME,
	  64,
	  0,
	  { 1ull << 61 },
	  REVOFF_BADMAP,
	  "items" },
	{ "libgomp's form, a typed function",
	  "lane",
	  1,
	  5,
	  GOMP,
	  0,
	  0,
	  { 0 },
	  REVOFF_BADCALL,
	  "libgomp" },
	{ "a piece in no slot",
	  "change",
	  1,
	  3,
	  SEND,
	  0,
	  1u << 20,
	  { 0, 8, 8 },
	  REVOFF_BADCALL,
	  "piece" },
	{ "a piece of two lanes",
	  "change",
	  3,
	  3,
	  SEND,
	  0,
	  0,
	  { 0, 8, 8 },
	  REVOFF_BADCALL,
	  "piece" },
	{ "a piece larger than a slot",
	  "change",
	  1,
	  3,
	  SEND,
	  0,
	  0,
	  { 0, SLOT + 1, 1 << 20 },
	  REVOFF_BADMAP,
	  "piece" },
	{ "a stream larger than any",
	  "change",
	  1,
	  3,
	  SEND,
	  0,
	  0,
	  { 0, 8, REVOFF_STREAM_MAX + 1ull },
	  REVOFF_BADMAP,
	  "piece" },
	{ "a piece past its stream",
	  "change",
	  1,
	  3,
	  SEND,
	  0,
	  0,
	  { 4096, 8, 4096 },
	  REVOFF_BADMAP,
	  "piece" },
	{ "a piece at 2^64 - 8",
	  "change",
	  1,
	  3,
	  SEND,
	  0,
	  0,
	  { UINT64_MAX - 7, 16, 4096 },
	  REVOFF_BADMAP,
	  "piece" },
	{ "a piece of no stream",
	  "change",
	  1,
	  3,
	  FETCH,
	  0,
	  0,
	  { 0, 8, 8 },
	  REVOFF_BADMAP,
	  "piece" },
	{ "an unknown function",
	  NULL,
	  1,
	  1,
	  WORDS,
	  0,
	  0,
	  { 0 },
	  REVOFF_UNKNOWN,
	  "unknown function" },
	{ "an unknown function, all lanes",
	  NULL,
	  ALL,
	  4,
	  WORDS,
	  0,
	  0,
	  { 0 },
	  REVOFF_UNKNOWN,
	  "unknown function" },
	{ "no lanes", "lane", 0, 1, WORDS, 0, 0, { 0 }, -1, "no lane" },
	{ "no lanes, no such function",
	  NULL,
	  0,
	  1,
	  WORDS,
	  0,
	  0,
	  { 0 },
	  -1,
	  "unknown function" },
	{ "no lanes, a batch", "next", 0, 2, WORDS, 0, 0, { 0 }, -1, "signature" },
	{ "a word too few, a batch",
	  "next",
	  ALL,
	  1,
	  WORDS,
	  0,
	  0,
	  { 0 },
	  REVOFF_BADCALL,
	  "signature" },
};

static int handler(struct revoff_call *call, void *user)
{
	(void)user;
	call->result = lab_mix(call->words[0]);
	return 0;
}

static int batch(struct revoff_batch *b, void *user)
{
	(void)user;
	memset(b->result->data, 0, b->count * b->result->stride);
	return 0;
}

static void play(const struct hostile *c)
{
	uint64_t fn = c->function ? hand_fn(&h, c->function) : 0xdead0000;
	uint64_t word = 5;
	unsigned i, n = (unsigned)__builtin_popcount(c->mask);

	for (i = 0; i < REVOFF_PORT_UNITS; ++i)
		hand_unit(&h.requests[3].word[i], c->word[i / (n + !n) % 4], 1);
	hand_head(&h, 3, 1, fn, c->mask, c->words, c->form, c->stride / 16,
		  c->slot);
	hand_bell(&h, 3, 1);
	for (i = 0; i < n; ++i)
		t_check(hand_reply(&h, 3, 1, i, NULL) == c->status);
	while (!n && !revoff_launch_failure(h.launch)->code)
		lab_sleep_ms(1);
	/* The port goes on; the launch was given up by what was wrong. */
	hand_ask(&h, 3, 2, hand_fn(&h, "lane"), 1, 1, &word);
	t_check(hand_reply(&h, 3, 2, 0, NULL) == REVOFF_ABORTED);
}

static void *wait(void *arg)
{
	(void)arg;
	t_check(revoff_launch_wait(h.launch, LAB_LIMIT) == 1);
	return NULL;
}

static void one(const struct hostile *c)
{
	const struct revoff_error *e;
	pthread_t thread;

	fprintf(stderr, "%s\n", c->name);
	hand_start(&h, "deaf");
	thread = lab_thread(wait, NULL);
	play(c);
	lab_set(&h.go, 1);
	lab_join(thread);
	e = revoff_launch_failure(h.launch);
	if (e->code != REVOFF_ECALL || !strstr(e->text, c->told)) {
		fprintf(stderr, "%d, not \"%s\": %s\n", e->code, c->told,
			e->text);
		exit(T_FAIL);
	}
	hand_end(&h);
}

/* Requests that are never whole are nobody's; the launch still ends. */
static void never_whole(void)
{
	uint64_t fn = hand_fn(&h, "lane"), word = 11;
	struct revoff_unit *u = h.requests[1].head;

	/* Numbers of the future and of the past. */
	hand_ask(&h, 0, 3, fn, 1, 1, &word);
	hand_ask(&h, 2, 0x7ffffff0, fn, 1, 1, &word);
	/* A half of a unit has another number. */
	hand_ask(&h, 1, 1, fn, 0, 1, &word);
	__atomic_store_n(&u[3].hi, 2ull << 32, __ATOMIC_RELEASE);
	/* A head whose words never come, and one with some of them. */
	hand_head(&h, 4, 1, fn, 1, 1, WORDS, 0, 0);
	hand_bell(&h, 4, 1);
	hand_unit(&h.requests[5].word[0], 1, 1);
	hand_head(&h, 5, 1, fn, ALL, 1, WORDS, 0, 0);
	hand_bell(&h, 5, 1);
	/* A bell alone. */
	hand_bell(&h, 6, 1);
	/* Others are served meanwhile. */
	hand_ask(&h, 7, 1, fn, 1, 1, &word);
	t_check(hand_reply(&h, 7, 1, 0, &word) == REVOFF_OK);
	t_check(word == lab_mix(11));
	t_check(!hand_has_reply(&h, 0, 3, 0) && !hand_has_reply(&h, 4, 1, 0));
	t_check(!hand_has_reply(&h, 2, 0x7ffffff0, 0));
	t_check(!hand_has_reply(&h, 5, 1, 0));
}

int main(int argc, char **argv)
{
	unsigned i, index;
	pthread_t thread;

	lab_begin(argc, argv);
	hand_open(&h, "typed");
	lab_bind(h.image, "lane", handler, NULL);
	lab_bind(h.image, "change", handler, NULL);
	index = (unsigned)lab_ok(revoff_image_find(h.image, "next"));
	lab_ok(revoff_image_bind_batch(h.image, index, batch, NULL, NULL, 0));
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
		one(&cases[i]);
	hand_start(&h, "hold");
	thread = lab_thread(wait, NULL);
	never_whole();
	/* Nobody waits for an answer: the kernel sees it, and ends. */
	revoff_launch_abort(h.launch, REVOFF_ABORT_SIGNAL);
	lab_join(thread);
	hand_end(&h);
	lab_ok(lab_run(lab_kernel(h.image, "empty"), 1, 1, NULL, NULL));
	hand_close(&h);
	return T_PASS;
}
