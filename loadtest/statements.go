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

// reads returns what each statement did within some time.
func (d *deliveries) reads(ctx context.Context, within time.Duration) (map[int64]statement, error) {
	before, err := d.statements(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.pause(ctx, within); err != nil {
		return nil, err
	}
	after, err := d.statements(ctx)
	if err != nil {
		return nil, err
	}
	for id, s := range after {
		after[id] = s.less(before[id])
	}
	return after, nil
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

func (g growing) tooMuch() bool {
	return g.last.blocks() > mostGrown*g.first.blocks()+grownAnyway
}

// compare notes how much more each statement reads a call at the end than at the start, and prints those that grew most.
func (d *deliveries) compare(first, last map[int64]statement) {
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
	grown, worst := 0, 0.0
	for i, g := range ours {
		if g.tooMuch() {
			grown, worst = grown+1, max(worst, g.ratio())
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
	d.report.figure("most_growth_of_a_statement_that_grew", worst)
	d.report.atMost("statements_that_read_more_than_twice", float64(grown), 0)
}
