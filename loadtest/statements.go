package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	mostGrown      = 2.0 // blocks at the end, divided by blocks at the start
	grownAnyway    = 50  // blocks a call: growth of tables and indexes, and differences between calls
	leastCalls     = 3   // in each of the two parts of the time
	statementsSaid = 12
)

// byKey are the beginnings of statements that read or change rows by their keys. Such a row has a version for each change since the
// snapshot, and PostgreSQL reads all of them. The report counts these statements apart from looks for work.
var byKey = []string{
	"SELECT s.tenant_id, s.id, s.status = $6 AND m.there IS NULL, s.fresh",    // a walk through schedules: each with its membership and cohort
	"WITH used AS ( INSERT INTO daily_use_delta",                              // ticks that ended, and the states of their schedules
	"WITH picked AS MATERIALIZED ( SELECT ctid AS place FROM daily_use_delta", // the counts of the day and of the hour
	"UPDATE schedule_state st",                                                // states of schedules whose ticks were opened
	"UPDATE cohort c SET next_at",                                             // cohorts that were swept
	"SELECT c.id, t.timing, c.calendars FROM unnest",                          // timings of these
}

// statement is the sum over the calls of one statement.
type statement struct {
	ID           int64
	Query        string
	Calls        int64
	Rows         int64
	Blocks       int64 // read, in memory or not
	Milliseconds float64
}

func (s statement) less(t statement) statement {
	s.Calls, s.Rows, s.Blocks, s.Milliseconds = s.Calls-t.Calls, s.Rows-t.Rows, s.Blocks-t.Blocks, s.Milliseconds-t.Milliseconds
	return s
}

func (s statement) blocks() float64 { return float64(s.Blocks) / float64(max(1, s.Calls)) }
func (s statement) ms() float64     { return s.Milliseconds / float64(max(1, s.Calls)) }

// river reports whether the statement is River's.
func (s statement) river() bool {
	return strings.Contains(s.Query, "river_") && strings.HasPrefix(s.Query, "-- name: ")
}

func (s statement) fetches() bool { return strings.HasPrefix(s.Query, "-- name: JobGetAvailable") }

// name returns the beginning of the statement in one line.
func (s statement) name() string {
	text := strings.Join(strings.Fields(s.Query), " ")
	return text[:min(len(text), 110)]
}

// fetchWithin bounds how much longer reads waits for a fetch.
const fetchWithin = time.Minute

// reads returns what each statement did within some time, or until River has fetched jobs if that comes later.
func (d *deliveries) reads(ctx context.Context, within time.Duration) (map[int64]statement, error) {
	before, err := d.statements(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.pause(ctx, within); err != nil {
		return nil, err
	}
	for late := time.Now().Add(fetchWithin); ; {
		after, err := d.statements(ctx)
		if err != nil {
			return nil, err
		}
		fetched := false
		for id, s := range after {
			after[id] = s.less(before[id])
			fetched = fetched || s.fetches() && after[id].Calls > 0
		}
		if fetched || time.Now().After(late) {
			return after, nil
		}
		if err := d.pause(ctx, askEvery); err != nil {
			return nil, err
		}
	}
}

// statements returns the statements of this database, without utilities and those of this connection.
func (d *deliveries) statements(ctx context.Context) (map[int64]statement, error) {
	rows, _ := d.db.Query(ctx, `
		SELECT queryid, min(query), sum(calls)::bigint, sum(rows)::bigint, sum(shared_blks_hit + shared_blks_read)::bigint, sum(total_exec_time)
		FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query ~* '^(--|select|with|insert|update|delete)' AND query !~ 'pg_stat_statements'
		GROUP BY queryid`) // CollectRows reports the error
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
	all := make(map[int64]statement, len(list))
	for _, s := range list {
		all[s.ID] = s
	}
	return all, err
}

// growing is a statement in the first and in the last part.
type growing struct{ first, last statement }

func (g growing) ratio() float64 { return g.last.blocks() / max(1, g.first.blocks()) }

func (g growing) tooMuch(most float64) bool {
	return g.last.blocks() > most*g.first.blocks()+grownAnyway
}

// byKey reports whether the statement is one of byKey.
func (s statement) byKey() bool {
	text := strings.Join(strings.Fields(s.Query), " ")
	return slices.ContainsFunc(byKey, func(start string) bool { return strings.HasPrefix(text, start) })
}

// compare notes how much more each statement reads a call at the end than at the start, and prints those that grew most. fired is
// how often each schedule fired meanwhile.
func (d *deliveries) compare(first, last map[int64]statement, fired int) {
	var ours []growing
	var fetch growing
	for id, end := range last {
		g := growing{first[id], end}
		if end.fetches() {
			fetch = g
		}
		if !end.river() && g.first.Calls >= leastCalls && end.Calls >= leastCalls {
			ours = append(ours, g)
		}
	}
	slices.SortFunc(ours, func(a, b growing) int {
		return cmp.Compare(b.last.blocks()-b.first.blocks(), a.last.blocks()-a.first.blocks())
	})
	grown, looks, grownByKey, worst := 0, 0, 0, 0.0
	for i, g := range ours {
		if g.tooMuch(mostGrown) {
			grown++
		}
		if g.last.byKey() {
			if worst = max(worst, g.ratio()); g.tooMuch(max(mostGrown, float64(fired))) {
				grownByKey++
			}
		} else if g.tooMuch(mostGrown) {
			looks++
		}
		if i < statementsSaid {
			d.say("%8.1f -> %8.1f blocks a call, %7.3f -> %7.3f ms, %6d -> %6d calls: %s", g.first.blocks(), g.last.blocks(), g.first.ms(), g.last.ms(), g.first.Calls, g.last.Calls, g.last.name())
		}
	}
	d.report.figure("statements_of_ours", float64(len(ours)))
	d.report.figure("river_fetch_blocks_at_the_start", fetch.first.blocks())
	d.report.figure("river_fetch_blocks_at_the_end", fetch.last.blocks())
	d.report.figure("river_fetch_ms_at_the_start", fetch.first.ms())
	d.report.figure("river_fetch_ms_at_the_end", fetch.last.ms())
	d.report.figure("river_fetches_at_the_start", float64(fetch.first.Calls))
	d.report.figure("river_fetches_at_the_end", float64(fetch.last.Calls))
	d.report.figure("most_growth_by_key", worst)
	d.report.figure("firings_of_a_schedule", float64(fired))
	d.report.atMost("statements_that_read_more_than_twice", float64(grown), 0)
	d.report.atMost("looks_that_read_more_than_twice", float64(looks), 0)
	d.report.atMost("by_key_read_more_than_firings", float64(grownByKey), 0)
}
