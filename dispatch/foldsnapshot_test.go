package dispatch_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/forecast"
)

// pages returns how many pages some statements read: those that were recorded and contain one of some words, and one more.
func (h *house) pages(r *recorder, more string, words ...string) map[string]int {
	h.t.Helper()
	r.mu.Lock()
	ran := map[string][]any{more: nil}
	for sql, args := range r.ran {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(sql, word) }) {
			ran[sql] = args
		}
	}
	r.mu.Unlock()
	if len(ran) < len(words)+1 {
		h.t.Fatalf("%d statements contain %q", len(ran)-1, words)
	}
	read := map[string]int{}
	for sql, args := range ran {
		tx, err := h.pool.Begin(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		var text []byte
		err = tx.QueryRow(h.t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&text)
		if err == nil {
			err = json.Unmarshal(text, &plans)
		}
		if err != nil {
			h.t.Fatalf("%v:\n%s", err, sql)
		}
		_ = tx.Rollback(h.t.Context())
		read[sql] = plans[0].Plan.Hit + plans[0].Plan.Read
	}
	return read
}

// Rows that are folded cannot be removed while an old snapshot is open. Neither the next fold nor who counts reads them.
func TestFoldsDoNotReadWhatWasFoldedUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", schedules.Params{Spec: at(7200)})
	d, r := h.recording()
	h.oldSnapshot()
	fold := func() {
		t.Helper()
		for _, err := range []error{forecast.FoldTallies(t.Context(), h.config.Pool), d.FoldUse(t.Context()), d.Notice(t.Context())} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.schedules.Forecasts.Stored(t.Context(), h.tenant); err != nil {
			t.Fatal(err)
		}
	}
	lay := func() {
		t.Helper()
		for _, sql := range []string{
			`INSERT INTO tally_delta (tenant_id, cohort_id, n) SELECT $1, 0, CASE WHEN n % 2 = 0 THEN 1 ELSE -1 END FROM generate_series(1, 1000) n`,
			`INSERT INTO idle_delta (tenant_id, workflow, state, n) SELECT $1, 'w', 'paused', CASE WHEN n % 2 = 0 THEN 1 ELSE -1 END FROM generate_series(1, 1000) n`,
			`INSERT INTO daily_use_delta (tenant_id, workflow, day) SELECT $1, 'w', '2026-01-01' FROM generate_series(1, 1000) n`,
			`INSERT INTO happening (tenant_id, event, cause) SELECT $1, 'quota.soft', 'c' FROM generate_series(1, 500) n`,
		} {
			h.exec(sql, h.tenant)
		}
		fold()
	}
	rounds := func(n int) {
		t.Helper()
		for range n {
			lay()
		}
		last := h.number(`SELECT pg_current_xact_id()::text::bigint`)
		// A fold moves the mark after what it has folded, however often it folds. Another test's transaction may hold the mark back.
		until(t, "all that was folded lies below the mark", func() bool {
			lay()
			return h.number(`SELECT count(*) FROM folded WHERE before::text::bigint <= $1`, last) == 0
		})
	}
	count := `SELECT sum(n) FROM tally_delta WHERE tenant_id = 1 AND cohort_id = 0 AND ` + postgres.Unfolded("tally_delta")
	words := []string{"DELETE FROM tally_delta", "DELETE FROM idle_delta", "DELETE FROM daily_use_delta", "DELETE FROM happening", "SELECT GREATEST("}
	rounds(3)
	before := h.pages(r, count, words...)
	rounds(20)
	after := h.pages(r, count, words...)
	h.exec(`UPDATE folded SET before = '0'`)
	all := h.pages(r, count, words...)
	for sql, n := range before {
		t.Logf("%d pages read, then %d, and %d from the start on: %.60s", n, after[sql], all[sql], sql)
		if after[sql] > 2*n+20 {
			t.Errorf("%d pages are read, and %d at the start:\n%s", after[sql], n, sql)
		}
		if all[sql] < after[sql]+50 {
			t.Errorf("%d pages are read from the start on, so that the test shows nothing:\n%s", all[sql], sql)
		}
	}
	if n, err := h.schedules.Forecasts.Stored(t.Context(), h.tenant); n != 1 || err != nil {
		t.Errorf("%d schedules are counted; %v", n, err)
	}
}
