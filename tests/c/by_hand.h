/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that plays the device on the mailbox, word by word as the protocol
 * says it, while a kernel that does not call keeps the host serving.
 */
#ifndef BY_HAND_H
#define BY_HAND_H

#include "lab.h"

/*
 * Make `calls` calls; publish is the memory order of the store of fn.  All
 * counters and hashes are checked on both sides.
 */
void by_hand(const struct revoff_device_options *options, unsigned calls,
	     int publish);

#endif /* BY_HAND_H */
