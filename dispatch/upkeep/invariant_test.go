package upkeep_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/schedules"
)

// A scan of a healthy Carillon finds nothing; each promise that is broken by hand is found, by its name.
func TestAScanFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.At(3600)})
	scan := func() map[string]int {
		t.Helper()
		all, err := upkeep.Scan(t.Context(), h.Pool, true)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for _, b := range all {
			if b.Meaning == "" {
				t.Errorf("%s has no meaning", b.Name)
			}
			if b.Rows > 0 {
				found[b.Name] = b.Rows
			}
		}
		return found
	}
	if found := scan(); len(found) > 0 {
		t.Fatalf("of a healthy Carillon: %v", found)
	}
	const tick = `
		INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, occurrence, last_at, chunk_id, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
		SELECT tenant_id, id, date_trunc('second', now()) - $1 * interval '1 minute', 0, 1, 0, $2, $3, $4, now() - $5 * interval '1 minute',
			CASE WHEN $6 = 1 THEN NULL ELSE now() END, 0, 1, $6, 0, 0, 0
		FROM schedule`
	for _, c := range []struct {
		name string
		sql  string
		args []any
	}{
		{"overdue_cohorts", `UPDATE cohort SET due_at = now() - interval '2 minutes'`, nil},
		{"unopened_chunks", `
			INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
			SELECT 0, id, 0, 'small', now(), 1, 1, 1, '', now() - interval '2 minutes', '{}' FROM tenant`, nil},
		{"orphaned_chunks", `UPDATE chunk SET opened_at = now() - interval '2 minutes', owner = 0`, nil},
		{"overdue_held", `
			INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at)
			SELECT id, 1, now(), 0, 1, 5, 'retry', now() - interval '2 minutes' FROM tenant`, nil},
		{"early_ticks", tick, []any{10, nil, nil, nil, 11, 2}},
		{"broken_sequences", tick, []any{20, 1, nil, nil, 20, 2}},
		{"broken_sequences", tick, []any{19, 3, time.Now(), nil, 19, 2}},
		{"forgotten_pushes", tick, []any{30, nil, nil, 1 << 40, 30, 1}},
		{"idle_schedules", `DELETE FROM member`, nil},
		{"stray_members", `
			INSERT INTO member (cohort_id, phase, schedule_id, tenant_id, from_at)
			SELECT 1, 1, 1 << 20, id, now() FROM tenant`, nil},
		{"miscounted_bytes", `UPDATE schedule SET payload = '"more"'`, nil},
	} {
		if _, err := h.Pool.Exec(t.Context(), c.sql, c.args...); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if c.args != nil && c.args[1] == 1 {
			continue // the first of two
		}
		if found := scan(); found[c.name] != 1 {
			t.Errorf("%s: got %v", c.name, found)
		}
	}
}
