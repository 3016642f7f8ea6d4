package message

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// TimingsOf returns the timings of ticks of one tenant, in the order of the ticks: the timing of a tick's cohort, or of its version's spec if
// the cohort is gone. A timing that cannot be computed is nil; newer reports whether a newer program wrote it, which can compute it.
func (s *Messages) TimingsOf(ctx context.Context, db postgres.DB, tenant tenants.ID, ticks []*record.Tick) (timings []*calendar.Timing, newer []bool, err error) {
	shards, ids := cohortsOf(ticks)
	known, bad, err := s.Timings.ByCohort(ctx, db, tenant, shards, ids)
	if err != nil {
		return nil, nil, err
	}
	timings, newer = make([]*calendar.Timing, len(ticks)), make([]bool, len(ticks))
	for i, t := range ticks {
		if t.CohortID != nil {
			timings[i], newer[i] = known[*t.CohortID], errors.Is(bad[*t.CohortID], calendar.ErrNewerForm)
		}
		if timings[i] != nil || newer[i] {
			continue
		}
		if timings[i], err = s.specTiming(ctx, db, tenant, t); err != nil {
			return nil, nil, err
		}
	}
	return timings, newer, nil
}

func (s *Messages) specTiming(ctx context.Context, db postgres.DB, tenant tenants.ID, t *record.Tick) (*calendar.Timing, error) {
	spec := cohorts.StoredSpec{Tenant: tenant, ID: t.ScheduleID}
	err := db.QueryRow(ctx, `
		SELECT workflow, key, COALESCE(subject, key), spec, anchor_at
		FROM schedule
		WHERE tenant_id = $1 AND id = $2 AND version = $3
		UNION ALL
		SELECT workflow, key, COALESCE(subject, key), spec, anchor_at
		FROM revision
		WHERE tenant_id = $1 AND schedule_id = $2 AND version = $3
		LIMIT 1`, tenant, t.ScheduleID, t.Version).Scan(&spec.Workflow, &spec.Key, &spec.Subject, &spec.Spec, &spec.AnchorAt)
	if errors.Is(err, pgx.ErrNoRows) { // erased since the tick was read
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read spec of a tick: %w", err)
	}
	spec.AnchorAt = spec.AnchorAt.UTC()
	timing, broken, err := s.Timings.FromSpec(ctx, db, spec)
	if broken != nil {
		s.Log.Error("the timing of a tick cannot be computed", "tenant", tenant, "schedule", t.ScheduleID, "error", broken)
	}
	return timing, err
}

// cohortsOf returns the cohorts whose timings the messages of ticks need, each once.
func cohortsOf(ticks []*record.Tick) (shards []int16, ids []int64) {
	seen := map[int64]bool{}
	for _, t := range ticks {
		if t.CohortID != nil && !seen[*t.CohortID] {
			seen[*t.CohortID] = true
			shards, ids = append(shards, t.Shard), append(ids, *t.CohortID)
		}
	}
	return shards, ids
}
