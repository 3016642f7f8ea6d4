// Package state moves the counters of a schedule: the columns of schedule_state that say how many of its ticks run, wait and have
// ended. No other package writes these columns.
//
// A tick is the schedule's own, or runs aside: the ticks of a backfill and the ticks that are delivered again run aside. Four
// counters say what is under way, and each agrees with rows of the table tick:
//
//	live            own ticks that are running: handed out and not ended, also between two attempts
//	buffered        own ticks that are buffered: scheduled, with a row in the table buffered
//	aside           ticks that run aside
//	aside_buffered  ticks that will run aside and are buffered
//
// The transitions, with what each adds:
//
//	Decide, Trigger  a new tick. It is handed out (live +1, fired +1), buffered (buffered +1) or skipped (skipped +1). Decide adds
//	                 to missed the times that the tick stands for, Trigger adds 1 to manual.
//	NumberLater      a manual tick for later gets its number: manual +1
//	FireLater        its time has come: as Trigger, without the number
//	Release          an own buffered tick is handed out: buffered -1, live +1, fired +1
//	ReleaseAside     a tick aside is handed out: aside_buffered -1, aside +1, and fired +1 unless it was handed out before
//	Expire           an own buffered tick is too late: buffered -1, skipped +1
//	Supersede        newer ticks replace the own buffered ticks: buffered -n, skipped +n
//	Withdraw         a buffered tick is cancelled: buffered -1 or aside_buffered -1
//	End              running ticks end: live -n, aside -n, succeeded +n, failed +n. A success sets failures to 0, the number of
//	                 ticks that failed in a row.
//	Backfill         new ticks aside: aside +n, fired +n, aside_buffered +m
//	Revive           a failed tick is delivered again: failed -1, and aside +1 or aside_buffered +1
//
// An own tick that is handed out also moves the sequence: last_at and prev_at are the nominal times of the last timed tick and of the
// one before, and occurrence is its number. To keep the row narrow, a column that would repeat another is null:
// seen_at (the last timed tick that was recorded) and live_at with live_seq (the tick that was handed out last) then mean last_at,
// last_tick_at with last_seq (the tick that was recorded last) means seen_at.
//
// A schedule with fixed_delay has one timed tick at a time. SendDelayed notes in delay_at that it is on its way and takes it off
// delay_left, EndDelayed clears delay_at, EndDelays sets delay_left to 0. Package schedules writes these two columns too, when a
// schedule joins or leaves its cohort, and it alone writes skips and rezoned_at.
//
// Each transition locks the row of the schedule until its transaction ends. Transactions that move several schedules name them in
// rising order. A transaction that ends a tick locks the tick first and then the state; one that supersedes a tick locks the
// state first. Two of them can block each other: PostgreSQL ends one, and its caller tries again.
//
// A transition is part of the transaction that changes the rows of tick and buffered, so a crash leaves both or neither. The
// transitions that are part of a larger statement are SQL for the caller to embed, so that they cost no statement of their own.
package state
