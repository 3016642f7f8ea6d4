package schedules

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// A schedule with fixed_delay is alone in its cohort. While a tick of it is out (swept and not ended), its state
// holds that tick's nominal time (delay_at), and the cohort has no next time; the transaction that ends the tick sets it. A
// change that joins or leaves the cohort locks the state first, so that no tick ends unnoticed.

// delayed reports whether the row is in a cohort of its own: its hash is the timing's with a random suffix.
func (r *row) delayed() bool { return len(r.Hash) > timingHash }

const timingHash = 16

// enterDelay does what enter does, for fixed_delay. If a tick is out, its end arms the cohort.
func (r *row) enterDelay(tenant tenants.ID, t *calendar.Timing, missed string, after time.Time) (next time.Time, ok bool) {
	from := after.Truncate(time.Second).Add(time.Second)
	tick, ok := t.Next(from)
	if r.SeenAt == nil && r.DelayAt == nil { // it has had no tick: its spec determines the first one
		if own, err := r.stored(tenant).Meaning(); err == nil {
			tick, ok = own.First(from)
		}
	}
	if !ok || r.TicksLeft != nil && *r.TicksLeft < 1 {
		return next, false
	}
	hash := t.Hash()
	r.Hash, r.CohortMissed = append(hash[:], rand.Text()...), &missed
	r.FromAt, r.UntilAt, r.Phase = &from, nil, 0
	if t.Jitter() > 0 {
		r.Phase = runs.PhaseOf(cohorts.Identity(tenant, r.Workflow, r.Key))
	}
	r.RunAt, r.NextAt, r.DelayLeft = nil, &tick.At, r.TicksLeft
	if r.DelayAt != nil {
		r.NextAt = nil
	}
	return tick.At, true
}

// joinDelay makes or wakes the row's own cohort, and arms it with its next time.
func (r *row) joinDelay(ctx context.Context, tx pgx.Tx, tenant tenants.ID, t *calendar.Timing) error {
	var id int64
	err := tx.QueryRow(ctx, `
		WITH n AS (`+cohorts.NameCohort+`)
		INSERT INTO cohort (id, shard, tenant_id, workflow, hash, missed, ordered, delay, next_at, due_at)
		SELECT n.id, n.shard, n.tenant_id, n.workflow, n.hash, n.missed, n.ordered, true, $7::timestamptz, `+cohorts.NotPast("$7::timestamptz")+`
		FROM n
		ON CONFLICT (shard, id, tenant_id) DO UPDATE
		SET next_at = excluded.next_at, due_at = excluded.due_at, `+notInRun+`, empty_at = NULL
		RETURNING id`,
		r.Shard, tenant, r.Workflow, r.Hash, *r.CohortMissed, string(t.Canonical()), r.NextAt).Scan(&id)
	if err != nil {
		return fmt.Errorf("join cohort: %w", err)
	}
	r.CohortID = &id
	return nil
}

const notInRun = `run_at = NULL, run_from = NULL, run_missed = NULL, run_drop = NULL, at_phase = NULL, at_id = NULL`

// leaveDelays disarms the cohorts of schedules that have left them.
func leaveDelays(ctx context.Context, tx pgx.Tx, tenant tenants.ID, shards []int16, cohorts []int64) error {
	if len(cohorts) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE cohort c
		SET next_at = NULL, due_at = NULL, `+notInRun+`, empty_at = `+postgres.Now+`
		FROM unnest($2::smallint[], $3::bigint[]) AS n (shard, id)
		WHERE c.tenant_id = $1 AND c.shard = n.shard AND c.id = n.id AND c.delay`, tenant, shards, cohorts)
	if err != nil {
		return fmt.Errorf("leave cohorts: %w", err)
	}
	return nil
}

// queueDelays writes into the states which tick is out and how many are left.
func queueDelays(q *pgx.Batch, tenant tenants.ID, rows []*row) {
	if len(rows) == 0 {
		return
	}
	var ids []int64
	var out []*time.Time
	var left []*int32
	for _, r := range rows {
		ids, out, left = append(ids, r.ID), append(out, r.DelayAt), append(left, r.DelayLeft)
	}
	q.Queue(`
		UPDATE schedule_state st
		SET delay_at = n.delay_at, delay_left = n.delay_left
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS n (id, delay_at, delay_left)
		WHERE st.tenant_id = $1 AND st.schedule_id = n.id`, tenant, ids, out, left)
}

// withdrawDelay subtracts from the row's limit the ticks that were swept, and those that are handed out as it leaves. The last of these is
// out from now on.
func (r *row) withdrawDelay(due []cohorts.Due) {
	if r.TicksLeft != nil && r.DelayLeft != nil {
		r.TicksLeft = new(max(0, *r.DelayLeft-int32(len(due))))
	}
	for _, one := range due {
		r.DelayAt = &one.Run.At
	}
}

// armed returns the one coming time that is known of fixed_delay; there is none while a tick is out.
func (r *row) armed(t *calendar.Timing, after time.Time) (time.Time, bool) {
	at := r.NextAt
	if run, ahead := r.underWay(t, after); ahead {
		at = &run.At
	}
	if at == nil || !at.After(after) || r.skipped(at.UTC()) {
		return time.Time{}, false
	}
	return at.UTC(), true
}
