package cohorts_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// counted counts the queries of a database.
type counted struct {
	postgres.DB
	queries int
}

func (c *counted) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.queries++
	return c.DB.Query(ctx, sql, args...)
}

func (c *counted) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.queries++
	return c.DB.QueryRow(ctx, sql, args...)
}

// The cache keeps the timings of cohorts that an older tz database timed, or that have no zone. It does not keep those of zones that changed.
func TestTimingsOfAnOlderTZDatabaseAreKept(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	archive, err := os.ReadFile("../../calendar/testdata/zones-2025b.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	h.Exec(`INSERT INTO tzdata (version, archive) VALUES ('2025b', $1)`, archive)
	h.Put("same", schedulestest.ByCron("0 12 * * *"))
	h.Put("delay", schedulestest.Spec(calendar.Spec{Intervals: []calendar.Interval{{Every: "1h", Mode: "fixed_delay"}}}))
	moved := schedulestest.Cron("0 12 * * *")
	moved.Timezone = "America/Vancouver"
	h.Put("moved", schedulestest.Spec(moved))
	h.Exec(`UPDATE cohort SET tzdata = '2025b' WHERE tzdata <> ''`)
	ts := cohorts.NewTimings()
	read := func(key string) (*calendar.Timing, int) {
		db := &counted{DB: h.Pool}
		cohort, shard := int64(schedulestest.One[int](h, `SELECT cohort_id FROM schedule WHERE key = $1`, key)), int16(schedulestest.One[int](h, `SELECT shard FROM schedule WHERE key = $1`, key))
		found, _, err := ts.ByCohort(t.Context(), db, h.Acme, []int16{shard}, []int64{cohort})
		if err != nil || found[cohort] == nil {
			t.Fatalf("%s: got %v, %v", key, found, err)
		}
		return found[cohort], db.queries
	}
	for _, key := range []string{"same", "delay"} {
		_, first := read(key)
		if _, again := read(key); first == 0 || again != 0 {
			t.Errorf("%s: %d queries and then %d, want none the second time", key, first, again)
		}
	}
	if timing, _ := read("moved"); timing.Zones().Version() != "2025b" {
		t.Errorf("a cohort in a changed zone is timed by %s before it is retimed", timing.Zones().Version())
	}
	h.Exec(`UPDATE cohort SET tzdata = $1 WHERE tzdata = '2025b'`, calendar.InForce().Version())
	if timing, _ := read("moved"); timing.Zones() != calendar.InForce() {
		t.Errorf("a cohort in a changed zone is timed by %s after it is retimed", timing.Zones().Version())
	}
}

// A timing that several cohorts share is read once, from the first of these cohorts. If that cohort's timing is broken or deleted, the
// others still get theirs.
func TestTimingsThatAreAlikeAreReadOnce(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	for _, workflow := range []string{"broken", "gone", "well", "well_too"} {
		if _, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: workflow, Key: "k"}, schedulestest.ByCron("0 12 * * *"), "ann", version.Precondition{}); err != nil {
			t.Fatal(err)
		}
	}
	rows, _ := h.Pool.Query(t.Context(), `SELECT tenant_id, shard, id, hash, revision, tzdata FROM cohort ORDER BY workflow`) // CollectRows reports the error
	names, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c cohorts.CohortTiming, err error) {
		return c, row.Scan(&c.Tenant, &c.Shard, &c.ID, &c.Hash, &c.Revision, &c.TZData)
	})
	if err != nil || len(names) != 4 {
		t.Fatalf("%d cohorts, %v", len(names), err)
	}
	broken, gone := names[0].ID, names[1].ID
	h.Exec(`UPDATE cohort_timing SET timing = 'not a timing' WHERE workflow = 'broken'`)
	h.Exec(`DELETE FROM cohort_timing WHERE workflow = 'gone'`)
	for range len(names) {
		names = append(names[1:], names[0])
		timings, bad, err := cohorts.NewTimings().Of(t.Context(), h.Pool, slices.Clone(names))
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
