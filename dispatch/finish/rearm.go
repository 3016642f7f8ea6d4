package finish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Rearm sets the next time of schedules with fixed_delay whose timed ticks have ended, whatever their final state, in the transaction
// that ended them. Ticks with a sequence number, like manual ones, change nothing. Every end of a tick calls it.
func (f *Finisher) Rearm(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, ended []ident.TickKey) error {
	var ids []int64
	var at []*time.Time
	for _, k := range ended {
		if k.Seq == 0 {
			ids, at = append(ids, k.Schedule), append(at, &k.At)
		}
	}
	return f.RearmSchedules(ctx, tx, tenant, now, ids, at)
}

// delayed is a schedule with fixed_delay whose tick has ended, and its cohort.
type delayed struct {
	ScheduleID int64
	Shard      int16
	ID         int64
	Hash       []byte
	FromAt     time.Time
	Left       *int32 `db:"delay_left"`
}

// RearmSchedules is Rearm for schedules with the numbers ids whose ticks have the nominal times at; nil for none.
func (f *Finisher) RearmSchedules(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, ids []int64, at []*time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	free, err := state.EndDelayed(ctx, tx, tenant, ids, at)
	if err != nil {
		return err
	}
	if len(free) == 0 {
		return nil
	}
	// In a statement of its own: a transaction that changed the schedule held the lock of its state, and has committed by now.
	rows, _ := tx.Query(ctx, `
		SELECT s.id AS schedule_id, c.shard, c.id, c.hash, m.from_at, st.delay_left
		FROM schedule s
		JOIN cohort c ON c.tenant_id = s.tenant_id AND c.shard = s.shard AND c.id = s.cohort_id
		JOIN member m ON m.tenant_id = s.tenant_id AND m.cohort_id = c.id AND m.phase = s.phase AND m.schedule_id = s.id
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		WHERE s.tenant_id = $1 AND s.id = ANY($2) AND c.delay AND c.due_at IS NULL AND c.run_at IS NULL
		ORDER BY s.id`, tenant, free) // CollectRows reports the error
	waiting, err := pgx.CollectRows(rows, pgx.RowToStructByName[delayed])
	if err != nil || len(waiting) == 0 {
		return err
	}
	return f.arm(ctx, tx, tenant, now, waiting)
}

// arm sets the next times of cohorts with fixed_delay, counted from now or from the end of a pause. It marks a schedule without a next
// time, and upkeep completes it. A cohort that cannot be computed comes due at once.
func (f *Finisher) arm(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, waiting []delayed) error {
	names := make([]cohorts.CohortTiming, len(waiting))
	for i, w := range waiting {
		names[i] = cohorts.CohortTiming{Tenant: tenant, Shard: w.Shard, ID: w.ID, Hash: w.Hash}
	}
	timings, bad, err := f.timings.Of(ctx, tx, names)
	if err != nil {
		return err
	}
	var shards []int16
	var ids, over []int64
	var next []time.Time
	var b pgx.Batch
	for i, w := range waiting {
		if timings[i] == nil {
			why := bad[w.ID]
			f.log.Error("a schedule with fixed_delay cannot be computed", "tenant", tenant, "cohort", w.ID, "error", why)
			if why != nil && !errors.Is(why, calendar.ErrNewerForm) { // the sweep quarantines a due cohort that cannot be computed
				shards, ids, next = append(shards, w.Shard), append(ids, w.ID), append(next, now)
			}
			continue
		}
		from := now
		if w.FromAt.After(now) {
			from = w.FromAt.UTC()
		}
		tick, ok := timings[i].Next(from)
		if !ok || w.Left != nil && *w.Left < 1 {
			over = append(over, w.ScheduleID)
			record.QueueOver(&b, w.Shard, []int64{w.ID})
			continue
		}
		shards, ids, next = append(shards, w.Shard), append(ids, w.ID), append(next, tick.At)
	}
	b.Queue(`
		UPDATE cohort c
		SET next_at = n.at, due_at = `+cohorts.NotPast("n.at")+`, empty_at = NULL
		FROM unnest($2::smallint[], $3::bigint[], $4::timestamptz[]) AS n (shard, id, at)
		WHERE c.tenant_id = $1 AND c.shard = n.shard AND c.id = n.id AND c.delay AND c.due_at IS NULL AND c.run_at IS NULL`,
		tenant, shards, ids, next)
	state.EndDelays(&b, tenant, over)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("arm schedules with fixed_delay: %w", err)
	}
	return nil
}
