/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ports transport: claim, ask, take up, answer, release; frames in slots;
 * numbers that run out; a launch that is given up or handed over.  What is
 * modelled, and which line of code each step stands for: docs/model.md.
 *
 * The memory between device and host is weak.  A store of the device waits in
 * the store buffer of its warp (dp) and arrives when it likes, in any order;
 * so do the host's stores of replies (hp).  A fence waits for what its own
 * warp has stored.  Only stores to the same place by the same side stay in
 * order.
 *
 * -DDEFECT=n takes one rule away; see the list in tools/model.py.
 */
#ifndef DEFECT
#define DEFECT 0
#endif
#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef CALLS
#define CALLS 2 /* of each caller, in each launch */
#endif
#ifndef PORTS
#define PORTS 2
#endif
#ifndef LANES
#define LANES 1 /* of a caller; it calls with 1 .. LANES of them */
#endif
#ifndef PARTS
#define PARTS 1 /* 2: each half of a unit is a store of its own */
#endif
#ifndef LAUNCHES
#define LAUNCHES 1
#endif
#ifndef LAST
#define LAST 7 /* REVOFF_SEQ_LAST */
#endif
#ifndef FRAMES
#define FRAMES 0 /* 1: a frame in a slot goes with each call */
#endif
#ifndef ABORT
#define ABORT 0 /* 1: may be given up at any time; 2: will be */
#endif
#ifndef HANDOVER
#define HANDOVER 0 /* 1: may be handed over, its handler may never return */
#endif

/* Cells of a request: the head, then each lane's words; and the bell. */
#define CELLS	    (PARTS * (1 + LANES))
#define BELL	    CELLS
#define STORES	    (CELLS + 1)
#define AT(p, c)    ((p) * STORES + (c))
#define ANSWERS	    (PARTS * LANES)
#define REPLY(p, c) ((p) * ANSWERS + (c))

/* A cell: number, lanes or data.  A call's data is its own identity. */
#define CELL(number, data) ((number) * 16 + (data))
#define NUMBER(cell)	   ((cell) / 16)
#define DATA(cell)	   ((cell) % 16)
#define ID(me, call)	   ((me) * CALLS + (call) + 1)
#define ABORTED		   15 /* as an answer's data */

/* What the host sees, and what is on its way there. */
byte request[PORTS * STORES];
bit dp[CALLERS * PORTS * STORES];
byte dv[CALLERS * PORTS * STORES];
#define D(me, p, c) ((me) * PORTS * STORES + AT(p, c))

/* What the device sees, and what the host has stored. */
byte reply[PORTS * ANSWERS];
byte stored[PORTS * ANSWERS];
bit hp[PORTS * ANSWERS];

/* Device memory: one coherent place for all warps. */
byte state_number[PORTS];
bit state_taken[PORTS];

#if FRAMES
/* One slot for all: frame is the host's view, frame_d the device's. */
bit slot_taken;
byte frame, frame_d, frame_v, frame_h;
bit frame_dp, frame_hp;
#endif

/* The host's own. */
byte answered[PORTS];
byte seen[PORTS];
bit dirty;
#if DEFECT == 5
bit hot[PORTS];
#endif
bit look[PORTS]; /* something has changed since the last look there */

bit aborted;
bit serving, in_handler, left, in_wait = 1, stuck;
byte launch;
byte ended; /* callers, in this launch */

/* For the properties only. */
byte asked[PORTS];		  /* identity of the open call */
byte told[CALLERS * CALLS * LANES]; /* answers, of each lane */
bit called[CALLERS * CALLS];	  /* by the handler */

/* A store of a warp; one to the same place before it has to go first. */
inline store(me, p, c, v)
{
	if
	:: dp[D(me, p, c)] ->
		request[AT(p, c)] = dv[D(me, p, c)];
		look[p] = 1
	:: else
	fi;
	dp[D(me, p, c)] = 1;
	dv[D(me, p, c)] = v
}

#define ARRIVE(me, p, c)                                 \
	d_step {                                         \
		dp[D(me, p, c)] ->                       \
		request[AT(p, c)] = dv[D(me, p, c)];     \
		dp[D(me, p, c)] = 0;                     \
		dv[D(me, p, c)] = 0;                     \
		look[p] = 1                              \
	}

#define COME_BACK(p, c)                                      \
	d_step {                                             \
		hp[REPLY(p, c)] && MAY_COME_BACK ->          \
		reply[REPLY(p, c)] = stored[REPLY(p, c)];    \
		hp[REPLY(p, c)] = 0                          \
	}

