/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mailbox: lock, fill, publish fn, serve, answer, read it, unlock; a
 * launch that is given up, or handed over while its handler runs.  What is
 * modelled, and which line of code each step stands for: docs/model.md.
 *
 * Stores wait and arrive when they like (dp of each caller, hp of the host);
 * a release store arrives after all that its side stored before it.
 *
 * -DDEFECT=n takes one rule away; see the list in tools/model.py.
 */
#ifndef DEFECT
#define DEFECT 0
#endif
#ifndef CALLS
#define CALLS 2 /* of each of two callers */
#endif
#ifndef IMAGES
#define IMAGES 1 /* 2: each caller's image and server thread are its own */
#endif
#ifndef HANDOVER
#define HANDOVER 0 /* 1: image 0 may be given up, and handed over */
#endif

/* Places in the mailbox. */
#define FN	0 /* the flag: 0, or 1 + image */
#define WORDS	1 /* mapnum, addrs, sizes; the host's answer */
#define PACKET	2 /* lists and data, there and back */
#define PLACES	3

#define ID(me, call) ((me) * CALLS + (call) + 1)
#define MARK	     16 /* in an answer */
#define ABORTED	     15
#define IMAGE(me)    ((me) % IMAGES)

byte mailbox[PLACES];
bit dp[2 * PLACES];
byte dv[2 * PLACES];
bit hp[PLACES];
byte hv[PLACES];

bit lock; /* device memory */

bit aborted[IMAGES], leave[IMAGES];
byte deserted;
bit left; /* of image 0's launch */
bit in_wait[IMAGES] = 1, in_handler[IMAGES];
bit orphan;
byte ended;
#define LEFT(image) ((image) == 0 && left)

byte open_call; /* identity, for the properties */
byte told[2 * CALLS + 1];
bit called[2 * CALLS + 1];

#define D(me, place) ((me) * PLACES + (place))

/* Released: fn arrives after what the same side stored before. */
#if DEFECT == 1
#define DEVICE_FN(me) 1
#else
#define DEVICE_FN(me) (!dp[D(me, WORDS)] && !dp[D(me, PACKET)])
#endif
#if DEFECT == 2
#define HOST_FN 1
#else
#define HOST_FN (!hp[WORDS] && !hp[PACKET])
#endif

#define ARRIVE(me, place)                        \
	d_step {                                 \
		dp[D(me, place)] ->              \
		mailbox[place] = dv[D(me, place)]; \
		dp[D(me, place)] = 0;            \
		dv[D(me, place)] = 0             \
	}
#define ARRIVE_FN(me)                            \
	d_step {                                 \
		dp[D(me, FN)] && DEVICE_FN(me) -> \
		mailbox[FN] = dv[D(me, FN)];     \
		dp[D(me, FN)] = 0;               \
		dv[D(me, FN)] = 0                \
	}
#define COME_BACK(place)                         \
	d_step {                                 \
		hp[place] ->                     \
		mailbox[place] = hv[place];      \
		hp[place] = 0;                   \
		hv[place] = 0                    \
	}

active proctype bus()
{
end:	do
	:: ARRIVE_FN(0)
	:: ARRIVE(0, WORDS)
	:: ARRIVE(0, PACKET)
	:: ARRIVE_FN(1)
	:: ARRIVE(1, WORDS)
	:: ARRIVE(1, PACKET)
	:: d_step {
		hp[FN] && HOST_FN ->
		mailbox[FN] = hv[FN];
		hp[FN] = 0;
		hv[FN] = 0
	   }
	:: COME_BACK(WORDS)
	:: COME_BACK(PACKET)
	od
}

/* ---- device --------------------------------------------------------------- */

#define NONE_LEFT(me) \
	(!dp[D(me, FN)] && !dp[D(me, WORDS)] && !dp[D(me, PACKET)])
#define STORE(me, place, value)         \
	d_step {                        \
		!dp[D(me, place)] ->    \
		dp[D(me, place)] = 1;   \
		dv[D(me, place)] = value \
	}
/* A warp sees its own stores at once. */
#define LOAD(me, place) \
	(dp[D(me, place)] -> dv[D(me, place)] : mailbox[place])

