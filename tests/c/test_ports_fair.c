/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: the host looks first at the ports that called last.  Four that
 * call again as soon as they have their answer keep a fifth one waiting for a
 * few turns only; so does a request whose words never come.  A request whose
 * bell is late, or is overwritten by an older one, is found without it.
 * Images: typed
 */
#include <time.h>

#include "ports_hand.h"

static struct hand h;
static uint64_t fn_lane;

static int echo(struct revoff_call *call, void *user)
{
	struct timespec t = { 0, 100000 };

	/* Long enough that all others have called again meanwhile. */
	nanosleep(&t, NULL);
	call->result = lab_mix(call->words[0]);
	++*(unsigned *)user;
	return 0;
}

static void ask(unsigned port, uint32_t seq)
{
	uint64_t word = port * 1000 + seq;

	hand_ask(&h, port, seq, fn_lane, 1, 1, &word);
}

static void *crowd(void *arg)
{
	uint32_t seq[4] = { 0, 0, 0, 0 };
	uint64_t end = lab_now() + LAB_LIMIT;
	unsigned calls = 0, k;
	int asked = 0;

	(void)arg;
	for (k = 0; k < 4; ++k)
		ask(k, ++seq[k]);
	/* Long before their end the fifth has its answer. */
	while (!asked || !hand_has_reply(&h, 100, 1, 0)) {
		t_check(lab_now() < end);
		for (k = 0; k < 4; ++k)
			if (hand_has_reply(&h, k, seq[k], 0)) {
				ask(k, ++seq[k]);
				++calls;
			}
		if (!asked && calls > 20) {
			ask(100, 1);
			asked = 1;
		}
		t_check(calls < 20000);
	}
	for (k = 0; k < 4; ++k)
		hand_reply(&h, k, seq[k], 0, NULL);
	lab_set(&h.go, 1);
	return NULL;
}

/* A head without its words, at a port that the host looks at first. */
static void *unfinished(void *arg)
{
	uint64_t word = 0;

	(void)arg;
	ask(7, 1);
	t_check(hand_reply(&h, 7, 1, 0, &word) == REVOFF_OK);
	t_check(word == lab_mix(7001));
	hand_head(&h, 7, 2, fn_lane, 1, 1, REVOFF_FORM_WORDS, 0, 0);
	hand_bell(&h, 7, 2);
	ask(8, 1);
	t_check(hand_reply(&h, 8, 1, 0, &word) == REVOFF_OK);
	t_check(!hand_has_reply(&h, 7, 2, 0));
	hand_unit(&h.requests[7].word[0], 7002, 2);
	t_check(hand_reply(&h, 7, 2, 0, &word) == REVOFF_OK);
	t_check(word == lab_mix(7002));
	lab_set(&h.go, 1);
	return NULL;
}

static void *without_bell(void *arg)
{
	uint64_t word = 0;
	unsigned k;

	(void)arg;
	ask(20, 1);
	hand_reply(&h, 20, 1, 0, NULL);
	/* Others have called last by now. */
	for (k = 21; k < 26; ++k) {
		ask(k, 1);
		hand_reply(&h, k, 1, 0, NULL);
	}
	ask(20, 2);
	hand_bell(&h, 20, 1);
	t_check(hand_reply(&h, 20, 2, 0, &word) == REVOFF_OK);
	t_check(word == lab_mix(20002));
	lab_set(&h.go, 1);
	return NULL;
}

static void play(void *(*main)(void *))
{
	unsigned calls = 0;
	pthread_t thread;

	lab_bind(h.image, "lane", echo, &calls);
	hand_start(&h, "deaf");
	thread = lab_thread(main, NULL);
	t_check(revoff_launch_wait(h.launch, LAB_LIMIT) == 1);
	lab_join(thread);
	t_check(calls && !revoff_launch_failure(h.launch)->code);
	hand_end(&h);
}

int main(int argc, char **argv)
{
	void *(*const plays[])(void *) = { crowd, unfinished, without_bell };
	unsigned i;

	lab_begin(argc, argv);
	for (i = 0; i < 3; ++i) {
		hand_open(&h, "typed");
		fn_lane = hand_fn(&h, "lane");
		play(plays[i]);
		hand_close(&h);
	}
	return T_PASS;
}
