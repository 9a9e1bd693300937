/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posts: reserve or try_reserve, records, fence, the head with its lap; the
 * host takes heads in order and gives room.  What is modelled, and which line
 * of code each step stands for: docs/model.md.
 *
 * A store of the device to host memory waits in its warp's store buffer (rp,
 * hp, lp) and arrives when it likes; the fence waits for those before it.
 *
 * -DDEFECT=n takes one rule away; see the list in tools/model.py.
 */
#ifndef DEFECT
#define DEFECT 0
#endif
#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef POSTS
#define POSTS 3 /* of each caller */
#endif
#ifndef HEADS
#define HEADS 2
#endif
#ifndef RECORDS
#define RECORDS 4
#endif
#ifndef TRY
#define TRY 0 /* 1: try_post */
#endif
#ifndef ABORT
#define ABORT 0 /* 1: may be given up, and nobody serves from then on */
#endif
#define LANES 2 /* at most, each with a record of one slot */

/* The indices wrap; LAPS is what the lap can count. */
#ifndef WRAP
#define WRAP 16
#endif
#define LAP(at) (((at) % WRAP) / HEADS + 1)
#define LESS(a, b) (((a) - (b) + WRAP) % WRAP)

/* The ring, as the host sees it. */
byte record[RECORDS];
byte head_id[HEADS], head_lanes[HEADS];
byte lap[HEADS];
byte done_records, done_heads; /* one word */

/* Stores on their way, of each caller (of two): its records, head, and lap. */
byte rp[2 * RECORDS]; /* 0: none, else the value */
byte hp[2 * HEADS], hl[2 * HEADS];
byte lp[2 * HEADS];

/* Device memory. */
byte tail_records, tail_heads; /* one word */
byte seen_records, seen_heads; /* one word */
bit asking;

bit aborted, gone; /* gone: handed over, nobody serves posts any more */
byte ended;

/* For the properties. */
byte sent[2], got[2], dropped, attempts;
byte handled;
byte order[WRAP]; /* who took which head */

#define ID(me, n) ((me) * 16 + (n) + 1)

inline select_record(i)
{
	if
	:: rp[0] -> i = 0
	:: rp[1] -> i = 1
	:: rp[2] -> i = 2
	:: rp[3] -> i = 3
	:: rp[4] -> i = 4
	:: rp[5] -> i = 5
	:: rp[6] -> i = 6
	:: rp[7] -> i = 7
	fi
}

inline select_head(i)
{
	if
	:: hp[0] -> i = 0
	:: hp[1] -> i = 1
	:: hp[2] -> i = 2
	:: hp[3] -> i = 3
	fi
}

inline select_lap(i)
{
	if
	:: lp[0] -> i = 0
	:: lp[1] -> i = 1
	:: lp[2] -> i = 2
	:: lp[3] -> i = 3
	fi
}

active proctype bus()
{
	byte i;

end:	do
	:: atomic {
		select_record(i);
		record[i % RECORDS] = rp[i];
		rp[i] = 0;
		i = 0
	   }
	:: atomic {
		select_head(i);
		head_id[i % HEADS] = hp[i];
		head_lanes[i % HEADS] = hl[i];
		hp[i] = 0;
		hl[i] = 0;
		i = 0
	   }
	:: atomic {
		select_lap(i);
		lap[i % HEADS] = lp[i];
		lp[i] = 0;
		i = 0
	   }
	od
}

/* has_room, up to records r and heads h. */
#define ROOM(r, h, dr, dh) \
	(LESS(r, dr) <= RECORDS && LESS(h, dh) <= HEADS)

/* room_now: by the copy, else by a look at host memory, one at a time. */
inline room_now(r, h, room)
{
	if
	:: ROOM(r, h, seen_records, seen_heads) -> room = 1
	:: !ROOM(r, h, seen_records, seen_heads) && asking -> room = 0
	:: atomic {
		!ROOM(r, h, seen_records, seen_heads) && !asking ->
		asking = 1
	   };
	   d_step { dr = done_records; dh = done_heads };
	   d_step { seen_records = dr; seen_heads = dh };
	   asking = 0;
	   room = ROOM(r, h, dr, dh);
	   dr = 0;
	   dh = 0
	fi
}

/* A look that would find the same as the last one changes nothing. */
#define WAITING                                                     \
	(ROOM((r + lanes) % WRAP, (h + 1) % WRAP, seen_records,     \
	      seen_heads) ||                                        \
	 (!asking && (seen_heads != done_heads ||                   \
		      seen_records != done_records)))

inline take(n)
{
	order[tail_heads] = me + 1;
	tail_records = (tail_records + n) % WRAP;
	tail_heads = (tail_heads + 1) % WRAP
}

