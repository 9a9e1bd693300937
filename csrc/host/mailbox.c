/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host half of the mailbox, in three placements.
 *
 *   pinned, managed   mailbox.host is the mailbox; flags are read and written
 *                     in place, with acquire and release.
 *   copy              mailbox.host is a pinned mirror.  The flag is fetched
 *                     alone; only once it is set is the rest fetched, by a
 *                     later copy of the same stream, so that no message can be
 *                     seen in part.  The answer goes out as two ordered
 *                     copies: status and result, then the flag.
 */
#include <string.h>

#include "internal.h"

#define FLAG_AT	  offsetof(struct revoff_mailbox, call.fn)
#define ANSWER_AT offsetof(struct revoff_mailbox, call.mapnum)
#define ANSWER	  (3 * sizeof(uint64_t)) /* mapnum, addrs, sizes */
#define PACKET_AT offsetof(struct revoff_mailbox, packet)
#define HEAD	  (PACKET_AT + offsetof(struct revoff_packet, payload))

#define GATES (REVOFF_GATES * sizeof(struct revoff_gate))

/* Pinned memory for the mailbox or for its mirror. */
static int host_memory(struct revoff_device *d, CUdeviceptr *address)
{
	void *memory = NULL;
	CUresult r = d->drv->cuMemHostAlloc(
		&memory, sizeof(struct revoff_mailbox),
		CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);

	if (r)
		return device_result(d, r, "cuMemHostAlloc",
				     "no mapped host memory for the mailbox");
	d->mailbox.host = memory;
	memset(memory, 0, sizeof(struct revoff_mailbox));
	r = d->drv->cuMemHostGetDevicePointer(address, memory, 0);
	return device_result(d, r, "cuMemHostGetDevicePointer", "mailbox");
}

static int zero_device(struct revoff_device *d, uint64_t address, size_t size)
{
	CUresult r = d->drv->cuMemsetD8Async(address, 0, size, d->copy_stream);

	if (r)
		return device_result(d, r, "cuMemsetD8Async", "mailbox");
	r = d->drv->cuStreamSynchronize(d->copy_stream);
	return device_result(d, r, "cuStreamSynchronize", "mailbox");
}

int mailbox_open(struct revoff_device *d)
{
	struct mailbox *m = &d->mailbox;
	CUdeviceptr address = 0;
	CUresult r;
	int rc = 0;

	m->placement = d->options.placement;
	switch (m->placement) {
	case REVOFF_PLACE_PINNED:
		rc = host_memory(d, &address);
		break;
	case REVOFF_PLACE_MANAGED:
		r = d->drv->cuMemAllocManaged(&address,
					      sizeof(struct revoff_mailbox),
					      CU_MEM_ATTACH_GLOBAL);
		rc = device_result(d, r, "cuMemAllocManaged",
				   "no managed memory for the mailbox");
		if (!rc) {
			m->host = (struct revoff_mailbox *)(uintptr_t)address;
			memset(m->host, 0, sizeof(*m->host));
		}
		break;
	case REVOFF_PLACE_COPY:
		rc = host_memory(d, &address);
		if (rc)
			break;
		address = 0;
		r = d->drv->cuMemAlloc(&address, sizeof(struct revoff_mailbox));
		rc = device_result(d, r, "cuMemAlloc",
				   "no device memory for the mailbox");
		break;
	}
	m->address = address;
	if (!rc && m->placement == REVOFF_PLACE_COPY)
		rc = zero_device(d, address, sizeof(struct revoff_mailbox));
	if (rc)
		return rc;
	/* The gates, and in a line of its own behind them the lock. */
	r = d->drv->cuMemAlloc(&address, GATES + sizeof(struct revoff_gate));
	if (r)
		return device_result(d, r, "cuMemAlloc",
				     "no device memory for the lock");
	m->gates_address = address;
	m->lock_address = address + GATES;
	return zero_device(d, address, GATES + sizeof(struct revoff_gate));
}

void mailbox_close(struct revoff_device *d)
{
	struct mailbox *m = &d->mailbox;

	if (m->gates_address)
		d->drv->cuMemFree(m->gates_address);
	if (m->placement != REVOFF_PLACE_PINNED && m->address)
		d->drv->cuMemFree(m->address);
	if (m->placement != REVOFF_PLACE_MANAGED && m->host)
		d->drv->cuMemFreeHost(m->host);
	memset(m, 0, sizeof(*m));
}

