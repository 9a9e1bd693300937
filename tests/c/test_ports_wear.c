/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a port whose numbers are used up stays taken until its image is
 * idle, and calls go on through others; the next launch has all ports again.
 * With no number left at all, calls wait and the launch's time limit ends
 * them; then, too, the next launch works.
 * Images: typed
 * Variants: plain asan tsan
 */
#include "internal.h"
#include "ports_hand.h"

#define LAST REVOFF_SEQ_LAST

static int next(struct revoff_call *call, void *user)
{
	t_check(call->words[1] == lab_mix(call->words[0]));
	call->result = lab_mix(~call->words[0]);
	++*(uint64_t *)user;
	return 0;
}

/* Let all ports but the first have `left` numbers left; the first, `first`. */
static void wear(struct hand *h, unsigned first, unsigned left)
{
	struct ports *p = h->image->ports;
	unsigned i;

	for (i = 0; i < p->nports; ++i) {
		uint32_t at = LAST - (i ? left : first);

		h->states[i] = at;
		p->answered[i] = at;
		p->seen[i] = p->bells[i] = (uint8_t)at;
	}
}

static unsigned taken(struct hand *h)
{
	unsigned i, n = 0;

	for (i = 0; i < h->link->nports; ++i)
		n += (uint32_t)h->states[i] >> 31;
	return n;
}

/* n calls of one lane; all are answered, by the host, in their order. */
static void count(struct hand *h, uint64_t *served, int n)
{
	uint64_t at, bad = 0, before = *served;
	void *params[] = { &at, &n };

	lab_ok(revoff_alloc(h->device, sizeof(bad), &at));
	lab_ok(revoff_copy_to_device(h->device, at, &bad, sizeof(bad)));
	lab_ok(lab_run(lab_kernel(h->image, "count"), 1, 1, params, NULL));
	lab_ok(revoff_copy_from_device(h->device, &bad, at, sizeof(bad)));
	lab_ok(revoff_free(h->device, at));
	t_check(!bad && *served == before + (unsigned)n);
}

static void no_number_left(struct hand *h)
{
	uint64_t at = 0;
	int n = 1;
	void *params[] = { &at, &n };
	struct revoff_launch_config config = {
		{ 1, 1, 1 }, { 1, 1, 1 }, 0, NULL, params
	};

	wear(h, 0, 0);
	lab_ok(revoff_alloc(h->device, sizeof(at), &at));
	lab_refused(revoff_run(lab_kernel(h->image, "count"), &config,
			       LAB_SECOND / 5, NULL),
		    REVOFF_ETIMEOUT, "count", "it was told to end, and did");
	t_check(taken(h));
	lab_ok(revoff_free(h->device, at));
}

int main(int argc, char **argv)
{
	struct hand h;
	uint64_t served = 0;
	unsigned n;

	lab_begin(argc, argv);
	hand_open(&h, "typed");
	n = h.link->nports;
	lab_bind(h.image, "next", next, &served);
	/* One launch over the end of its own port's numbers. */
	wear(&h, 3, 1000);
	count(&h, &served, 10);
	t_check((h.states[0] & 0xffffffff) == (LAST | 0x80000000u));
	t_check((uint32_t)h.states[1] == LAST - 1000 + 7 && taken(&h) == 1);
	/* It was idle: numbers begin at 1 again, on the port that was used up. */
	count(&h, &served, 10);
	t_check((uint32_t)h.states[0] == 10 && !(uint32_t)h.states[1]);
	/* Every number of every port, to the last one. */
	wear(&h, 2, 2);
	count(&h, &served, (int)(2 * n));
	t_check(taken(&h) == n - 1 && (uint32_t)h.states[n - 1] == LAST);
	count(&h, &served, 100);
	t_check((uint32_t)h.states[0] == 100 && !taken(&h));
	no_number_left(&h);
	count(&h, &served, 100);
	t_check((uint32_t)h.states[0] == 100 && !taken(&h));
	hand_close(&h);
	return T_PASS;
}
