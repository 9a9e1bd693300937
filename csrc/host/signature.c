/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host has to know of a signature to take words apart: how many
 * arguments, of how many bytes, and which are arrays.  The grammar is in
 * docs/protocol.md, "Signatures".
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct type {
	uint64_t size, align;
};

static int number(const char **at, uint64_t *out)
{
	char *end;

	if (!isdigit((unsigned char)**at))
		return -1;
	*out = strtoull(*at, &end, 10);
	*at = end;
	return 0;
}

static int value(const char **at, struct type *t);

/* {name:size:align;field=type[extent]@offset...}; a name may hold colons. */
static int structure(const char **at, struct type *t)
{
	const char *p = *at;
	struct type field;
	uint64_t skip;

	for (;; ++p) {
		const char *q = p + 1;

		if (!*p)
			return -1;
		if (*p == ':' && !number(&q, &t->size) && *q++ == ':' &&
		    !number(&q, &t->align) && (*q == ';' || *q == '}')) {
			p = q;
			break;
		}
	}
	while (*p == ';') {
		while (*++p && *p != '=')
			;
		if (*p++ != '=' || value(&p, &field))
			return -1;
		while (*p == '[') {
			++p;
			if (number(&p, &skip) || *p++ != ']')
				return -1;
		}
		if (*p++ != '@' || number(&p, &skip))
			return -1;
	}
	if (*p++ != '}')
		return -1;
	*at = p;
	return 0;
}

static int value(const char **at, struct type *t)
{
	const char *p = *at;

	if (*p == '{') {
		*at = p + 1;
		return structure(at, t);
	}
	if (!*p || !strchr("biufp", *p))
		return -1;
	++p;
	if (number(&p, &t->size))
		return -1;
	t->align = t->size;
	*at = p;
	return 0;
}

static int starts(const char **at, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*at, word, n))
		return 0;
	*at += n;
	return 1;
}

static uint16_t kind_of(const struct type *t)
{
	unsigned log = 0;

	if (t->size <= 8)
		return REVOFF_MAP_FIRSTPRIVATE_INT;
	while (log < 16 && 1ull << log < t->align)
		++log;
	return (uint16_t)(REVOFF_MAP_FIRSTPRIVATE | log << 8);
}

static int argument(const char **at, struct shape *s)
{
	unsigned i = s->nargs;
	struct type t = { 8, 8 };

	if (i == REVOFF_PACKET_MAPS)
		return -1;
	if (starts(at, "str") || starts(at, "to:") || starts(at, "from:") ||
	    starts(at, "tofrom:") || starts(at, "alloc:")) {
		s->arrays |= 1u << i;
		if ((*at)[-1] == ':' && value(at, &t))
			return -1;
		t.size = 8;
	} else if (value(at, &t)) {
		return -1;
	}
	if (!t.size || t.size > REVOFF_PACKET_PAYLOAD)
		return -1;
	s->size[i] = (uint32_t)t.size;
	s->kind[i] = kind_of(&t);
	s->at[i] = s->words;
	s->words += (unsigned)(t.size + 7) / 8;
	++s->nargs;
	return 0;
}

int signature_parse(const char *text, struct shape *s)
{
	const char *p = text;
	struct type t = { 0, 1 };

	memset(s, 0, sizeof(*s));
	if (*p == 'v')
		++p;
	else if (value(&p, &t) || !t.size || t.size > REVOFF_PACKET_PAYLOAD)
		goto bad;
	s->result = (uint32_t)t.size;
	s->result_words = (unsigned)(t.size + 7) / 8;
	s->result_kind = (uint16_t)(REVOFF_MAP_FORCE_FROM |
				    (kind_of(&t) & ~REVOFF_KIND_MASK));
	if (*p++ != '(')
		goto bad;
	while (*p != ')') {
		if (s->nargs && *p++ != ',')
			goto bad;
		if (argument(&p, s))
			goto bad;
	}
	if (p[1])
		goto bad;
	s->in_words = !s->arrays && s->words <= REVOFF_PORT_WORDS &&
		      s->result_words <= REVOFF_PORT_WORDS;
	return 0;
bad:
	return fail(REVOFF_EIMAGE,
		    "the signature %s cannot be read (at character %d)", text,
		    (int)(p - text));
}
