package schedules

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// SkipParams name coming ticks to leave out: the next Count of those that are not left out yet, or those at the given
// nominal times.
type SkipParams struct {
	Count *int        `json:"count,omitempty" validate:"omitempty,min=1,max=1000"`
	At    []time.Time `json:"at,omitempty" validate:"max=1000"`
}

const mostSkips = 1000 // kept for one schedule at a time

// Skip leaves out coming ticks of a schedule: when one comes, it is recorded as skipped. The version stays.
func (s *Schedules) Skip(ctx context.Context, tenant tenants.ID, workflow, key string, p SkipParams, by Changer) (out Schedule, replayed bool, err error) {
	if (p.Count == nil) == (len(p.At) == 0) {
		return out, false, fault.Invalid("", "give either count or at, not both")
	}
	return s.restatus(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, "skip", by, func(ctx context.Context, b *batch, w *rewrite, t *calendar.Timing) (bool, error) {
		if w.row.CohortID == nil {
			return false, fault.Conflict("not_active", "the schedule is %s", w.row.Status)
		}
		return false, b.skip(ctx, w.row, p, t)
	})
}

// skip leaves out coming ticks of a row that is in a cohort.
func (b *batch) skip(ctx context.Context, r *row, p SkipParams, t *calendar.Timing) error {
	more, err := r.named(p, t, b.now)
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(r.Skips), func(at time.Time) bool { return r.SeenAt != nil && !at.After(*r.SeenAt) })
	kept = append(kept, more...)
	slices.SortFunc(kept, time.Time.Compare)
	kept = slices.CompactFunc(kept, time.Time.Equal)
	if len(kept) > mostSkips {
		return fault.Invalid("", "%d coming ticks would be skipped; the maximum is %d", len(kept), mostSkips)
	}
	return r.skip(ctx, b.tx, b.tenant, kept)
}

// Unskip undoes Skip for all ticks that have not come yet.
func (s *Schedules) Unskip(ctx context.Context, tenant tenants.ID, workflow, key string, by Changer) (out Schedule, replayed bool, err error) {
	return s.restatus(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, "unskip", by, func(ctx context.Context, b *batch, w *rewrite, _ *calendar.Timing) (bool, error) {
		r, now := w.row, b.now
		return false, r.skip(ctx, b.tx, tenant, slices.DeleteFunc(slices.Clone(r.Skips), now.Before)) // due ticks stay skipped
	})
}

// named returns the coming times of the row that the params name.
func (r *row) named(p SkipParams, t *calendar.Timing, now time.Time) ([]time.Time, error) {
	var times []time.Time
	if p.Count != nil {
		for after := now; len(times) < *p.Count; {
			at, ok := r.nextAfter(t, after)
			if !ok {
				break
			}
			times, after = append(times, at), at
		}
		return times, nil
	}
	var errs []error
	for i, at := range p.At {
		at = at.UTC()
		next, ok := r.nextAfter(t, at.Add(-time.Nanosecond))
		if !r.skipped(at) && (!ok || !next.Equal(at)) || !at.After(now) {
			errs = append(errs, fault.Invalid("/at/"+strconv.Itoa(i), "%s is not the time of a coming tick", at.Format(time.RFC3339Nano)))
		}
		times = append(times, at)
	}
	return times, fault.Join(errs...)
}

func (r *row) skipped(at time.Time) bool { return slices.ContainsFunc(r.Skips, at.Equal) }

func (r *row) skip(ctx context.Context, tx pgx.Tx, tenant tenants.ID, times []time.Time) error {
	if slices.EqualFunc(times, r.Skips, time.Time.Equal) {
		return nil
	}
	if len(times) == 0 {
		times = nil
	}
	r.Skips = times
	_, err := tx.Exec(ctx, `UPDATE schedule_state SET skips = $3 WHERE tenant_id = $1 AND schedule_id = $2`, tenant, r.ID, times)
	if err != nil {
		return fmt.Errorf("leave out ticks: %w", err)
	}
	return nil
}
