/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that plays the device on ports, store by store, while a kernel that
 * does not call keeps the host serving.
 */
#ifndef PORTS_HAND_H
#define PORTS_HAND_H

#include "lab.h"

struct hand {
	struct revoff_device *device;
	struct revoff_image *image;
	struct revoff_link *link; /* the image's own: host memory here */
	struct revoff_request *requests;
	struct revoff_reply *replies;
	uint8_t *bells;
	uint64_t *states;
	struct revoff_post *heads;
	char *records;
	uint32_t started, go;
	uint32_t *ps, *pg;
	int none;
	void *params[3];
	struct revoff_launch *launch;
};

void hand_open(struct hand *h, const char *image);
void hand_close(struct hand *h);
/* Start a kernel that lasts until go is set ("deaf"), or it is given up ("hold"). */
void hand_start(struct hand *h, const char *kernel);
void hand_end(struct hand *h);
uint64_t hand_fn(struct hand *h, const char *name);

/* One unit of a request; the number is the caller's to choose. */
void hand_unit(struct revoff_unit *to, uint64_t word, uint32_t seq);
void hand_head(struct hand *h, unsigned port, uint32_t seq, uint64_t fn,
	       uint32_t mask, unsigned words, unsigned form, unsigned stride,
	       uint32_t slot);
void hand_bell(struct hand *h, unsigned port, uint32_t seq);
/* A whole request: nwords of each lane, words[w * lanes + rank]. */
void hand_ask(struct hand *h, unsigned port, uint32_t seq, uint64_t fn,
	      uint32_t mask, unsigned nwords, const uint64_t *words);
/* Wait (bounded) for the reply of a lane: its status, and word 0. */
int hand_reply(struct hand *h, unsigned port, uint32_t seq, unsigned rank,
	       uint64_t *word);
/* Is it there? */
int hand_has_reply(struct hand *h, unsigned port, uint32_t seq, unsigned rank);

#endif /* PORTS_HAND_H */
