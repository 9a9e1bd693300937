/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol with one fault: fn is published by a relaxed store, so nothing
 * orders the packet before it.  ThreadSanitizer has to see that.
 */
#include <pyrevoff.h>

REVOFF_FUNCTION(next, revoff_u64(revoff_u64, revoff_u64));

extern "C" __global__ void count(revoff_u64 *bad, int n)
{
	revoff_mailbox *m = __gomp_rev_offload_var;
	revoff_packet *p = &m->packet;

	for (int i = 0; i < n; ++i) {
		/* One thread: nobody else wants the lock. */
		p->payload_bytes = 0;
		for (int k = 0; k < 2; ++k) {
			p->addrs[k] = (revoff_u64)i;
			p->sizes[k] = 8;
			p->kinds[k] = REVOFF_MAP_FIRSTPRIVATE_INT;
		}
		m->call.mapnum = 2;
		m->call.addrs = (revoff_u64)p->addrs;
		m->call.sizes = (revoff_u64)p->sizes;
		m->call.kinds = (revoff_u64)p->kinds;
		revoff::wire::store_relaxed(&m->call.fn,
					    (revoff_u64)&__revoff_fn_next);
		while (revoff::wire::load_acquire(&m->call.fn))
			revoff::wire::pause(0);
		*bad += m->call.addrs != (revoff_u64)i;
	}
}