/* A release store: what was written into the frame comes first. */
#if FRAMES && DEFECT != 12
#define MAY_COME_BACK (!frame_hp)
#else
#define MAY_COME_BACK 1
#endif

#if STORES == 3
#define ARRIVALS(me, p) \
	:: ARRIVE(me, p, 0) \
	:: ARRIVE(me, p, 1) \
	:: ARRIVE(me, p, 2)
#elif STORES == 4
#define ARRIVALS(me, p) \
	:: ARRIVE(me, p, 0) \
	:: ARRIVE(me, p, 1) \
	:: ARRIVE(me, p, 2) \
	:: ARRIVE(me, p, 3)
#else
#define ARRIVALS(me, p) \
	:: ARRIVE(me, p, 0) \
	:: ARRIVE(me, p, 1) \
	:: ARRIVE(me, p, 2) \
	:: ARRIVE(me, p, 3) \
	:: ARRIVE(me, p, 4)
#endif

/* The bus: anything that is on its way may arrive now. */
active proctype bus()
{
end:	do
	ARRIVALS(0, 0)
#if CALLERS > 1
	ARRIVALS(1, 0)
#endif
#if PORTS > 1
	ARRIVALS(0, 1)
#if CALLERS > 1
	ARRIVALS(1, 1)
#endif
#endif
	:: COME_BACK(0, 0)
#if ANSWERS > 1
	:: COME_BACK(0, 1)
#endif
#if PORTS > 1
	:: COME_BACK(1, 0)
#if ANSWERS > 1
	:: COME_BACK(1, 1)
#endif
#endif
#if FRAMES
	:: d_step { frame_dp -> frame = frame_v; frame_dp = 0 }
	:: d_step { frame_hp -> frame_d = frame_h; frame_hp = 0 }
#endif
	od
}

/* ---- device --------------------------------------------------------------- */

#define HAS(p, c, n)                       \
	(NUMBER(reply[REPLY(p, c)]) == n)
/* glance::complete, for lane r. */
#if PARTS == 1
#define COMPLETE(p, r, n) HAS(p, r, n)
#elif DEFECT == 2
#define COMPLETE(p, r, n) HAS(p, (r) * 2, n)
#else
#define COMPLETE(p, r, n) (HAS(p, (r) * 2, n) && HAS(p, (r) * 2 + 1, n))
#endif

/* What lane r got is its own call's answer, or that it was given up. */
inline check_reply(p, r, id)
{
	c = 0;
	do
	:: c < PARTS ->
		assert(DATA(reply[REPLY(p, r * PARTS + c)]) == id ||
		       (aborted &&
			DATA(reply[REPLY(p, r * PARTS + c)]) == ABORTED));
		assert(DATA(reply[REPLY(p, r * PARTS + c)]) ==
		       DATA(reply[REPLY(p, r * PARTS)]));
		c++
	:: else -> break
	od;
	c = 0
}

/* The number is in every unit of a request. */
#if DEFECT == 1
#define WORD_NUMBER 0
#else
#define WORD_NUMBER n
#endif

inline release_port()
{
	d_step {
#if DEFECT == 4
		/* The numbers begin again. */
		state_number[p] = (n == LAST -> 0 : n);
#else
		state_number[p] = n;
#endif
		state_taken[p] = 0
	}
}

proctype caller(byte me)
{
	byte call, p, n, lanes, c, r;
	bit got;

	do
	:: call < CALLS ->
		/* find_port: one fetch_or at a time, from the own port on. */
		p = me % PORTS;
		got = 0;
		do
		:: !got ->
			if
			:: atomic {
				!state_taken[p] ->
				state_taken[p] = 1;
				if
				:: state_number[p] < LAST ->
					n = state_number[p] + 1;
					got = 1
				:: else -> p = (p + 1) % PORTS
				fi
			   }
			:: atomic {
				state_taken[p] && PORTS > 1 &&
				!state_taken[(p + 1) % PORTS] ->
				p = (p + 1) % PORTS
			   }
#if DEFECT != 10
			:: aborted -> goto out
#endif
			fi
		:: else -> break
		od;
		lanes = 1;
#if LANES > 1
		if
		:: lanes = 1
		:: lanes = 2
		fi;
#endif
#if FRAMES
		/* find_slot, then the frame, then the fence. */
		atomic { !slot_taken -> slot_taken = 1 };
		d_step { frame_v = ID(me, call); frame_dp = 1 };
#if DEFECT != 6
		!frame_dp;
#endif
#endif
		/* ask: words, head, bell; the order does not matter. */
		atomic {
			asked[p] = ID(me, call);
			r = 0;
			do
			:: r < lanes * PARTS ->
				store(me, p, PARTS + r,
				      CELL(WORD_NUMBER, ID(me, call)));
				r++
			:: else -> break
			od;
			r = 0;
			do
			:: r < PARTS ->
				store(me, p, r, CELL(n, lanes));
				r++
			:: else -> break
			od;
			store(me, p, BELL, n);
			r = 0
		};
		/* await: each lane its own. */
		do
		:: r < lanes ->
			atomic {
				COMPLETE(p, r, n) ->
				check_reply(p, r, ID(me, call));
				r++
			};
#if DEFECT == 3
			if
			:: r == 1 -> release_port()
			:: else
			fi
#endif
		:: else -> break
		od;
#if FRAMES
#if DEFECT == 7
		slot_taken = 0;
#endif
		/* After the fence: nothing of the frame is read before. */
		assert(frame_d == ID(me, call) || aborted);
#if DEFECT != 7
		slot_taken = 0;
#endif
#endif
#if DEFECT != 3
		release_port();
#endif
		atomic { lanes = 0; n = 0; p = 0; r = 0; call++ }
	:: else -> break
	od;
out:	atomic { call = 0; p = 0; n = 0; r = 0; lanes = 0; got = 0; ended++ }
}

