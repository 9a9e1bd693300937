/* SPDX-License-Identifier: Apache-2.0 */
/* A whole life with one driver call that fails, for each call there is. */
#ifndef FAULTS_H
#define FAULTS_H

#include "cycle.h"

#define FAULT_UNKNOWN	    999 /* not one that loses the context */
#define FAULT_OUT_OF_MEMORY 2

/*
 * The entry fails with code at its 1st, 2nd, ... call, until a life has fewer
 * calls.  Each failure has to be told with the entry's name, or be one that
 * changes nothing for the caller; the life after is a healthy one.
 */
void faults_at_every_call(struct cycle *c, const char *entry, int code);

#endif /* FAULTS_H */
