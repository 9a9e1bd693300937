/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: the wire, written out once more by hand: every offset, size and
 * number.  With the argument "dump" it prints a mailbox whose fields hold
 * numbers that tests/test_wire.py looks for.
 */
#include "lab.h"

#define AT(type, field, offset) \
	t_check(offsetof(struct type, field) == (offset))
#define BYTES(type, field, size) \
	t_check(sizeof(((struct type *)0)->field) == (size))

static void mailbox(void)
{
	AT(rev_offload, fn, 0);
	AT(rev_offload, mapnum, 8);
	AT(rev_offload, addrs, 16);
	AT(rev_offload, sizes, 24);
	AT(rev_offload, kinds, 32);
	AT(rev_offload, dev_num, 40);
	AT(rev_offload, lock, 44);
	BYTES(rev_offload, fn, 8);
	BYTES(rev_offload, dev_num, 4);
	BYTES(rev_offload, lock, 4);
	t_check(sizeof(struct rev_offload) == 48);
	AT(revoff_mailbox, call, 0);
	AT(revoff_mailbox, packet, 64);
	t_check(sizeof(struct revoff_mailbox) == 17088);
	AT(revoff_packet, payload_bytes, 0);
	AT(revoff_packet, block, 4);
	AT(revoff_packet, thread, 16);
	AT(revoff_packet, addrs, 64);
	AT(revoff_packet, sizes, 64 + 32 * 8);
	AT(revoff_packet, kinds, 64 + 64 * 8);
	AT(revoff_packet, payload, 640);
	BYTES(revoff_packet, addrs, 32 * 8);
	BYTES(revoff_packet, kinds, 32 * 2);
	BYTES(revoff_packet, payload, 16384);
	t_check(sizeof(struct revoff_packet) == 17024);
}

static void others(void)
{
	AT(revoff_control, abort, 0);
	AT(revoff_control, leave, 4);
	AT(revoff_control, missed, 8);
	AT(revoff_control, missed_status, 12);
	AT(revoff_control, missed_fn, 16);
	AT(revoff_control, deserted, 24);
	AT(revoff_control, dropped, 28);
	AT(revoff_control, stop, 32);
	t_check(sizeof(struct revoff_control) == 64);
	AT(revoff_link, abi, 0);
	AT(revoff_link, size, 4);
	AT(revoff_link, lock, 8);
	AT(revoff_link, gates, 16);
	AT(revoff_link, control, 24);
	AT(revoff_link, flags, 32);
	AT(revoff_link, requests, 40);
	AT(revoff_link, replies, 48);
	AT(revoff_link, bells, 56);
	AT(revoff_link, states, 64);
	AT(revoff_link, slots, 72);
	AT(revoff_link, slot_states, 80);
	AT(revoff_link, nports, 88);
	AT(revoff_link, nslots, 92);
	AT(revoff_link, heads, 96);
	AT(revoff_link, records, 104);
	AT(revoff_link, done, 112);
	AT(revoff_link, tail, 120);
	AT(revoff_link, seen, 128);
	AT(revoff_link, nheads, 136);
	AT(revoff_link, nrecords, 140);
	t_check(sizeof(struct revoff_link) == 144);
	AT(revoff_unit, lo, 0);
	AT(revoff_unit, hi, 8);
	AT(revoff_request, head, 0);
	AT(revoff_request, word, 64);
	t_check(sizeof(struct revoff_request) == 64 + 128 * 16);
	AT(revoff_reply, word, 0);
	t_check(sizeof(struct revoff_reply) == 128 * 16);
	AT(revoff_post, fn, 0);
	AT(revoff_post, mask, 8);
	AT(revoff_post, slots, 12);
	AT(revoff_post, block_x, 16);
	AT(revoff_post, block_yz, 20);
	AT(revoff_post, thread, 24);
	AT(revoff_post, lap, 28);
	t_check(sizeof(struct revoff_post) == 32);
	AT(revoff_gate, next, 0);
	AT(revoff_gate, serving, 4);
	t_check(sizeof(struct revoff_gate) == 64 && REVOFF_GATES == 1024);
	AT(revoff_descriptor, magic, 0);
	AT(revoff_descriptor, abi, 8);
	AT(revoff_descriptor, name, 16);
	AT(revoff_descriptor, signature, 80);
	t_check(sizeof(struct revoff_descriptor) == 1024);
	AT(revoff_icvs, device_num, 0);
	AT(revoff_icvs, default_device, 4);
	AT(revoff_icvs, nteams, 8);
	AT(revoff_icvs, teams_thread_limit, 12);
	t_check(sizeof(struct revoff_icvs) == 16);
}

