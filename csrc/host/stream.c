/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that is too much for a slot: it comes in pieces before the call, is
 * kept here for its handler, and is fetched in pieces after it.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct stream {
	struct stream *next;
	unsigned port;
	int served; /* its call was: the next request begins anew */
	uint64_t size;
	char data[];
};

static struct stream **find(struct ports *p, unsigned port)
{
	struct stream **at = &p->streams;

	while (*at && (*at)->port != port)
		at = &(*at)->next;
	return at;
}

void stream_drop(struct ports *p, unsigned port)
{
	struct stream **at = find(p, port), *s = *at;

	if (!s)
		return;
	*at = s->next;
	free(s);
}

void streams_close(struct ports *p)
{
	while (p->streams)
		stream_drop(p, p->streams->port);
}

/* The stream of the call that is being served, if it has one. */
struct stream *stream_find(struct ports *p, unsigned port)
{
	struct stream *s = p->streams ? *find(p, port) : NULL;

	if (s && s->served) {
		stream_drop(p, port);
		return NULL;
	}
	if (s)
		s->served = 1;
	return s;
}

void *stream_view(struct stream *s, uint64_t at, uint64_t size)
{
	if (at > s->size || size > s->size - at)
		return NULL;
	return s->data + at;
}

/* Negative: the kernel asked for what cannot be. */
int stream_transfer(struct ports *p, unsigned port, unsigned slot, int form,
		    uint64_t at, uint64_t bytes, uint64_t total)
{
	struct stream *s = *find(p, port);
	char *piece = p->slots + (size_t)slot * REVOFF_SLOT_BYTES, *view;

	if (bytes > REVOFF_SLOT_BYTES || total > REVOFF_STREAM_MAX)
		return -1;
	if (form == REVOFF_FORM_SEND && s && s->served) {
		stream_drop(p, port);
		s = NULL;
	}
	if (form == REVOFF_FORM_SEND && !s) {
		s = calloc(1, sizeof(*s) + total);
		if (!s)
			return -1;
		s->port = port;
		s->size = total;
		s->next = p->streams;
		p->streams = s;
	}
	view = s ? stream_view(s, at, bytes) : NULL;
	if (!view)
		return -1;
	if (form == REVOFF_FORM_SEND)
		memcpy(view, piece, bytes);
	else
		memcpy(piece, view, bytes);
	return 0;
}
