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
#define REVOFF_ABI_VERSION 1

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
	revoff_u32 reserved0;
	revoff_u64 reserved[4];
};

/*
 * One per image, in the image (REVOFF_SYM_LINK).  abi and size are set by the
 * compiler of the device code and checked by the host; the rest is written by
 * the host when it connects the image.
 */
struct revoff_link {
	revoff_u32 abi;	    /* REVOFF_ABI_VERSION of the device code */
	revoff_u32 size;    /* sizeof(struct revoff_link) */
	revoff_u64 lock;    /* [H] device address of the device-wide lock */
	revoff_u64 gates;   /* [H] device address of REVOFF_GATES gates */
	revoff_u64 control; /* [H] device address of struct revoff_control */
	revoff_u64 flags;   /* [H] REVOFF_LINK_* */
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
REVOFF_SIZE(revoff_control, 64);
REVOFF_AT(revoff_link, lock, 8);
REVOFF_AT(revoff_link, gates, 16);
REVOFF_AT(revoff_link, control, 24);
REVOFF_AT(revoff_link, flags, 32);
REVOFF_SIZE(revoff_link, 40);
REVOFF_AT(revoff_descriptor, abi, 8);
REVOFF_AT(revoff_descriptor, name, 16);
REVOFF_AT(revoff_descriptor, signature, 80);
REVOFF_AT(revoff_gate, serving, 4);
REVOFF_SIZE(revoff_gate, 64);
REVOFF_SIZE(revoff_descriptor, 1024);
REVOFF_SIZE(revoff_icvs, 16);

#endif /* REVOFF_PROTOCOL_H */
