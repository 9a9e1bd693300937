/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire: every byte that device and host exchange, written once.
 *
 * Included by device code (nvcc, NVRTC), by the host library (C11) and by
 * kernels built for the CPU device (C++17).  NVRTC has no <stdint.h>, so the
 * types are spelt here.  All words are little-endian and naturally aligned.
 *
 * Who writes a field is said in its comment: [D] the device, [H] the host.
 */
#ifndef REVOFF_PROTOCOL_H
#define REVOFF_PROTOCOL_H

typedef unsigned char revoff_u8;
typedef unsigned short revoff_u16;
typedef unsigned int revoff_u32;
typedef int revoff_i32;
typedef unsigned long long revoff_u64;

/* Raised whenever a struct below changes; compared when an image is loaded. */
#define REVOFF_ABI_VERSION 2

/* Names of the device variables that the host looks up in an image. */
#define REVOFF_SYM_MAILBOX "__gomp_rev_offload_var"
#define REVOFF_SYM_LINK	   "__revoff_link"
#define REVOFF_SYM_ICVS	   "__gomp_additional_icvs"
#define REVOFF_SYM_TABLE   "$offload_func_table"
#define REVOFF_FN_PREFIX   "__revoff_fn_"

/* libgomp's number for "run on the host" (GOMP_DEVICE_HOST_FALLBACK). */
#define REVOFF_HOST_FALLBACK (-2)

/* Capacities of a packet. */
#define REVOFF_PACKET_MAPS    32
#define REVOFF_PACKET_PAYLOAD 16384

/* Status of a call, as the device sees it. */
#define REVOFF_OK	   0 /* answered by its handler */
#define REVOFF_HANDLER	   1 /* the handler failed (raised) */
#define REVOFF_ABORTED	   2 /* the launch was given up: see control.abort */
#define REVOFF_UNBOUND	   3 /* the function has no handler */
#define REVOFF_UNKNOWN	   4 /* no loaded image has this function */
#define REVOFF_BADMAP	   5 /* an argument cannot be mapped */
#define REVOFF_COPYFAILED  6 /* a copy to or from the device failed */
#define REVOFF_UNCONNECTED 7 /* no host behind this image (device finds it) */
#define REVOFF_TOOBIG	   8 /* arguments exceed a packet (device finds it) */
#define REVOFF_BADCALL \
	9 /* GOMP_target_ext: NULL function, or a device
				number that is not the host's */

/* Why a launch was aborted: values of control.abort. */
#define REVOFF_ABORT_NONE    0
#define REVOFF_ABORT_FAILED  1 /* an earlier call of this launch failed */
#define REVOFF_ABORT_SIGNAL  2 /* interrupted (Ctrl-C) */
#define REVOFF_ABORT_TIMEOUT 3 /* its time limit passed */
#define REVOFF_ABORT_CLOSING 4 /* the image or the device is closing */

/*
 * Map kinds: libgomp's numbers (low byte of a kind word; the high byte is the
 * base-2 logarithm of the alignment).
 */
