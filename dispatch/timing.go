package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// timingsOf are the timings that ticks of one tenant were made by, in their order: their cohorts', or where one is gone
// what the schedule's version says. The timing of one that cannot be computed is nil.
func (d *Dispatch) timingsOf(ctx context.Context, tenant tenants.ID, ticks []*tick) ([]*calendar.Timing, error) {
	shards, ids := cohortsOf(ticks)
	known, err := d.Timings.ByCohort(ctx, d.of(ctx), tenant, shards, ids)
	if err != nil {
		return nil, err
	}
	timings := make([]*calendar.Timing, len(ticks))
	for i, t := range ticks {
		if t.CohortID != nil {
			timings[i] = known[*t.CohortID]
		}
		if timings[i] != nil {
			continue
		}
		if timings[i], err = d.specTiming(ctx, tenant, t); err != nil {
			return nil, err
		}
	}
	return timings, nil
}

func (d *Dispatch) specTiming(ctx context.Context, tenant tenants.ID, t *tick) (*calendar.Timing, error) {
	var s schedules.StoredSpec
	err := d.of(ctx).QueryRow(ctx, `
		SELECT workflow, key, spec, anchor_at, hashed_as
		FROM schedule
		WHERE tenant_id = $1 AND id = $2 AND version = $3
		UNION ALL
		SELECT workflow, key, spec, anchor_at, hashed_as
		FROM revision
		WHERE tenant_id = $1 AND schedule_id = $2 AND version = $3
		LIMIT 1`, tenant, t.ScheduleID, t.Version).Scan(&s.Workflow, &s.Key, &s.Spec, &s.AnchorAt, &s.HashedAs)
	if errors.Is(err, pgx.ErrNoRows) { // erased since the tick was read
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read spec of a tick: %w", err)
	}
	s.AnchorAt = s.AnchorAt.UTC()
	timing, err := d.Timings.FromSpec(ctx, d.of(ctx), tenant, s)
	if err != nil {
		d.Log.Error("the timing of a tick cannot be computed", "tenant", tenant, "schedule", t.ScheduleID, "error", err)
		return nil, nil
	}
	return timing, nil
}