proctype caller(byte me)
{
	byte n, lanes, r, h, k, dr, dh;
	bit room;

	do
	:: n < POSTS ->
		if
		:: lanes = 1
		:: lanes = 2
		fi;
#if TRY
		/* try_reserve: compare and swap, only where there is room. */
		attempts++;
		d_step { r = tail_records; h = tail_heads };
again:		room_now((r + lanes) % WRAP, (h + 1) % WRAP, room);
		if
		:: !room ->
#if DEFECT != 5
			dropped++;
#endif
			goto next
		:: else
		fi;
		if
#if DEFECT == 6
		/* The room that was found is taken for that of a later tail. */
		:: atomic { true ->
			r = tail_records; h = tail_heads; take(lanes) }
#else
		:: atomic { r == tail_records && h == tail_heads ->
			take(lanes) }
		:: atomic { r != tail_records || h != tail_heads ->
			r = tail_records; h = tail_heads };
			goto again
#endif
		fi;
#else
		/* reserve: one addition, then wait for room. */
#if DEFECT == 4
		d_step { h = tail_heads; order[h] = me + 1;
			 tail_heads = (tail_heads + 1) % WRAP };
		d_step { r = tail_records;
			 tail_records = (tail_records + lanes) % WRAP };
#else
		d_step { r = tail_records; h = tail_heads; take(lanes) };
#endif
		do
		:: WAITING ->
			room_now((r + lanes) % WRAP, (h + 1) % WRAP, room);
			if
			:: room -> break
			:: else
			fi
#if DEFECT != 7
		:: aborted -> goto out /* a gap stays in the ring */
#endif
		od;
#endif
		/* The records, the head but for its last word. */
		atomic {
			k = 0;
			do
			:: k < lanes ->
				assert(!rp[me * RECORDS + (r + k) % RECORDS]);
				rp[me * RECORDS + (r + k) % RECORDS] =
					ID(me, n);
				k++
			:: else -> break
			od;
			k = 0;
			hp[me * HEADS + h % HEADS] = ID(me, n);
			hl[me * HEADS + h % HEADS] = lanes
		};
#if DEFECT != 1
		/* publish: sync, fence_system, */
		atomic {
			k = me * RECORDS;
			do
			:: k < (me + 1) * RECORDS -> !rp[k]; k++
			:: else -> break
			od;
			k = 0
		};
		!hp[me * HEADS + h % HEADS];
#endif
		/* store_last */
		atomic { !lp[me * HEADS + h % HEADS] ->
			 lp[me * HEADS + h % HEADS] = LAP(h);
			 sent[me]++ };
next:		atomic { n++; r = 0; h = 0; lanes = 0; room = 0 }
	:: else -> break
	od;
out:	atomic { n = 0; r = 0; h = 0; lanes = 0; room = 0; ended++ }
}

#if DEFECT == 3
#define COUNTS (lap[next_heads % HEADS])
#else
#define COUNTS (lap[next_heads % HEADS] == LAP(next_heads))
#endif

/* The kernel's end: all that it stored has arrived. */
#define QUIET                                                              \
	(!lp[0] && !lp[1] && !lp[2] && !lp[3] && !hp[0] && !hp[1] &&       \
	 !hp[2] && !hp[3])

/* posts_serve, and last_posts after the kernel's end. */
active proctype server()
{
	byte next_records, next_heads, id, lanes, k;

	run caller(0);
#if CALLERS > 1
	run caller(1);
#endif
	do
	:: COUNTS && !gone ->
		/* look: what the head says. */
		d_step {
			id = head_id[next_heads % HEADS];
			lanes = head_lanes[next_heads % HEADS]
		};
		assert(id && lanes);
		/* In the order of the tail, and nobody's twice. */
		assert(order[next_heads] == (id - 1) / 16 + 1);
#if DEFECT == 2
		/* The room is given before the handler returns. */
		d_step {
			done_records = (next_records + lanes) % WRAP;
			done_heads = (next_heads + 1) % WRAP
		};
#endif
		/* The handler, which reads the records. */
		k = 0;
		do
		:: k < lanes ->
			assert(record[(next_records + k) % RECORDS] == id);
			k++
		:: else -> break
		od;
		atomic {
			/* A caller's posts come in its order; without
			   try_post, none is left out. */
			assert((id - 1) % 16 >= got[(id - 1) / 16]);
			assert(TRY || (id - 1) % 16 == got[(id - 1) / 16]);
			got[(id - 1) / 16] = (id - 1) % 16 + 1;
			next_records = (next_records + lanes) % WRAP;
			next_heads = (next_heads + 1) % WRAP;
			handled++;
			k = 0
		};
		/* give_room */
		d_step {
			done_records = next_records;
			done_heads = next_heads;
			id = 0;
			lanes = 0
		}
	:: gone -> break
	:: ended == CALLERS && QUIET && !COUNTS -> break
	od;
	ended == CALLERS;
	/* None is lost; what did not fit was counted. */
	if
	:: !aborted ->
		assert(handled == sent[0] + sent[1]);
		assert(!TRY || sent[0] + sent[1] + dropped == attempts);
		assert(TRY || handled == CALLERS * POSTS)
	:: else
	fi
}
#if ABORT
active proctype giving_up()
{
	if
	:: aborted = 1;
		if
		:: gone = 1
		:: skip
		fi
	:: skip
	fi
}
#endif
