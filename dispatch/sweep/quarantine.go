package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/jackc/pgx/v5"
)

// aside collects the due cohorts of a shard that a sweep does not serve. One of them never fails the sweep of the others.
type aside struct {
	log loop.Log

	broken []int64 // cannot be computed, and are quarantined
	early  []int64 // are put off
	until  []time.Time
	held   bool // some workflow is held
	rated  bool // some workflow has a rate
}

// leave adds a cohort that cannot be computed. It is put off if a newer program wrote it, and quarantined otherwise.
func (a *aside) leave(c *due, now time.Time, err error) {
	if !errors.Is(err, calendar.ErrNewerForm) {
		a.log.Error("a cohort cannot be computed and is quarantined", "cohort", c.ID, "tenant", c.TenantID, "error", err)
		a.broken = append(a.broken, c.ID)
		return
	}
	if a.log.Due("newer cohort", time.Now()) {
		a.log.Warn("cohorts that a newer program wrote are put off", "cohort", c.ID, "tenant", c.TenantID, "wait", record.NewerWait)
	}
	a.putOff(c, now.Add(record.NewerWait))
}

// putOff adds a cohort that the sweep leaves as it is until a moment.
func (a *aside) putOff(c *due, until time.Time) {
	a.early, a.until = append(a.early, c.ID), append(a.until, until)
}

// write quarantines the broken cohorts with their schedules, puts off the others, and empties the collection. The transaction holds the
// shard's lock.
func (a *aside) write(ctx context.Context, tx pgx.Tx, shard int16) error {
	var b pgx.Batch
	if len(a.broken) > 0 {
		b.Queue(`
			UPDATE cohort
			SET due_at = NULL, next_at = NULL, run_at = NULL, run_from = NULL, run_missed = NULL, run_drop = NULL, at_phase = NULL, at_id = NULL,
				throttled_at = NULL, paced = false, retime_at = NULL, empty_at = `+postgres.Now+`
			WHERE shard = $1 AND id = ANY($2)`, shard, a.broken)
		b.Queue(`
			UPDATE schedule s
			SET status = 'quarantined', cohort_id = NULL, paused_at = NULL, paused_until = NULL,
				status_note = 'its spec cannot be computed'
			FROM member m
			WHERE m.cohort_id = ANY($1) AND s.tenant_id = m.tenant_id AND s.id = m.schedule_id`, a.broken)
		b.Queue(`DELETE FROM member WHERE cohort_id = ANY($1)`, a.broken)
	}
	if len(a.early) > 0 {
		b.Queue(`
			UPDATE cohort c
			SET due_at = `+cohorts.NotPast("n.due_at")+`, throttled_at = NULL, paced = false
			FROM unnest($2::bigint[], $3::timestamptz[]) AS n (id, due_at)
			WHERE c.shard = $1 AND c.id = n.id`, shard, a.early, a.until)
	}
	if b.Len() == 0 {
		return nil
	}
	a.broken, a.early, a.until = nil, nil, nil
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("set cohorts of shard %d aside: %w", shard, err)
	}
	return nil
}