/* ---- host ----------------------------------------------------------------- */

/* put_lane: the parts of a lane's answer, each a store of its own. */
inline put(p, r, n, data)
{
	c = 0;
	do
	:: c < PARTS ->
		stored[REPLY(p, r * PARTS + c)] = CELL(n, data);
		hp[REPLY(p, r * PARTS + c)] = 1;
		c++
	:: else -> break
	od;
	c = 0;
	told[(asked[p] - 1) * LANES + r]++;
	assert(told[(asked[p] - 1) * LANES + r] == 1)
}

/* settle: all lanes are answered. */
inline settle(p, n)
{
	answered[p] = n;
#if DEFECT == 5
	if
	:: hot[p] = 1
	:: hot[p] = 0
	fi;
#endif
#if DEFECT == 4
	if
	:: n == LAST -> answered[p] = 0
	:: else
	fi;
#endif
	look[p] = 1;
	if
	:: n >= LAST && DEFECT != 11 -> dirty = 1
	:: else
	fi
}

/* port_head: whole is the number of parts that carry the next number. */
inline head(p)
{
	n = answered[p] + 1;
	whole = 1;
	c = 0;
	do
	:: c < PARTS ->
		whole = whole && NUMBER(request[AT(p, c)]) == n;
		lanes = DATA(request[AT(p, c)]);
		c++
	:: else -> break
	od;
	c = 0
}

#define WAITS(p) (NUMBER(request[AT(p, 0)]) == answered[p] + 1 && \
		  seen[p] != answered[p] + 1)
#if DEFECT == 5
/* By its bell, or as one of those that called last; those change. */
#define FOUND(p) (request[AT(p, BELL)] != seen[p] || (hot[p] && WAITS(p)))
#else
/* By its bell, as one that called last, or by the turn of all heads. */
#define FOUND(p) WAITS(p)
#endif

/*
 * note, serve_port, serve_lanes.  The looks at the parts of a request are
 * apart, as things arrive meanwhile.
 */
active proctype server()
{
	byte p, n, lanes, r, c, data;
	bit whole;

	do
	:: atomic { !left && look[0] && FOUND(0) -> look[0] = 0; p = 0; serving = 1 };
		goto serve
#if PORTS > 1
	:: atomic { !left && look[1] && FOUND(1) -> look[1] = 0; p = 1; serving = 1 };
		goto serve
#endif
	:: left -> break
	:: launch == LAUNCHES -> break
	od;
	goto out;

serve:	atomic { head(p) };
	if
	:: !whole -> goto again
	:: else
	fi;
	r = 0;
	do
	:: r < lanes * PARTS ->
		/* port_words */
		d_step {
#if DEFECT != 1
			whole = whole &&
				NUMBER(request[AT(p, PARTS + r)]) == n;
#endif
			data = DATA(request[AT(p, PARTS + r)]);
			/* Torn, or of another call? */
			assert(!whole || data == asked[p]);
			r++
		}
	:: else -> break
	od;
	r = 0;
	if
	:: !whole -> goto again
	:: else
	fi;
	d_step {
		seen[p] = n;
#if FRAMES
		assert(frame == data);
#endif
		/* An answer per lane, but a call is handled as one here. */
		assert(!called[data - 1]);
		called[data - 1] = 1
	};
	do
	:: r < lanes ->
		if
		:: !aborted ->
			/* run_handler */
			atomic { in_handler = 1; data = asked[p] };
#if HANDOVER
			if
			:: skip
			:: left -> stuck = 1; goto out /* for ever in there */
			fi;
#endif
			atomic {
				in_handler = 0;
#if DEFECT != 9
				if
				:: left -> goto out
				:: else
				fi;
#endif
			}
		:: aborted -> data = ABORTED
		fi;
#if FRAMES
		d_step { frame_h = data; frame_hp = 1 };
#endif
		atomic { put(p, r, n, data); r++ }
	:: else -> break
	od;
	atomic { settle(p, n); r = 0; n = 0; data = 0; lanes = 0; whole = 0 };
again:	atomic { r = 0; n = 0; data = 0; lanes = 0; whole = 0; p = 0; serving = 0 };
	if
	:: left -> goto out
	:: launch == LAUNCHES -> goto out
	:: atomic { !left && look[0] && FOUND(0) -> look[0] = 0; p = 0; serving = 1 };
		goto serve
#if PORTS > 1
	:: atomic { !left && look[1] && FOUND(1) -> look[1] = 0; p = 1; serving = 1 };
		goto serve
#endif
	fi;
out:	atomic { in_wait = stuck; serving = 0 } /* wait_end, unless it never comes back */
}