#define REVOFF_KIND_MASK	 0xff
#define REVOFF_MAP_IMPLICIT	 0x60 /* stripped before a kind is looked at */
#define REVOFF_MAP_ALLOC	 0x00
#define REVOFF_MAP_TO		 0x01
#define REVOFF_MAP_FROM		 0x02
#define REVOFF_MAP_TOFROM	 0x03
#define REVOFF_MAP_POINTER	 0x04
#define REVOFF_MAP_TO_PSET	 0x05
#define REVOFF_MAP_FORCE_PRESENT 0x06
#define REVOFF_MAP_DELETE	 0x07
#define REVOFF_MAP_FIRSTPRIVATE	 0x0c
#define REVOFF_MAP_FIRSTPRIVATE_INT	 0x0d
#define REVOFF_MAP_ZERO_LEN_ARRAY	 0x0f
#define REVOFF_MAP_ALWAYS_TO		 0x11
#define REVOFF_MAP_ALWAYS_FROM		 0x12
#define REVOFF_MAP_ALWAYS_TOFROM	 0x13
#define REVOFF_MAP_RELEASE		 0x17
#define REVOFF_MAP_STRUCT		 0x1c
#define REVOFF_MAP_ALWAYS_POINTER	 0x1d
#define REVOFF_MAP_POINTER_ZERO_LEN	 0x1e
#define REVOFF_MAP_DELETE_ZERO_LEN	 0x1f
#define REVOFF_MAP_ATTACH		 0x50
#define REVOFF_MAP_DETACH		 0x51
#define REVOFF_MAP_ATTACH_ZERO_LEN	 0x52
#define REVOFF_MAP_STRUCT_UNORD		 0x5c
#define REVOFF_MAP_FORCE_ALLOC		 0x80
#define REVOFF_MAP_FORCE_TO		 0x81
#define REVOFF_MAP_FORCE_FROM		 0x82
#define REVOFF_MAP_FORCE_TOFROM		 0x83
#define REVOFF_MAP_ALWAYS_PRESENT_TO	 0x95
#define REVOFF_MAP_ALWAYS_PRESENT_FROM	 0x96
#define REVOFF_MAP_ALWAYS_PRESENT_TOFROM 0x97
#define REVOFF_MAP_FORCE_DETACH		 0xd1

/*
 * The mailbox of the 2022 libgomp patch, to the byte.  fn is both the message
 * and the flag: nonzero hands the mailbox to the host, zero back.  Before it
 * hands back, the host leaves its answer in words that libgomp's device code
 * does not look at again.
 */
#define REVOFF_ANSWER_MARK 0x8000000000000000ull /* in no message */
struct rev_offload {
	revoff_u64 fn;	    /* [D] reverse function, last; [H] 0 when done */
	revoff_u64 mapnum;  /* [D] number of map items; [H] mark | status */
	revoff_u64 addrs;   /* [D] device address of mapnum addresses;
			       [H] returned value of up to 8 bytes */
	revoff_u64 sizes;   /* [D] device address of mapnum sizes, bytes;
			       [H] mark */
	revoff_u64 kinds;   /* [D] device address of mapnum kind words */
	revoff_i32 dev_num; /* [D] device number, from the image's ICVs */
	revoff_u32 lock;    /* [D] taken by the caller that fills the rest */
};

/*
 * What a caller may write beside the mailbox while it holds the lock, so that
 * the host needs no copy to read lists and small data.  addrs, sizes and
 * kinds of the mailbox then point in here; a caller built for plain libgomp
 * points elsewhere, and the host fetches its lists by copies.
 */
struct revoff_packet {
	revoff_u32 payload_bytes; /* [D] bytes of payload in use */
	revoff_u32 block[3];	  /* [D] blockIdx of the caller */
	revoff_u32 thread[3];	  /* [D] threadIdx of the caller */
	revoff_u32 reserved[9];
	revoff_u64 addrs[REVOFF_PACKET_MAPS];
	revoff_u64 sizes[REVOFF_PACKET_MAPS];
	revoff_u16 kinds[REVOFF_PACKET_MAPS];
	revoff_u8 payload[REVOFF_PACKET_PAYLOAD];
};

struct revoff_mailbox {
	struct rev_offload call;
	revoff_u64 reserved[2];
	struct revoff_packet packet;
};

/*
 * Per image, in mapped host memory whatever the placement of the mailbox, so
 * that the host can reach a kernel that waits without any copy.
 */
struct revoff_control {
	revoff_u32 abort;	  /* [H] REVOFF_ABORT_*: every wait reads it */
	revoff_u32 leave;	  /* [H] 1: do not wait for the open answer; the
				       host frees the mailbox itself */
	revoff_u32 missed;	  /* [D] calls that could not be sent */
	revoff_i32 missed_status; /* [D] why: a REVOFF_* status */
	revoff_u64 missed_fn;	  /* [D] the function of such a call */
	revoff_u32 deserted;	  /* [D] callers that left so */
	revoff_u32 dropped;	  /* [D] records that try_post did not send */
	revoff_u32 stop;	  /* [H] 1: the kernel is asked to end early */
	revoff_u32 reserved0;
	revoff_u64 reserved[3];
};

