package history

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// timed says where the time zone of a tick is found.
type timed struct {
	cohort   *int64
	shard    int16
	schedule int64
	version  int32
}

// localForm is the form of a local time with its offset.
const localForm = time.RFC3339

// Localize writes the time zone and the local time into shown ticks of one tenant: those by which the schedule was timed, or, if its
// timing is gone, those of its version. A version that follows its subject has the present zone of the subject then.
func (r *Reader) Localize(ctx context.Context, db postgres.DB, tenant tenants.ID, ticks ...*Tick) error {
	var shards []int16
	var ids []int64
	seen := map[int64]bool{}
	for _, t := range ticks {
		if c := t.timed.cohort; c != nil && !seen[*c] {
			seen[*c] = true
			shards, ids = append(shards, t.timed.shard), append(ids, *c)
		}
	}
	known, _, err := r.timings.ByCohort(ctx, db, tenant, shards, ids) // what cannot be computed has the zone of its version
	if err != nil {
		return err
	}
	var rest []*Tick
	for _, t := range ticks {
		var timing *calendar.Timing
		if t.timed.cohort != nil {
			timing = known[*t.timed.cohort]
		}
		if timing == nil {
			rest = append(rest, t)
			continue
		}
		t.Timezone, t.LocalTime = timing.Zone(), timing.Local(t.Timestamp).Format(localForm)
	}
	return localizeByVersion(ctx, db, tenant, rest)
}

// localizeByVersion does so by the specs of the versions that the ticks fired with.
func localizeByVersion(ctx context.Context, db postgres.DB, tenant tenants.ID, ticks []*Tick) error {
	if len(ticks) == 0 {
		return nil
	}
	schedules, versions := make([]int64, len(ticks)), make([]int32, len(ticks))
	for i, t := range ticks {
		schedules[i], versions[i] = t.timed.schedule, t.timed.version
	}
	rows, _ := db.Query(ctx, `
		SELECT n.place, v.spec, COALESCE(p.timezone, w.fallback_timezone, (SELECT fallback_timezone FROM tenant WHERE id = $1), '')
		FROM unnest($2::bigint[], $3::int[]) WITH ORDINALITY AS n (id, version, place)
		CROSS JOIN LATERAL (
			SELECT workflow, CASE WHEN subject IS NULL THEN key ELSE subject END AS subject, spec
			FROM schedule
			WHERE tenant_id = $1 AND id = n.id AND version = n.version
			UNION ALL
			SELECT workflow, CASE WHEN subject IS NULL THEN key ELSE subject END AS subject, spec
			FROM revision
			WHERE tenant_id = $1 AND schedule_id = n.id AND version = n.version
			LIMIT 1
		) v
		LEFT JOIN LATERAL (SELECT timezone FROM subject_profile WHERE tenant_id = $1 AND subject = v.subject OFFSET 0) p ON true
		LEFT JOIN LATERAL (SELECT fallback_timezone FROM workflow WHERE tenant_id = $1 AND name = v.workflow OFFSET 0) w ON true`,
		tenant, schedules, versions) // ForEachRow reports the error
	var place int
	var spec, subjectZone string
	_, err := pgx.ForEachRow(rows, []any{&place, &spec, &subjectZone}, func() error {
		t := ticks[place-1]
		t.Timezone = zoneOf(spec, subjectZone)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the zones of ticks: %w", err)
	}
	for _, t := range ticks {
		location := calendar.InForce().Location(t.Timezone)
		if location == nil { // an erased version, or a zone that the database has lost
			t.Timezone, location = "UTC", time.UTC
		}
		t.LocalTime = t.Timestamp.In(location).Format(localForm)
	}
	return nil
}

// zoneOf returns the zone of a stored spec.
func zoneOf(spec, subjectZone string) string {
	var s struct {
		Timezone string `json:"timezone"`
	}
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return ""
	}
	switch s.Timezone {
	case "":
		return "UTC"
	case "@subject":
		return subjectZone
	}
	return s.Timezone
}

// pointers returns the addresses of the ticks of a page.
func pointers(page []Tick) []*Tick {
	all := make([]*Tick, len(page))
	for i := range page {
		all[i] = &page[i]
	}
	return all
}
