package finish_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestBufferOneKeepsTheFirstThatOverlaps(t *testing.T) {
	t.Parallel()
	h := dispatchtest.Overlapping(t, "buffer_one")
	h.Trigger()
	h.Trigger()
	h.Trigger()
	h.WantStates("running", "scheduled", "skipped overlap")
	if verdict := h.Finish(h.Lease("overlap", 1)[0]); verdict != lease.Done {
		t.Fatalf("finish: %d", verdict)
	}
	h.WantStates("succeeded", "running", "skipped overlap")
	h.Finish(h.Lease("overlap", 1)[0])
	h.WantStates("succeeded", "succeeded", "skipped overlap")
	h.Trigger()
	h.WantStates("succeeded", "succeeded", "skipped overlap", "running")
}

func TestBufferAllRunsEachInItsTurn(t *testing.T) {
	t.Parallel()
	h := dispatchtest.Overlapping(t, "buffer_all")
	for range 3 {
		h.Trigger()
	}
	h.WantStates("running", "scheduled", "scheduled")
	for i := range 3 {
		ticks := h.Lease("overlap", 10)
		if len(ticks) != 1 {
			t.Fatalf("turn %d: leased %d ticks", i, len(ticks))
		}
		h.Finish(ticks[0])
	}
	h.WantStates("succeeded", "succeeded", "succeeded")
	s, err := h.Schedules.Get(t.Context(), h.Tenant, "overlap", "k")
	if err != nil || s.Stats.Fired != 3 || s.Stats.Succeeded != 3 {
		t.Errorf("got %+v, %v", s.Stats, err)
	}
}

func TestCancelOtherStopsTheRunningOneForTheNewest(t *testing.T) {
	t.Parallel()
	h := dispatchtest.Overlapping(t, "cancel_other")
	h.Trigger()
	running := h.Lease("overlap", 1)[0]
	h.Trigger()
	h.Trigger()
	h.WantStates("running superseded", "skipped superseded", "scheduled")
	beat, err := h.Dispatch.Leases.Beat(t.Context(), h.Tenant, []lease.Beat{{TickID: running.TickID, LeaseToken: running.LeaseToken}})
	if err != nil || beat[0].Verdict != lease.ToldToStop {
		t.Fatalf("its heartbeat: got %+v, %v", beat, err)
	}
	h.Finish(running)
	h.WantStates("cancelled superseded", "skipped superseded", "running")
	h.Finish(h.Lease("overlap", 1)[0])
	h.WantStates("cancelled superseded", "skipped superseded", "succeeded")
}

// A transaction that ends a tick locks the tick before the state of its schedule; one that supersedes it locks the state first. If the two
// deadlock, PostgreSQL ends one of them. If that is a client's trigger, it is tried again, and the client gets no error.
func TestATriggerThatLosesADeadlockTriesAgain(t *testing.T) {
	t.Parallel()
	h := dispatchtest.Overlapping(t, "cancel_other")
	h.Trigger()
	h.Lease("overlap", 1)
	for try := 1; triggerLosesADeadlock(h); try++ { // it took longer than a trigger may
		if try == 5 {
			t.Fatal("no trigger was in time")
		}
	}
	h.WantStates("running superseded", "scheduled")
}

// triggerLosesADeadlock triggers the schedule while a transaction deadlocks with that, and tells whether the trigger took too long.
func triggerLosesADeadlock(h *dispatchtest.Carillon) (again bool) {
	h.T.Helper()
	ctx := h.T.Context()
	tx, err := h.Pool.Begin(ctx)
	if err != nil {
		h.T.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()                                                                     // it may be over
	if _, err := tx.Exec(ctx, `SET LOCAL deadlock_timeout = '5min'; SELECT FROM tick FOR UPDATE`); err != nil { // the other transaction detects the deadlock first, and is ended
		h.T.Fatal(err)
	}
	triggered := make(chan error, 1)
	go func() {
		_, _, err := h.Dispatch.Control.Trigger(ctx, h.Tenant, "overlap", "k", control.TriggerParams{}, once.Request{})
		triggered <- err
	}()
	dispatchtest.Until(h.T, "the trigger waits for the tick", func() bool {
		return len(triggered) > 0 || h.Number(`
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE tick%'`) > 0
	})
	if _, err := tx.Exec(ctx, `SELECT FROM schedule_state FOR UPDATE`); err != nil {
		h.T.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		h.T.Fatal(err)
	}
	err = <-triggered
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		h.T.Fatal(err)
	}
	return err != nil
}