/*
 * ---- ports ----
 *
 * A port carries one call of up to 32 lanes of one warp at a time.  What is
 * said in words needs no fence and no flag: each half of a unit is one 8-byte
 * store of 4 bytes of data and the call's sequence number, so whoever sees
 * the number sees the data.  A port's numbers run from 1 to REVOFF_SEQ_LAST
 * and never repeat while a kernel runs; a port that has used them up stays
 * taken until its image is idle.  Zero-filled memory is a port never used.
 *
 * Word w of the lane of rank r among n calling lanes is unit w * n + r: one
 * lane's words lie side by side, 32 lanes' words in full lines.
 */
struct revoff_unit {
	revoff_u64 lo; /* bits 0-31 of the word | number << 32 */
	revoff_u64 hi; /* bits 32-63 of the word | number << 32 */
};
#define REVOFF_SEQ_LAST 0x7fff0000u /* a call may take some more */
/* In an answer's number: the call failed, and the word is its status. */
#define REVOFF_SEQ_FAILED 0x80000000u
#define REVOFF_PORT_UNITS 128
#define REVOFF_PORT_WORDS 16 /* at most, of one lane, either way */

/*
 * The units of a request's head, and what their halves hold.
 *   FN      the function (64 bits)
 *   LANES   calling lanes (mask); shape = words | form << 8 | stride << 16,
 *           the stride of frames in units of 16 bytes
 *   BLOCK   blockIdx.x; blockIdx.y | blockIdx.z << 16
 *   THREAD  linear thread of lane 0 / 32 | blockDim.x << 5 | blockDim.y << 16;
 *           slot of the frames
 */
#define REVOFF_HEAD_FN	   0
#define REVOFF_HEAD_LANES  1
#define REVOFF_HEAD_BLOCK  2
#define REVOFF_HEAD_THREAD 3
#define REVOFF_HEAD_UNITS  4
/* Forms of a request. */
#define REVOFF_FORM_WORDS 0 /* the words are the arguments, by value */
#define REVOFF_FORM_FRAME 1 /* items and data in a frame; word 0: items */
#define REVOFF_FORM_GOMP  2 /* words: mapnum, addrs, sizes, kinds, dev_num */
#define REVOFF_FORM_SEND  3 /* slot -> stream; words: offset, bytes, total */
#define REVOFF_FORM_FETCH 4 /* stream -> slot; words: offset, bytes, total */

struct revoff_request {
	struct revoff_unit head[REVOFF_HEAD_UNITS]; /* [D] */
	struct revoff_unit word[REVOFF_PORT_UNITS]; /* [D] */
};
/*
 * Word 0 of each lane is always there: the value returned, or the status of
 * a call that failed, which then has no other words.
 */
struct revoff_reply {
	struct revoff_unit word[REVOFF_PORT_UNITS]; /* [H] */
};

/*
 * A slot holds what does not fit in words: for each calling lane a frame, at
 * rank * stride, of addrs, sizes and kinds of its items (each list filled up
 * to a multiple of 16 bytes) and their data behind.  It is written before a
 * system fence and the request, and read back after the reply and a fence.
 * An address with REVOFF_STREAM set is a place in the port's stream: data
 * that was too much for a slot and went before, in pieces.
 */
#define REVOFF_SLOT_BYTES 17408
#define REVOFF_STREAM	  0x8000000000000000ull
#define REVOFF_STREAM_MAX 0x1000000u

/*
 * The ring of posts: records of REVOFF_RECORD bytes, or of several such, and
 * for each posting warp a head that says what they are.  Both indices are
 * taken with one 64-bit addition, so that heads and records are in the same
 * order.  A head counts once its lap is right; the fence before it covers the
 * records.
 */
#define REVOFF_RECORD 32
struct revoff_post {
	revoff_u64 fn;	     /* [D] */
	revoff_u32 mask;     /* [D] posting lanes */
	revoff_u32 slots;    /* [D] ring slots of one lane's record */
	revoff_u32 block_x;  /* [D] */
	revoff_u32 block_yz; /* [D] as in REVOFF_HEAD_BLOCK */
	revoff_u32 thread;   /* [D] as in REVOFF_HEAD_THREAD */
	revoff_u32 lap;	     /* [D] 1 + index / number of heads, last */
};

