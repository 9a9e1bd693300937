/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: a thread plays the device by hand, 100 000 calls with a counter
 * and its hash: the host follows the protocol to the word, and under
 * ThreadSanitizer no access of the host is out of order.
 * Images: typed
 * Variants: plain tsan
 * Covers: V6
 */
#include "by_hand.h"

int main(int argc, char **argv)
{
	int i;

	lab_begin(argc, argv);
	for (i = 0; i < 4; ++i) {
		struct revoff_device_options o = {
			.transport = REVOFF_TRANSPORT_MAILBOX,
			.placement = i / 2 ? REVOFF_PLACE_MANAGED
					   : REVOFF_PLACE_PINNED,
			.lock = i % 2,
		};

		by_hand(&o, i ? 10000 : 100000, __ATOMIC_RELEASE);
	}
	return T_PASS;
}
