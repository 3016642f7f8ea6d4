package dispatch_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// overlapping is a house with one schedule that is triggered by hand, so that a test says when ticks overlap.
func overlapping(t *testing.T, overlap string) *house {
	t.Helper()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("overlap", "k", schedules.Params{
		Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}, Policy: &policy.Policy{Overlap: overlap},
	})
	return h
}

func (h *house) trigger() {
	h.t.Helper()
	if _, _, err := h.dispatch.Control.Trigger(h.t.Context(), h.tenant, "overlap", "k", control.TriggerParams{}, once.Request{}); err != nil {
		h.t.Fatal(err)
	}
}

// states are the states and reasons of the ticks, in the order in which they were made.
func (h *house) states() []string {
	h.t.Helper()
	var all []string
	for _, one := range h.history("overlap", "k") {
		if one.Reason != "" {
			one.State += " " + one.Reason
		}
		all = append(all, one.State)
	}
	return all
}

func (h *house) finish(one handed) lease.Verdict {
	h.t.Helper()
	r, err := h.dispatch.Leases.Finish(h.t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}})
	if err != nil {
		h.t.Fatal(err)
	}
	return r[0]
}

func (h *house) wantStates(want ...string) {
	h.t.Helper()
	got := h.states()
	if len(got) != len(want) {
		h.t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			h.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestBufferOneKeepsTheFirstThatOverlaps(t *testing.T) {
	t.Parallel()
	h := overlapping(t, "buffer_one")
	h.trigger()
	h.trigger()
	h.trigger()
	h.wantStates("running", "scheduled", "skipped overlap")
	if verdict := h.finish(h.lease("overlap", 1)[0]); verdict != lease.Done {
		t.Fatalf("finish: %d", verdict)
	}
	h.wantStates("succeeded", "running", "skipped overlap")
	h.finish(h.lease("overlap", 1)[0])
	h.wantStates("succeeded", "succeeded", "skipped overlap")
	h.trigger()
	h.wantStates("succeeded", "succeeded", "skipped overlap", "running")
}

func TestBufferAllRunsEachInItsTurn(t *testing.T) {
	t.Parallel()
	h := overlapping(t, "buffer_all")
	for range 3 {
		h.trigger()
	}
	h.wantStates("running", "scheduled", "scheduled")
	for i := range 3 {
		ticks := h.lease("overlap", 10)
		if len(ticks) != 1 {
			t.Fatalf("turn %d: leased %d ticks", i, len(ticks))
		}
		h.finish(ticks[0])
	}
	h.wantStates("succeeded", "succeeded", "succeeded")
	s, err := h.schedules.Get(t.Context(), h.tenant, "overlap", "k")
	if err != nil || s.Stats.Fired != 3 || s.Stats.Succeeded != 3 {
		t.Errorf("got %+v, %v", s.Stats, err)
	}
}

func TestCancelOtherStopsTheRunningOneForTheNewest(t *testing.T) {
	t.Parallel()
	h := overlapping(t, "cancel_other")
	h.trigger()
	running := h.lease("overlap", 1)[0]
	h.trigger()
	h.trigger()
	h.wantStates("running superseded", "skipped superseded", "scheduled")
	beat, err := h.dispatch.Leases.Beat(t.Context(), h.tenant, []lease.Beat{{TickID: running.TickID, LeaseToken: running.LeaseToken}})
	if err != nil || beat[0].Verdict != lease.ToldToStop {
		t.Fatalf("its heartbeat: got %+v, %v", beat, err)
	}
	h.finish(running)
	h.wantStates("cancelled superseded", "skipped superseded", "running")
	h.finish(h.lease("overlap", 1)[0])
	h.wantStates("cancelled superseded", "skipped superseded", "succeeded")
}

// Who ends a tick locks it before the state of its schedule, who supersedes it after: of the two that wait for one another
// PostgreSQL ends one, and a client's is no error.
func TestATriggerThatLosesADeadlockTriesAgain(t *testing.T) {
	t.Parallel()
	h, ctx := overlapping(t, "cancel_other"), t.Context()
	h.trigger()
	h.lease("overlap", 1)
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()                                                                     // it may be over
	if _, err := tx.Exec(ctx, `SET LOCAL deadlock_timeout = '5min'; SELECT FROM tick FOR UPDATE`); err != nil { // the other looks for a deadlock first
		t.Fatal(err)
	}
	triggered := make(chan error, 1)
	go func() {
		_, _, err := h.dispatch.Control.Trigger(ctx, h.tenant, "overlap", "k", control.TriggerParams{}, once.Request{})
		triggered <- err
	}()
	until(t, "the trigger waits for the tick", func() bool {
		return h.number(`
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE tick%'`) > 0
	})
	if _, err := tx.Exec(ctx, `SELECT FROM schedule_state FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-triggered; err != nil {
		t.Fatal(err)
	}
	h.wantStates("running superseded", "scheduled")
}

func TestCancelOtherNeedsNoWorkerToHaveStarted(t *testing.T) {
	t.Parallel()
	h := overlapping(t, "cancel_other")
	h.trigger()
	until(t, "it waits for a worker", func() bool { return h.number(`SELECT count(*) FROM ready`) == 1 })
	h.trigger()
	h.finish(h.lease("overlap", 1)[0])
	h.wantStates("cancelled superseded", "succeeded")
}

func TestBufferedTickIsOfTheSequenceOnceItIsHandedOut(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	p := everySecond()
	p.Policy = &policy.Policy{Overlap: "buffer_all"}
	h.put("sequence", "k", p)
	var got []handed
	first := h.lease("sequence", 1)[0]
	until(t, "two wait", func() bool { return h.number(`SELECT waiting FROM schedule_state`) >= 2 })
	h.finish(first)
	got = append(got, first)
	for range 2 {
		one := h.lease("sequence", 1)[0]
		if one.Cause != "buffered" {
			t.Errorf("cause %s", one.Cause)
		}
		h.finish(one)
		got = append(got, one)
	}
	checkSequence(t, got)
	if late := got[2].FiredAt.Sub(got[2].Timestamp); late > time.Minute {
		t.Errorf("fired %s late", late)
	}
}

func TestWaitingTickOfADeletedScheduleIsCancelled(t *testing.T) {
	t.Parallel()
	h := overlapping(t, "buffer_all")
	h.trigger()
	h.trigger()
	if err := h.schedules.Delete(t.Context(), h.tenant, "overlap", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is cancelled", func() bool { return h.states()[1] == "cancelled" })
}