/* A word of a record that is an array: its place and size in the record. */
#define REVOFF_POSTED(at, bytes) ((revoff_u64)(bytes) << 32 | (at))
#define REVOFF_POSTED_NULL	 0xffffffffffffffffull

/*
 * One per image, in the image (REVOFF_SYM_LINK).  abi and size are set by the
 * compiler of the device code and checked by the host; the rest is written by
 * the host when it connects the image.  Numbers of things are powers of two.
 */
struct revoff_link {
	revoff_u32 abi;	    /* REVOFF_ABI_VERSION of the device code */
	revoff_u32 size;    /* sizeof(struct revoff_link) */
	revoff_u64 lock;    /* [H] device address of the device-wide lock */
	revoff_u64 gates;   /* [H] device address of REVOFF_GATES gates */
	revoff_u64 control; /* [H] device address of struct revoff_control */
	revoff_u64 flags;   /* [H] REVOFF_LINK_* */
	/* Ports, in mapped host memory; who has them, in device memory. */
	revoff_u64 requests; /* [H] struct revoff_request[ports] */
	revoff_u64 replies;  /* [H] struct revoff_reply[ports] */
	revoff_u64 bells;    /* [H] u8[ports]: low byte of the number */
	revoff_u64
		states; /* [H] address of u64[ports]: last number | taken << 31 |
				when the first look at a reply pays << 32 */
	revoff_u64 slots;	/* [H] nslots * REVOFF_SLOT_BYTES */
	revoff_u64 slot_states; /* [H] u32[nslots]: 1 taken */
	revoff_u32 nports;	/* [H] */
	revoff_u32 nslots;	/* [H] */
	/* Posts: heads, records and done in mapped host memory. */
	revoff_u64 heads;   /* [H] struct revoff_post[nheads] */
	revoff_u64 records; /* [H] nrecords * REVOFF_RECORD bytes */
	revoff_u64 done;    /* [H] u64 that the host writes: taken up to here */
	revoff_u64 tail;    /* [H] u64 in device memory: given out up to here,
			       records << 32 | heads */
	revoff_u64 seen;    /* [H] device memory: u64, a copy of done; u32,
			       1 while somebody asks the host for it */
	revoff_u32 nheads;  /* [H] */
	revoff_u32 nrecords; /* [H] */
};
/*
 * Where the warps of one multiprocessor line up for the lock: tickets, so that
 * each knows how long it has to wait.  Device memory, a line for each.
 */
#define REVOFF_GATES 1024
struct revoff_gate {
	revoff_u32 next;    /* [D] ticket of the next to come */
	revoff_u32 serving; /* [D] ticket of the one that may go on */
	revoff_u32 reserved[14];
};
#define REVOFF_LINK_CONNECTED 1 /* a host serves this image */
#define REVOFF_LINK_LOCK      4 /* take the mailbox's own lock as well */
#define REVOFF_LINK_PACKET    2 /* a packet follows the mailbox */
#define REVOFF_LINK_PORTS     8 /* calls go through ports, else the mailbox */

/*
 * One per function that kernels may call (REVOFF_FN_PREFIX + name), in the
 * image.  Its device address is the function's identity.  The signature is
 * text: RESULT(ARG,ARG,...), see docs/protocol.md, "Signatures".
 */
#define REVOFF_DESCRIPTOR_MAGIC 0x6e66766572ull /* "revfn" */
#define REVOFF_NAME_MAX		64
#define REVOFF_SIGNATURE_MAX	944
struct revoff_descriptor {
	revoff_u64 magic;
	revoff_u32 abi;
	revoff_u32 reserved;
	char name[REVOFF_NAME_MAX];
	char signature[REVOFF_SIGNATURE_MAX];
};