/* Copy lock held.  *entry is what failed, if anything did. */
static CUresult mirror_in(struct revoff_device *d, size_t at, size_t size,
			  const char **entry)
{
	CUresult r = d->drv->cuMemcpyDtoHAsync((char *)d->mailbox.host + at,
					       d->mailbox.address + at, size,
					       d->copy_stream);

	*entry = r ? "cuMemcpyDtoHAsync" : "cuStreamSynchronize";
	return r ? r : d->drv->cuStreamSynchronize(d->copy_stream);
}

static CUresult mirror_out(struct revoff_device *d, size_t at, size_t size)
{
	return d->drv->cuMemcpyHtoDAsync(d->mailbox.address + at,
					 (char *)d->mailbox.host + at, size,
					 d->copy_stream);
}

int mailbox_peek(struct revoff_device *d, uint64_t *fn)
{
	struct mailbox *m = &d->mailbox;
	const char *entry;
	CUresult r;

	if (m->placement != REVOFF_PLACE_COPY) {
		/* [fn load] */
		*fn = __atomic_load_n(&m->host->call.fn, __ATOMIC_ACQUIRE);
		return 0;
	}
	pthread_mutex_lock(&d->copy);
	r = mirror_in(d, FLAG_AT, sizeof(m->host->call.fn), &entry);
	*fn = m->host->call.fn; /* [mirror load] */
	pthread_mutex_unlock(&d->copy);
	return device_result(d, r, entry, "cannot read the mailbox");
}

/* The flag is set and ours: bring the rest of the message to mailbox.host. */
int mailbox_fetch(struct revoff_device *d)
{
	struct mailbox *m = &d->mailbox;
	const char *entry;
	uint32_t n;
	CUresult r;

	if (m->placement != REVOFF_PLACE_COPY)
		return 0;
	pthread_mutex_lock(&d->copy);
	r = mirror_in(d, 0, HEAD, &entry);
	n = m->host->packet.payload_bytes;
	if (!r && n) {
		if (n > REVOFF_PACKET_PAYLOAD)
			n = REVOFF_PACKET_PAYLOAD;
		r = mirror_in(d, HEAD, n, &entry);
	}
	pthread_mutex_unlock(&d->copy);
	return device_result(d, r, entry, "cannot read the mailbox");
}

/*
 * Answer: everything that the device will read, then the flag.  The caller has
 * waited for its own copies, so the release store comes after them too.
 */
int mailbox_answer(struct revoff_device *d, int status, uint64_t result,
		   size_t payload)
{
	struct mailbox *m = &d->mailbox;
	struct rev_offload *call = &m->host->call;
	const char *entry = "cuMemcpyHtoDAsync";
	CUresult r = 0;

	/*
	 * The device looks at these while it waits for the flag, so the second
	 * mark must vouch for the result by itself.
	 */
	/* [status store] */
	__atomic_store_n(&call->mapnum, REVOFF_ANSWER_MARK | (uint32_t)status,
			 __ATOMIC_RELAXED);
	/* [result store] */
	__atomic_store_n(&call->addrs, result, __ATOMIC_RELAXED);
	/* [mark store] */
	__atomic_store_n(&call->sizes, REVOFF_ANSWER_MARK, __ATOMIC_RELEASE);
	if (m->placement != REVOFF_PLACE_COPY) {
		/* [answer store] */
		__atomic_store_n(&m->host->call.fn, 0, __ATOMIC_RELEASE);
		return 0;
	}
	pthread_mutex_lock(&d->copy);
	/* [mirror store] */
	__atomic_store_n(&m->host->call.fn, 0, __ATOMIC_RELAXED);
	if (payload)
		r = mirror_out(d, HEAD, payload);
	if (!r)
		r = mirror_out(d, ANSWER_AT, ANSWER);
	if (!r)
		r = mirror_out(d, FLAG_AT, sizeof(m->host->call.fn));
	if (!r) {
		entry = "cuStreamSynchronize";
		r = d->drv->cuStreamSynchronize(d->copy_stream);
	}
	pthread_mutex_unlock(&d->copy);
	return device_result(d, r, entry, "cannot answer through the mailbox");
}

/* Free a mailbox whose caller has left: the flag first, then the lock. */
int mailbox_reset(struct revoff_device *d)
{
	static const uint32_t zero;
	int rc = mailbox_answer(d, REVOFF_ABORTED, 0, 0);

	if (rc)
		return rc;
	return device_write(d, d->mailbox.lock_address, &zero, sizeof(zero));
}

struct area mailbox_area(struct revoff_device *d)
{
	struct area a = { d->mailbox.address + PACKET_AT,
			  (char *)&d->mailbox.host->packet,
			  sizeof(struct revoff_packet) };

	return a;
}
