package record

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Schedule is the schedule of a tick: its name, its subject, its version, and how long its ended ticks are kept. 0 means as long as the
// tenant's.
type Schedule struct {
	Workflow, Key     string
	Subject           string
	Version           int32 // the last one of a deleted schedule
	Succeeded, Failed time.Duration
}

// SchedulesOf reads schedules by number. It describes a deleted schedule as its last revision does, and leaves out unknown numbers.
func SchedulesOf(ctx context.Context, db postgres.DB, tenant tenants.ID, ids []int64) (map[int64]Schedule, error) {
	found := make(map[int64]Schedule, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	rows, err := db.Query(ctx, `
		SELECT i.id, COALESCE(s.workflow, r.workflow), COALESCE(s.key, r.key),
			CASE WHEN s.id IS NULL THEN COALESCE(r.subject, r.key) ELSE COALESCE(s.subject, s.key) END, COALESCE(s.version, r.version),
			COALESCE(s.keep_succeeded_s, r.keep_succeeded_s), COALESCE(s.keep_failed_s, r.keep_failed_s), w.defaults
		FROM (SELECT DISTINCT id FROM unnest($2::bigint[]) AS n (id)) i
		LEFT JOIN schedule s ON s.tenant_id = $1 AND s.id = i.id
		LEFT JOIN LATERAL (
			SELECT workflow, key, subject, version, keep_succeeded_s, keep_failed_s
			FROM revision
			WHERE tenant_id = $1 AND schedule_id = i.id AND s.id IS NULL
			ORDER BY version DESC
			LIMIT 1
		) r ON true
		LEFT JOIN workflow w ON w.tenant_id = $1 AND w.name = CASE WHEN s.workflow IS NULL THEN r.workflow ELSE s.workflow END
		WHERE s.id IS NOT NULL OR r.workflow IS NOT NULL`, tenant, ids)
	if err != nil {
		return nil, fmt.Errorf("read schedules of ticks: %w", err)
	}
	var id int64
	var w Schedule
	var good, bad *int32
	var defaults []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &w.Workflow, &w.Key, &w.Subject, &w.Version, &good, &bad, &defaults}, func() error {
		own := policy.Stored{KeepSucceeded: good, KeepFailed: bad}
		terms, err := policy.Resolve(own, defaults)
		if err != nil { // the tenant's retention counts until this program can read the defaults
			terms = policy.BuiltIn().With(own)
		}
		w.Succeeded, w.Failed = terms.KeepSucceeded, terms.KeepFailed
		found[id] = w
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read schedules of ticks: %w", err)
	}
	return found, nil
}

// SchedulesAt returns the schedule of each tick, with the subject that the schedule had when the tick fired. named is the result of
// SchedulesOf for the ticks.
func SchedulesAt(ctx context.Context, db postgres.DB, tenant tenants.ID, ticks []*Tick, named map[int64]Schedule) ([]Schedule, error) {
	all := make([]Schedule, len(ticks))
	var ids, places []int64
	var versions []int32
	for i, t := range ticks {
		all[i] = named[t.ScheduleID]
		if all[i].Version != t.Version {
			ids, versions, places = append(ids, t.ScheduleID), append(versions, t.Version), append(places, int64(i))
		}
	}
	if len(ids) == 0 {
		return all, nil
	}
	rows, _ := db.Query(ctx, `
		SELECT n.place, COALESCE(r.subject, r.key)
		FROM unnest($2::bigint[], $3::int[], $4::bigint[]) AS n (id, version, place)
		JOIN revision r ON r.tenant_id = $1 AND r.schedule_id = n.id AND r.version = n.version`, tenant, ids, versions, places) // ForEachRow reports the error
	var place int64
	var subject string
	_, err := pgx.ForEachRow(rows, []any{&place, &subject}, func() error {
		all[place].Subject = subject
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read subjects of ticks: %w", err)
	}
	return all, nil
}

// WorkflowTerms are the versions of a workflow and its defaults for deliveries, and whether it is held.
type WorkflowTerms struct {
	policy.Terms
	Versions Versions
	Held     bool
}

// UntilAt returns an SQL expression for the last nominal time of a schedule s, as a tick at a moment shows it: the moment itself if
// the schedule is no longer a member of a cohort. Only schedules with a limit of ticks are looked up; for others it is NULL.
func UntilAt(moment string) string {
	return `CASE WHEN s.ticks_left IS NOT NULL THEN COALESCE((
					SELECT m.until_at
					FROM member m
					WHERE m.cohort_id = s.cohort_id AND m.phase = s.phase AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id), ` + moment + `) END`
}

// QueueOver marks cohorts of a shard whose schedules upkeep completes.
func QueueOver(b *pgx.Batch, shard int16, cohorts []int64) {
	if len(cohorts) > 0 {
		b.Queue(`UPDATE cohort SET over = true WHERE shard = $1 AND id = ANY($2)`, shard, cohorts)
	}
}
