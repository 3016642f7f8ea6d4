package calendars_test

import (
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// The comparison with a new tz database reads the cohorts of one step, and an operation those of its tenant. The number of other cohorts in
// the same shards does not matter.
func TestANewTZDataReadsTheCohortsOfAStep(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	const others, own = 20_000, 130
	const timings = `
		WITH n AS (
			INSERT INTO cohort_timing (tenant_id, shard, hash, workflow, missed, timing)
			SELECT $1, n % 64, decode(md5(n::text), 'hex'), 'w', 'last', '{"zone":"America/Vancouver"}'
			FROM generate_series(1, $2::int) n
			RETURNING id, shard, tenant_id, workflow, hash, missed
		)
		INSERT INTO cohort (id, shard, tenant_id, workflow, hash, missed, next_at, due_at, tzdata)
		SELECT id, shard, tenant_id, workflow, hash, missed, now() + interval '1 hour', now() + interval '1 hour', '2025b'
		FROM n`
	h.Exec(timings, h.Other, others)
	h.Exec(timings, h.Acme, own)
	for name, test := range map[string]struct {
		sql  string
		args []any
		rows int
	}{
		"a step of all":    {calendars.EarlierCohorts, []any{"2099a", h.Acme, 0, []byte{}, "", "", 100}, 100},
		"the next shard":   {calendars.ShardAfter, []any{h.Acme, 7, []byte{}, "", ""}, 1},
		"behind the last":  {calendars.ShardAfter, []any{h.Acme, 64, []byte{}, "", ""}, 0},
		"a tenant's shard": {calendars.EarlierOfShard, []any{"2099a", h.Acme, 7, []byte{}, "", "", 100}, 2},
	} {
		for _, analyze := range []string{"SELECT 1", "ANALYZE cohort, cohort_timing"} {
			h.Exec(analyze)
			rows, read := reads(h, test.sql, test.args...)
			if rows != test.rows || read > 2*test.rows+2 {
				t.Errorf("%s, after %s: %d rows were read for %d, want %d", name, analyze, read, rows, test.rows)
			}
		}
	}
}

// The first tz database of an installation is compared with no cohort, as none has an earlier version. Later ones are.
func TestTheFirstTZDataReadsNoCohort(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	ctx := t.Context()
	h.Put("a", schedulestest.Spec(calendar.Spec{Timezone: "Europe/Paris", Cron: calendar.StringList{"0 8 * * *"}}))
	if err := calendars.AdoptZones(ctx, h.Pool, calendar.EmbeddedArchive()); err != nil {
		t.Fatal(err)
	}
	compares := func() bool {
		t.Helper()
		h.Exec(`UPDATE tzdata SET begun = 0, added_at = now() - interval '1 hour'`)
		tx, err := h.Pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }() // nothing is kept
		const rowsRead = `SELECT sum(idx_tup_fetch + seq_tup_read)::int FROM pg_stat_xact_user_tables WHERE relname = 'cohort_timing'`
		var before, after, begun int
		if err := tx.QueryRow(ctx, rowsRead).Scan(&before); err != nil {
			t.Fatal(err)
		}
		if err := calendars.BeginRezoning(ctx, tx, cohorts.NewTimings(), nil); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(ctx, rowsRead).Scan(&after); err != nil {
			t.Fatal(err)
		}
		err = tx.QueryRow(ctx, `SELECT begun FROM tzdata WHERE version = $1`, calendar.InForce().Version()).Scan(&begun)
		if err != nil || begun != 1 {
			t.Fatalf("%d comparisons: %v", begun, err)
		}
		return after > before
	}
	if compares() {
		t.Error("cohorts were read although no earlier version is stored")
	}
	h.Exec(`INSERT INTO tzdata (version, archive) VALUES ('2025b', '')`)
	if !compares() {
		t.Error("no cohort was read although an earlier version is stored")
	}
}

// reads runs a statement with its generic plan. It returns the number of its rows, and of the rows of cohorts that it reads.
func reads(h *schedulestest.Fixture, sql string, args ...any) (rows, read int) {
	h.T.Helper()
	ctx := h.T.Context()
	tx, err := h.Pool.Begin(ctx)
	if err != nil {
		h.T.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing is kept
	if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
		h.T.Fatal(err)
	}
	const rowsRead = `SELECT sum(idx_tup_fetch + seq_tup_read)::int FROM pg_stat_xact_user_tables WHERE relname IN ('cohort', 'cohort_timing')`
	var earlier int // the connection's, and so of its last transactions too
	if err := tx.QueryRow(ctx, rowsRead).Scan(&earlier); err != nil {
		h.T.Fatal(err)
	}
	done, err := tx.Exec(ctx, sql, args...)
	if err != nil {
		h.T.Fatal(err)
	}
	if err := tx.QueryRow(ctx, rowsRead).Scan(&read); err != nil {
		h.T.Fatal(err)
	}
	return int(done.RowsAffected()), read - earlier
}
