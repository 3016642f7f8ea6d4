package upkeep_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/forecast"
)

// Rows that are folded cannot be removed while an old snapshot is open. Neither the next fold nor a count reads them.
func TestFoldsDoNotReadWhatWasFoldedUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.At(7200)})
	d, r := h.Recording()
	h.OldSnapshot()
	fold := func() {
		t.Helper()
		for _, err := range []error{forecast.FoldTallies(t.Context(), h.Config.Pool), d.FoldUse(t.Context()), d.Notice(t.Context())} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.Schedules.Forecasts.Stored(t.Context(), h.Tenant); err != nil {
			t.Fatal(err)
		}
	}
	var laid int // a transaction that began after all rows were laid
	lay := func() {
		t.Helper()
		for _, sql := range []string{
			`INSERT INTO tally_delta (tenant_id, cohort_id, n) SELECT $1, 0, CASE WHEN n % 2 = 0 THEN 1 ELSE -1 END FROM generate_series(1, 1000) n`,
			`INSERT INTO inactive_delta (tenant_id, workflow, state, n) SELECT $1, 'w', 'paused', CASE WHEN n % 2 = 0 THEN 1 ELSE -1 END FROM generate_series(1, 1000) n`,
			`INSERT INTO daily_use_delta (tenant_id, workflow, day) SELECT $1, 'w', '2026-01-01' FROM generate_series(1, 1000) n`,
			`INSERT INTO notice_delta (tenant_id, event, cause) SELECT $1, 'quota.soft', 'c' FROM generate_series(1, 500) n`,
		} {
			h.Exec(sql, h.Tenant)
		}
		laid = h.Number(`SELECT pg_current_xact_id()::text::bigint`)
		fold()
	}
	rounds := func(n int) {
		t.Helper()
		for range n {
			lay()
		}
		// A fold moves the mark to the oldest transaction of the server that writes, and another test's may be older than the
		// rows. The counts read from there on too. That transaction never becomes an older one, so one wait is enough.
		dispatchtest.Until(t, "all that was folded lies below the marks", func() bool {
			lay()
			return h.Number(`SELECT count(*) FROM folded WHERE before::text::bigint <= $1`, laid) == 0
		})
	}
	count := `SELECT sum(n) FROM tally_delta WHERE tenant_id = 1 AND cohort_id = 0 AND ` + postgres.Unfolded("tally_delta")
	words := []string{"DELETE FROM tally_delta", "DELETE FROM inactive_delta", "DELETE FROM daily_use_delta", "DELETE FROM notice_delta", "SELECT GREATEST("}
	rounds(3)
	before := h.Pages(r, count, words...)
	rounds(20)
	after := h.Pages(r, count, words...)
	h.Exec(`UPDATE folded SET before = '0'`)
	all := h.Pages(r, count, words...)
	for sql, n := range before {
		t.Logf("%d pages read, then %d, and %d from the start on: %.60s", n, after[sql], all[sql], sql)
		if after[sql] > 2*n+20 {
			t.Errorf("%d pages are read, and %d at the start:\n%s", after[sql], n, sql)
		}
		if all[sql] < after[sql]+50 {
			t.Errorf("%d pages are read from the start on, so that the test shows nothing:\n%s", all[sql], sql)
		}
	}
	if n, err := h.Schedules.Forecasts.Stored(t.Context(), h.Tenant); n != 1 || err != nil {
		t.Errorf("%d schedules are counted; %v", n, err)
	}
}

// Periodic looks read ranges of indexes, so that a look costs nothing if nothing is due, however much is stored. No statement reads the
// clock again for each row.
func TestKeepingHouseReadsNoMoreThanIsOver(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.At(3600)})
	r := &dispatchtest.Recorder{Ran: map[string][]any{}}
	config := h.Config.Pool.Config()
	config.ConnConfig.Tracer = r
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traced.Close)
	h.Config.Pool = traced
	d := h.Process()
	look := d.Watchdog()
	for _, do := range []func(context.Context) error{
		d.RunUpkeep, d.OpenStale, d.Notice,
		func(ctx context.Context) error { return look(ctx, time.Now()) },
		func(ctx context.Context) error { _, err := upkeep.Scan(ctx, traced, true); return err },
	} {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	known := regexp.MustCompile(`^(SELECT|WITH|UPDATE|DELETE|INSERT)\b`)
	// These statements find few rows by their owner, and compare the rows with the clock after they have locked them.
	few := regexp.MustCompile(`beat_at|push_load|\bat <|erasing_at|began_at|seen_at|opened_at`)
	asked := 0
	for _, sql := range slices.Sorted(maps.Keys(r.Ran)) {
		if !known.MatchString(sql) || !strings.Contains(sql, "clock_timestamp()") {
			continue
		}
		asked++
		rows, _ := h.Pool.Query(t.Context(), "EXPLAIN "+sql, r.Ran[sql]...) // CollectRows reports the error
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%v:\n%s", err, sql)
		}
		for _, line := range plan {
			if strings.Contains(line, "Filter:") && strings.Contains(line, "clock_timestamp()") && !few.MatchString(line) {
				t.Errorf("a clock is read for each row:\n%s\n%s", line, sql)
			}
		}
	}
	if asked < 10 {
		t.Errorf("only %d statements ask the clock", asked)
	}
}
