package schedules_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// A timing that several cohorts share is read once, of whichever is asked for first; where that one's is broken, or gone,
// the others' are what they are.
func TestTimingsThatAreAlikeAreReadOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, workflow := range []string{"broken", "gone", "well", "well_too"} {
		if _, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: workflow, Key: "k"}, spec(cron("0 12 * * *")), "ann", version.Precondition{}); err != nil {
			t.Fatal(err)
		}
	}
	rows, _ := h.pool.Query(t.Context(), `SELECT tenant_id, shard, id, hash, revision, tzdata FROM cohort ORDER BY workflow`) // CollectRows reports the error
	names, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c cohorts.CohortTiming, err error) {
		return c, row.Scan(&c.Tenant, &c.Shard, &c.ID, &c.Hash, &c.Revision, &c.TZData)
	})
	if err != nil || len(names) != 4 {
		t.Fatalf("%d cohorts, %v", len(names), err)
	}
	broken, gone := names[0].ID, names[1].ID
	h.exec(`UPDATE cohort_timing SET timing = 'not a timing' WHERE workflow = 'broken'`)
	h.exec(`DELETE FROM cohort_timing WHERE workflow = 'gone'`)
	for range len(names) {
		names = append(names[1:], names[0])
		timings, bad, err := cohorts.NewTimings().Of(t.Context(), h.pool, slices.Clone(names))
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if name.ID != broken && name.ID != gone && (timings[i] == nil || bad[name.ID] != nil) {
				t.Errorf("cohort %d of %v is broken: %v", name.ID, names, bad[name.ID])
			}
		}
		if names[0].ID != broken && names[0].ID != gone && (slices.Contains(timings, nil) || len(bad) > 0) {
			t.Errorf("more than the first of %v was read: %v", names, bad)
		}
		if names[0].ID == broken && (timings[0] != nil || bad[broken] == nil) || names[0].ID == gone && timings[0] != nil {
			t.Errorf("the first of %v: got %v, %v", names, timings[0], bad)
		}
	}
}