#if HANDOVER
/* A look that finds nothing changes nothing: only one that finds counts. */
#define LOOK(p) (NUMBER(request[AT(p, 0)]) == answered[p] + 1 && \
		 NUMBER(request[AT(p, PARTS - 1)]) == answered[p] + 1)

inline abandon()
{
	head(p);
	if
	:: whole ->
		r = 0;
		do
		:: r < lanes ->
			if
			:: DEFECT == 8 ||
			   NUMBER(stored[REPLY(p, r * PARTS)]) != n ->
				put(p, r, n, ABORTED)
			:: else
			fi;
			r++
		:: else -> break
		od;
		seen[p] = n;
		settle(p, n)
	:: else
	fi;
	r = 0; n = 0; lanes = 0; whole = 0; p = 0
}
/* reap_one: ports_abandon, once the thread that served is out of the way. */
active proctype reaper()
{
	byte p, n, lanes, r, c;
	bit whole;

	if
	:: aborted -> left = in_wait
	:: launch == LAUNCHES -> goto out
	fi;
end:	do
	:: atomic { ((left && in_handler) || !in_wait) && LOOK(0) ->
		p = 0; abandon() }
#if PORTS > 1
	:: atomic { ((left && in_handler) || !in_wait) && LOOK(1) ->
		p = 1; abandon() }
#endif
	:: launch == LAUNCHES -> break
	od;
out:	skip
}
#endif

#if ABORT || HANDOVER
active proctype giving_up()
{
	if
	:: aborted = 1
#if ABORT < 2
	:: skip
#endif
	fi
}
#endif

inline clear()
{
	i = 0;
	do
	:: i < PORTS * STORES -> request[i] = 0; i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < PORTS * ANSWERS -> reply[i] = 0; stored[i] = 0; hp[i] = 0; i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < PORTS ->
		state_number[i] = 0; state_taken[i] = 0; answered[i] = 0;
		seen[i] = 0; look[i] = 0; i++
	:: else -> break
	od;
	dirty = 0
}

inline forget()
{
	i = 0;
	do
	:: i < CALLERS * CALLS -> called[i] = 0; i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < CALLERS * CALLS * LANES -> told[i] = 0; i++
	:: else -> break
	od;
	i = 0
}

/* The end of a kernel: all that it stored has arrived. */
inline flush()
{
	i = 0;
	do
	:: i < CALLERS * PORTS * STORES ->
		if
		:: dp[i] ->
			request[i % (PORTS * STORES)] = dv[i];
			dp[i] = 0;
			dv[i] = 0
		:: else
		fi;
		i++
	:: else -> break
	od
}

#ifdef LIVENESS
#define CLAIM 1 /* the property's own process */
#else
#define CLAIM 0
#endif
#define PROCESSES (3 + HANDOVER + (ABORT || HANDOVER) + CLAIM)

/* ports_begin, launch, and the end of the kernel. */
active proctype launcher()
{
	byte i;

	do
	:: launch < LAUNCHES ->
		atomic {
			if
			:: dirty -> clear()
			:: else
			fi;
			i = 0;
			do
			:: i < CALLERS -> run caller(i); i++
			:: else -> break
			od;
			i = 0
		};
		atomic {
			ended == CALLERS && !serving && _nr_pr <= PROCESSES ->
			ended = 0;
			flush();
			/* Every call was answered: each lane once. */
			forget();
			launch++
		}
	:: else -> break
	od
}
#ifdef LIVENESS
ltl ends { <> (launch == LAUNCHES) }
#endif
