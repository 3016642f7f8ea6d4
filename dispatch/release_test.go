package dispatch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// A tick that comes to wait while another is being ended, by a transaction that read the clock before that, is not handed out
// before its time.
func TestAReleasedTickIsNotBeforeItsTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("overlap", "k", schedules.Params{
		Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: "2s"}}}, Policy: &policy.Policy{Overlap: "buffer_all"},
	})
	first := h.lease("overlap", 1)[0]
	for h.endSlowly(first) { // the machine was too slow for the end of a tick
	}
	for _, one := range h.history("overlap", "k") {
		if one.FiredAt.Before(one.Timestamp) {
			t.Errorf("the tick of %s was handed out at %s", one.Timestamp, one.FiredAt)
		}
	}
}

// endSlowly ends a tick while its row is locked until another one waits, and tells whether that took too long.
func (h *house) endSlowly(one handed) (again bool) {
	h.t.Helper()
	ctx := h.t.Context()
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // it may be over
	if _, err := tx.Exec(ctx, `SELECT FROM tick FOR UPDATE`); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := h.dispatch.Leases.Finish(ctx, h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}})
		ended <- err
	}()
	until(h.t, "the end of the tick and another tick wait", func() bool {
		return len(ended) > 0 || h.number(`SELECT count(*) FROM buffered`) > 0 && h.number(`
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE tick%'`) > 0
	})
	if err := tx.Rollback(ctx); err != nil {
		h.t.Fatal(err)
	}
	err = <-ended
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		h.t.Fatal(err)
	}
	return err != nil
}
