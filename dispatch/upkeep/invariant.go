package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
)

// Broken says how many rows of the database contradict a promise, up to mostBroken.
type Broken struct {
	Name    string
	Meaning string
	Rows    int
}

// invariant is a promise whose violation a query can find. The query counts the rows that contradict it, up to mostBroken.
type invariant struct {
	name, meaning string
	deep          bool // the query reads whole tables
	sql           string
	from          func(scanFloors) []any
}

const (
	mostBroken = 1000
	brokenFor  = "1 minute" // a shorter delay breaks no promise
	scanEvery  = 15 * time.Second
	scanLimit  = 5 * time.Second
)

// scanFloors are where a scan begins to read due and unopened rows: there are none before.
type scanFloors struct {
	cohort, delayed []time.Time // by shard
	chunk           int64
	stuck           []int64 // unopened chunks with lower numbers
}

// invariants are checked one by one. Chunks are swept in about the order of their numbers, so the first unopened ones show whether any
// waits. $1 is mostBroken; further arguments come from scanFloors.
var invariants = []invariant{
	{"overdue_cohorts", "timings that are due and have not been swept for a minute", false, `
		SELECT count(*)
		FROM (SELECT (n - 1)::smallint AS shard, at FROM unnest($2::timestamptz[]) WITH ORDINALITY AS s (at, n)) s
		CROSS JOIN LATERAL (
			SELECT FROM cohort c WHERE c.shard = s.shard AND c.due_at < (SELECT ` + postgres.Now + `) - interval '` + brokenFor + `' AND c.due_at >= s.at LIMIT $1
		) c`, func(b scanFloors) []any { return []any{b.cohort} }},
	{"overdue_held", "ticks that were to be sent again, and have not been for a minute", false, `
		SELECT count(*)
		FROM (SELECT (n - 1)::smallint AS shard, at FROM unnest($2::timestamptz[]) WITH ORDINALITY AS s (at, n)) s
		CROSS JOIN LATERAL (
			SELECT FROM delayed h WHERE h.shard = s.shard AND h.due_at < (SELECT ` + postgres.Now + `) - interval '` + brokenFor + `' AND h.due_at >= s.at LIMIT $1
		) h`, func(b scanFloors) []any { return []any{b.delayed} }},
	{"unopened_chunks", "chunks that were swept and have not been opened for a minute", false, `
		SELECT count(*)
		FROM (
			SELECT FROM (
				SELECT swept_at FROM chunk WHERE opened_at IS NULL AND swept_at IS NOT NULL AND id >= $2 ORDER BY id LIMIT $1
			) first
			WHERE swept_at < (SELECT ` + postgres.Now + `) - interval '` + brokenFor + `'
			UNION ALL
			SELECT FROM chunk c WHERE c.id = ANY ($3) AND c.id < $2 AND c.swept_at < (SELECT ` + postgres.Now + `) - interval '` + brokenFor + `' AND ` + chunk.StillUnopened + `
		) c`, func(b scanFloors) []any { return []any{b.chunk, b.stuck} }},
	{"orphaned_chunks", "open chunks whose process is gone, and that no other has taken for a minute", false, `
		WITH RECURSIVE ` + chunk.OwningChunks(cluster.KnownProcesses) + `
		SELECT count(*)
		FROM (
			SELECT
			FROM chunk c
			WHERE c.owner = ANY (ARRAY (SELECT owner FROM owning))
				AND c.opened_at < (SELECT ` + postgres.Now + `) - interval '` + brokenFor + `' AND c.opened_at IS NOT NULL AND c.done_at IS NULL
			LIMIT $1
		) c`, nil},
	{"early_ticks", "ticks of the last day that were handed out before their nominal time", true, `
		SELECT count(*)
		FROM (SELECT FROM tick WHERE nominal_at > ` + postgres.TxNow + ` - interval '1 day' AND fired_at < nominal_at LIMIT $1) t`, nil},
	{"broken_sequences", "ticks of the last day whose number or last_timestamp is not that of the one before", true, `
		SELECT count(*)
		FROM (
			SELECT
			FROM (
				SELECT occurrence, last_at, lag(occurrence) OVER before AS number, lag(nominal_at) OVER before AS at
				FROM tick
				WHERE nominal_at > ` + postgres.TxNow + ` - interval '1 day' AND occurrence IS NOT NULL
				WINDOW before AS (PARTITION BY tenant_id, schedule_id ORDER BY nominal_at, seq)
			) t
			WHERE number IS NOT NULL AND (occurrence <> number + 1 OR last_at IS DISTINCT FROM at)
			LIMIT $1
		) t`, nil},
	{"forgotten_pushes", "pushed ticks that run, and that no process has nor is to have again", true, `
		SELECT count(*)
		FROM (
			SELECT
			FROM tick t
			WHERE t.state = ` + fmt.Sprint(int16(record.Running)) + ` AND t.chunk_id IS NOT NULL AND t.fired_at < (SELECT ` + postgres.Now + `) - interval '` + brokenFor + `'
				AND NOT EXISTS (SELECT FROM chunk c WHERE c.id = t.chunk_id AND c.done_at IS NULL)
				AND NOT EXISTS (
					SELECT FROM delayed h
					WHERE ` + record.SameKey("h", "t") + `)
			LIMIT $1
		) t`, nil},
	{"idle_schedules", "active schedules that no timing will ever hand out", true, `
		SELECT count(*)
		FROM (
			SELECT
			FROM schedule s
			WHERE s.status = 'active' AND NOT EXISTS (
				SELECT FROM member m
				WHERE m.cohort_id = s.cohort_id AND m.phase = s.phase AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id)
			LIMIT $1
		) s`, nil},
	{"stray_members", "members of timings whose schedule is gone, or is another's member", true, `
		SELECT count(*)
		FROM (
			SELECT
			FROM member m
			WHERE NOT EXISTS (SELECT FROM schedule s WHERE s.tenant_id = m.tenant_id AND s.id = m.schedule_id AND s.cohort_id = m.cohort_id)
			LIMIT $1
		) m`, nil},
	{"miscounted_bytes", "tenants whose count of stored bytes is not what their rows add up to; it is mended within a day", true, `
		SELECT count(*)
		FROM (
			SELECT
			FROM (
				SELECT tenant_id, ` + forecast.BytesOf + ` AS n FROM schedule
				UNION ALL
				SELECT tenant_id, ` + forecast.BytesOf + ` FROM revision
				UNION ALL
				SELECT tenant_id, -n FROM tally WHERE cohort_id = -2
				UNION ALL
				SELECT tenant_id, -n FROM tally_delta WHERE cohort_id = -2 AND ` + postgres.Unfolded("tally_delta") + `
			) stored
			GROUP BY tenant_id
			HAVING sum(n) <> 0
			LIMIT $1
		) t`, nil},
}