/* libgomp's ICVs of a device image (struct gomp_offload_icvs). */
struct revoff_icvs {
	revoff_i32 device_num;
	revoff_i32 default_device;
	revoff_i32 nteams;
	revoff_i32 teams_thread_limit;
};

#ifdef __cplusplus
#define REVOFF_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define REVOFF_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif
#ifdef __CUDACC_RTC__
/* NVRTC has no offsetof; every other compiler checks the same structs. */
#define REVOFF_AT(type, field, offset)                               \
	REVOFF_STATIC_ASSERT(sizeof(((struct type *)0)->field) != 0, \
			     #type "." #field)
#else
#define REVOFF_AT(type, field, offset)                                         \
	REVOFF_STATIC_ASSERT(__builtin_offsetof(struct type, field) == offset, \
			     #type "." #field " must be at byte " #offset)
#endif
#define REVOFF_SIZE(type, bytes)                           \
	REVOFF_STATIC_ASSERT(sizeof(struct type) == bytes, \
			     #type " must have " #bytes " bytes")

REVOFF_AT(rev_offload, fn, 0);
REVOFF_AT(rev_offload, mapnum, 8);
REVOFF_AT(rev_offload, addrs, 16);
REVOFF_AT(rev_offload, sizes, 24);
REVOFF_AT(rev_offload, kinds, 32);
REVOFF_AT(rev_offload, dev_num, 40);
REVOFF_AT(rev_offload, lock, 44);
REVOFF_SIZE(rev_offload, 48);
REVOFF_AT(revoff_packet, payload_bytes, 0);
REVOFF_AT(revoff_packet, block, 4);
REVOFF_AT(revoff_packet, thread, 16);
REVOFF_AT(revoff_packet, addrs, 64);
REVOFF_AT(revoff_packet, sizes, 320);
REVOFF_AT(revoff_packet, kinds, 576);
REVOFF_AT(revoff_packet, payload, 640);
REVOFF_SIZE(revoff_packet, 17024);
REVOFF_AT(revoff_mailbox, packet, 64);
REVOFF_SIZE(revoff_mailbox, 17088);
REVOFF_AT(revoff_control, abort, 0);
REVOFF_AT(revoff_control, leave, 4);
REVOFF_AT(revoff_control, missed, 8);
REVOFF_AT(revoff_control, missed_status, 12);
REVOFF_AT(revoff_control, missed_fn, 16);
REVOFF_AT(revoff_control, deserted, 24);
REVOFF_AT(revoff_control, dropped, 28);
REVOFF_AT(revoff_control, stop, 32);
REVOFF_SIZE(revoff_control, 64);
REVOFF_AT(revoff_link, lock, 8);
REVOFF_AT(revoff_link, gates, 16);
REVOFF_AT(revoff_link, control, 24);
REVOFF_AT(revoff_link, flags, 32);
REVOFF_AT(revoff_link, requests, 40);
REVOFF_AT(revoff_link, slot_states, 80);
REVOFF_AT(revoff_link, nports, 88);
REVOFF_AT(revoff_link, heads, 96);
REVOFF_AT(revoff_link, seen, 128);
REVOFF_AT(revoff_link, nrecords, 140);
REVOFF_SIZE(revoff_link, 144);
REVOFF_SIZE(revoff_unit, 16);
REVOFF_AT(revoff_request, word, 64);
REVOFF_SIZE(revoff_request, 2112);
REVOFF_SIZE(revoff_reply, 2048);
REVOFF_AT(revoff_post, mask, 8);
REVOFF_AT(revoff_post, block_x, 16);
REVOFF_AT(revoff_post, thread, 24);
REVOFF_AT(revoff_post, lap, 28);
REVOFF_SIZE(revoff_post, 32);
REVOFF_AT(revoff_descriptor, abi, 8);
REVOFF_AT(revoff_descriptor, name, 16);
REVOFF_AT(revoff_descriptor, signature, 80);
REVOFF_AT(revoff_gate, serving, 4);
REVOFF_SIZE(revoff_gate, 64);
REVOFF_SIZE(revoff_descriptor, 1024);
REVOFF_SIZE(revoff_icvs, 16);

#endif /* REVOFF_PROTOCOL_H */