func TestCancelOtherNeedsNoWorkerToHaveStarted(t *testing.T) {
	t.Parallel()
	h := dispatchtest.Overlapping(t, "cancel_other")
	h.Trigger()
	dispatchtest.Until(t, "it waits for a worker", func() bool { return h.Number(`SELECT count(*) FROM ready`) == 1 })
	h.Trigger()
	h.Finish(h.Lease("overlap", 1)[0])
	h.WantStates("cancelled superseded", "succeeded")
}

func TestBufferedTickIsOfTheSequenceOnceItIsHandedOut(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("sequence", "k", dispatchtest.EverySecondInOrder())
	var got []dispatchtest.Handed
	first := h.Lease("sequence", 1)[0]
	dispatchtest.Until(t, "two wait", func() bool { return h.Number(`SELECT buffered FROM schedule_state`) >= 2 })
	h.Finish(first)
	got = append(got, first)
	for range 2 {
		one := h.Lease("sequence", 1)[0]
		if one.Cause != "buffered" {
			t.Errorf("cause %s", one.Cause)
		}
		h.Finish(one)
		got = append(got, one)
	}
	dispatchtest.CheckSequence(t, got)
	if late := got[2].FiredAt.Sub(got[2].Timestamp); late > time.Minute {
		t.Errorf("fired %s late", late)
	}
}

func TestWaitingTickOfADeletedScheduleIsCancelled(t *testing.T) {
	t.Parallel()
	h := dispatchtest.Overlapping(t, "buffer_all")
	h.Trigger()
	h.Trigger()
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "overlap", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "it is cancelled", func() bool { return h.States()[1] == "cancelled" })
}

// A transaction reads the clock, and then waits to end a tick. Meanwhile the next tick of the schedule becomes due and is buffered. The
// transaction releases that tick, but does not hand it out before its nominal time.
func TestAReleasedTickIsNotBeforeItsTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("overlap", "k", schedules.Params{
		Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: "2s"}}}, Policy: &policy.Policy{Overlap: "buffer_all"},
	})
	first := h.Lease("overlap", 1)[0]
	for endSlowly(h, first) { // the machine was too slow for the end of a tick
	}
	for _, one := range h.History("overlap", "k") {
		if one.FiredAt.Before(one.Timestamp) {
			t.Errorf("the tick of %s was handed out at %s", one.Timestamp, one.FiredAt)
		}
	}
}

// endSlowly ends a tick while its row is locked until another one waits, and tells whether that took too long.
func endSlowly(h *dispatchtest.Carillon, one dispatchtest.Handed) (again bool) {
	h.T.Helper()
	ctx := h.T.Context()
	tx, err := h.Pool.Begin(ctx)
	if err != nil {
		h.T.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // it may be over
	if _, err := tx.Exec(ctx, `SELECT FROM tick FOR UPDATE`); err != nil {
		h.T.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := h.Dispatch.Leases.Finish(ctx, h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}})
		ended <- err
	}()
	dispatchtest.Until(h.T, "the end of the tick and another tick wait", func() bool {
		return len(ended) > 0 || h.Number(`SELECT count(*) FROM buffered`) > 0 && h.Number(`
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE tick%'`) > 0
	})
	if err := tx.Rollback(ctx); err != nil {
		h.T.Fatal(err)
	}
	err = <-ended
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		h.T.Fatal(err)
	}
	return err != nil
}
