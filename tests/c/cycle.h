/* SPDX-License-Identifier: Apache-2.0 */
/* One whole life: open, load, run, map, unload, close. */
#ifndef CYCLE_H
#define CYCLE_H

#include "lab.h"

/* Bytes of the images, read once. */
struct cycle {
	void *typed, *gomp, *plain;
	size_t typed_size, gomp_size, plain_size;
	struct revoff_device_options options;
	/* Of the first step that failed. */
	int rc;
	struct revoff_error error;
	const char *step;
};

void cycle_prepare(struct cycle *c);
/*
 * Run it.  A step that fails ends it there; all that was opened is closed
 * again, in spite of further failures.
 */
int cycle_run(struct cycle *c);
void cycle_done(struct cycle *c);

#endif /* CYCLE_H */
