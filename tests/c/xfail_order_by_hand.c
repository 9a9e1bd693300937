/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: as test_order_by_hand, but fn is published by a relaxed store:
 * ThreadSanitizer must report the race on the packet, or it sees nothing.
 * Images: typed
 * Variants: tsan
 */
#include "by_hand.h"

int main(int argc, char **argv)
{
	struct revoff_device_options o = { .transport =
						   REVOFF_TRANSPORT_MAILBOX };

	lab_begin(argc, argv);
	by_hand(&o, 1000, __ATOMIC_RELAXED);
	return T_PASS;
}