// Scan checks the invariants, and returns each with how many rows break it. A deep scan reads whole tables.
func Scan(ctx context.Context, db postgres.DB, deep bool) (all []Broken, err error) {
	return scanFrom(ctx, db, deep, scanFloors{make([]time.Time, cohorts.Shards), make([]time.Time, cohorts.Shards), 0, []int64{}})
}

func scanFrom(ctx context.Context, db postgres.DB, deep bool, from scanFloors) (all []Broken, err error) {
	for _, i := range invariants {
		if i.deep && !deep {
			continue
		}
		b := Broken{Name: i.name, Meaning: i.meaning}
		args := []any{mostBroken}
		if i.from != nil {
			args = append(args, i.from(from)...)
		}
		if err := db.QueryRow(ctx, i.sql, args...).Scan(&b.Rows); err != nil {
			return nil, fmt.Errorf("scan for %s: %w", i.name, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// scanning checks the invariants at intervals.
type scanning struct {
	pool     *pgxpool.Pool
	unopened *chunk.Unopened
	horizon  *cluster.Horizon
	floors   *sweep.DueFloors // of the watchdog
	metrics  *Metrics
}

// scan checks the invariants that are not deep, and sets their metric.
func (s *scanning) scan(ctx context.Context) error {
	var from scanFloors
	for shard := range int16(cohorts.Shards) {
		l := s.floors.Look(shard, s.horizon, false)
		from.cohort, from.delayed = append(from.cohort, l.Cohort.From), append(from.delayed, l.Delayed.From)
	}
	from.chunk, from.stuck = s.unopened.From(s.horizon)
	all, err := scanFrom(ctx, s.pool, false, from)
	for _, b := range all {
		s.metrics.broken.WithLabelValues(b.Name).Set(float64(b.Rows))
	}
	return err
}