active [2] proctype caller()
{
	byte me = _pid - 1;
	byte call, words, packet;

	do
	:: call < CALLS ->
		/* acquire, wait_for_lock */
		if
		:: atomic { !lock -> lock = 1 }
#if DEFECT != 5
		:: aborted[IMAGE(me)] -> goto next
#endif
		fi;
		/* fill */
		STORE(me, PACKET, ID(me, call));
		STORE(me, WORDS, ID(me, call));
		/* exchange */
		d_step {
			open_call = ID(me, call);
			dp[D(me, FN)] = 1;
			dv[D(me, FN)] = 1 + IMAGE(me)
		};
		do
		:: true ->
			/* look: the words may be read before fn is. */
			words = LOAD(me, WORDS);
			if
			:: LOAD(me, FN) == 0 -> break
			:: LOAD(me, FN) != 0 && leave[IMAGE(me)] ->
				if
				:: LOAD(me, FN) == 0
				:: LOAD(me, FN) != 0 ->
#if DEFECT != 10
					/* fence_system: none is late. */
					NONE_LEFT(me);
#endif
					deserted++;
#if DEFECT == 8
					lock = 0;
#endif
					goto next
				fi
			fi
		od;
#if DEFECT == 3
		lock = 0;
#endif
#if DEFECT != 6
		if
		:: words < MARK -> words = LOAD(me, WORDS)
		:: else
		fi;
#endif
		packet = LOAD(me, PACKET);
		/* Its own answer, or that the launch was given up. */
		assert(words == MARK + ID(me, call) ||
		       (aborted[IMAGE(me)] && words == MARK + ABORTED));
		assert(packet == MARK + ID(me, call) ||
		       words == MARK + ABORTED);
#if DEFECT != 3
		lock = 0;
#endif
		/* A kernel need not end because it was given up. */
next:		atomic { words = 0; packet = 0; call++ }
	:: else -> break
	od;
	atomic { call = 0; ended++ }
}

/* ---- host ----------------------------------------------------------------- */

/* The host's own stores are the host's to see at once. */
#define SEEN(place) (hp[place] -> hv[place] : mailbox[place])

/* mailbox_answer: the words, then fn. */
inline answer(id)
{
	d_step {
		told[open_call]++;
		assert(told[open_call] == 1);
		assert(id == open_call || id == ABORTED);
		hp[PACKET] = (id != ABORTED);
		hv[PACKET] = (id != ABORTED -> MARK + id : 0);
		hp[WORDS] = 1;
		hv[WORDS] = MARK + id;
		hp[FN] = 1;
		hv[FN] = 0
	}
}

/*
 * mailbox_peek finds the flag; mailbox_fetch reads the rest after that.
 * Nothing else may be in the way while the call is open.
 */
#define FOUND(image) (SEEN(FN) == (image) + 1)

active [IMAGES] proctype server()
{
	byte image = _pid - 3;
	byte id, packet;

	do
#if DEFECT == 7
	/* One copy of it all: the words may be older than the flag. */
	:: true ->
		id = SEEN(WORDS);
		packet = SEEN(PACKET);
		if
		:: FOUND(image) && !LEFT(image)
		:: ended == 2 || LEFT(image) -> break
		fi;
#else
	:: FOUND(image) && !LEFT(image) ->
		id = SEEN(WORDS);
		packet = SEEN(PACKET);
#endif
		assert(id == open_call && packet == open_call);
		if
		:: !aborted[image] ->
			atomic {
				assert(!called[id]);
				called[id] = 1;
#if HANDOVER
				/* enter_handler */
				in_handler[image] = 1
#endif
			};
#if HANDOVER
			if
			:: skip
			:: LEFT(image) /* returns some time after */
#if IMAGES == 1
			:: LEFT(image) -> goto stuck /* never returns */
#endif
			fi;
			/* leave_handler */
			atomic {
				in_handler[image] = 0;
				if
				:: LEFT(image) -> goto out
				:: else
				fi
			}
#endif
		:: aborted[image] -> id = ABORTED
		fi;
		answer(id);
		d_step { id = 0; packet = 0 }
	:: LEFT(image) -> break
	:: ended == 2 -> break
#if HANDOVER
	/* The wait's time is up, then finish(). */
	:: image == 0 && aborted[0] -> break
#endif
	od;
out:	in_wait[image] = 0;
stuck:	skip
}

#if HANDOVER
/* revoff_launch_abort, launch_hand_over: image 0's only. */
active proctype giving_up()
{
	if
	:: aborted[0] = 1;
		left = in_wait[0];
		if
		:: left -> leave[0] = 1
		:: else
		fi;
		orphan = 1
	:: ended == 2
	fi
}

/* reap_one waits until the thread that served is out of the way. */
#if DEFECT == 4
#define BACK 1
#else
#define BACK (!in_wait[0])
#endif
active proctype reaper()
{
	bit gone;

	orphan || ended == 2;
	do
	:: left && (deserted || ended == 2) && BACK ->
		gone = deserted > 0;
#if DEFECT != 9
		leave[0] = 0;
#endif
		/* mailbox_reset: the flag, then the lock. */
		if
		:: gone ->
			d_step {
				hp[WORDS] = 1;
				hv[WORDS] = MARK + ABORTED;
				hp[FN] = 1;
				hv[FN] = 0
			};
			!hp[WORDS] && !hp[FN];
			lock = 0
		:: else
		fi;
#if DEFECT == 9
		leave[0] = 0;
#endif
		left = 0
	:: orphan && !left && !in_wait[0] && FOUND(0) ->
		answer(ABORTED)
	:: ended == 2 && !left -> break
	:: ended == 2 && in_wait[0] -> break /* its handler never returns */
	od
}
#endif