static void numbers(void)
{
	static const char *const names[] = {
		"ok",
		"handler failed",
		"aborted",
		"no handler bound",
		"unknown function",
		"argument cannot be mapped",
		"copy failed",
		"image not connected to a host",
	};
	int i;

	t_check(REVOFF_ABI_VERSION == 2 && revoff_abi_version() == 2);
	t_check(REVOFF_ANSWER_MARK == 1ull << 63);
	t_check(REVOFF_HOST_FALLBACK == -2);
	t_check(REVOFF_DESCRIPTOR_MAGIC == 0x6e66766572ull);
	t_check(REVOFF_OK == 0 && REVOFF_HANDLER == 1 && REVOFF_ABORTED == 2);
	t_check(REVOFF_UNBOUND == 3 && REVOFF_UNKNOWN == 4);
	t_check(REVOFF_BADMAP == 5 && REVOFF_COPYFAILED == 6);
	t_check(REVOFF_UNCONNECTED == 7 && REVOFF_TOOBIG == 8);
	t_check(REVOFF_BADCALL == 9);
	t_check(REVOFF_LINK_CONNECTED == 1 && REVOFF_LINK_PACKET == 2);
	t_check(REVOFF_LINK_LOCK == 4 && REVOFF_LINK_PORTS == 8);
	t_check(REVOFF_SEQ_LAST == 0x7fff0000u);
	t_check(REVOFF_SEQ_FAILED == 0x80000000u);
	t_check(REVOFF_FORM_WORDS == 0 && REVOFF_FORM_FRAME == 1);
	t_check(REVOFF_FORM_GOMP == 2 && REVOFF_FORM_SEND == 3);
	t_check(REVOFF_FORM_FETCH == 4 && REVOFF_RECORD == 32);
	for (i = 0; i < 8; ++i)
		t_check(!strcmp(revoff_status_name(i), names[i]));
	t_check(*revoff_status_name(8) && *revoff_status_name(9));
	t_check(!strcmp(revoff_status_name(10), "unknown status"));
	t_check(!strcmp(revoff_status_name(-1), "unknown status"));
}

static void dump(void)
{
	struct revoff_mailbox *m = calloc(1, sizeof(*m));
	unsigned i;

	t_check(m);
	m->call = (struct rev_offload){
		0x1111111111111111, 0x22, 0x3333, 0x444444, 0x55555555, -6, 7
	};
	m->packet.payload_bytes = 8;
	for (i = 0; i < 3; ++i) {
		m->packet.block[i] = 9 + i;
		m->packet.thread[i] = 12 + i;
	}
	for (i = 0; i < 32; ++i) {
		m->packet.addrs[i] = 1000 + i;
		m->packet.sizes[i] = 2000 + i;
		m->packet.kinds[i] = (uint16_t)(3000 + i);
	}
	m->packet.payload[0] = 15;
	m->packet.payload[16383] = 16;
	t_check(fwrite(m, sizeof(*m), 1, stdout) == 1);
	free(m);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[2], "dump")) {
		dump();
		return T_PASS;
	}
	mailbox();
	others();
	numbers();
	return T_PASS;
}
