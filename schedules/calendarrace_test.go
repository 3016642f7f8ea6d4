package schedules_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// A calendar is deleted while a PUT that names it is under way: the PUT is refused, and it is the client's to mend.
func TestAPutThatLosesItsCalendarIsRefused(t *testing.T) {
	t.Parallel()
	for status, p := range map[string]schedules.Params{
		"active": without("off"),
		"paused": func() schedules.Params { p := without("off"); p.Status = "paused"; return p }(),
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			if _, _, err := h.calendars.Put(t.Context(), h.acme, "off", calendars.Params{}, "ann"); err != nil {
				t.Fatal(err)
			}
			tx, err := h.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			for _, sql := range []string{ // as a deletion does it
				`UPDATE calendar_revision SET revision = revision + 1`,
				`UPDATE calendar SET until = (SELECT revision FROM calendar_revision), ended_at = clock_timestamp()`,
			} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			go func() {
				_, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "k"}, p, "ann", version.Precondition{})
				done <- err
			}()
			h.waits(done)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			faulty(t, <-done, 422, "unknown_calendar")
		})
	}
}

// waits waits until a connection waits for a lock, or what is under way ends without waiting.
func (h *home) waits(done chan error) {
	h.t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for one[int](h, `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`) == 0 {
		select {
		case err := <-done:
			done <- err
			return
		case <-h.t.Context().Done():
			h.t.Fatal("nothing waits for a lock")
		case <-again.C:
		}
	}
}

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

// The timings of cohorts that an older tz database timed, or none, are kept like those of others, but for zones that changed.
func TestTimingsOfAnOlderTZDatabaseAreKept(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	archive, err := os.ReadFile("../calendar/testdata/zones-2025b.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	h.exec(`INSERT INTO tzdata (version, archive) VALUES ('2025b', $1)`, archive)
	h.put("same", spec(cron("0 12 * * *")))
	h.put("delay", spec(calendar.Spec{Intervals: []calendar.Interval{{Every: "1h", Mode: "fixed_delay"}}}))
	moved := cron("0 12 * * *")
	moved.Timezone = "America/Vancouver"
	h.put("moved", spec(moved))
	h.exec(`UPDATE cohort SET tzdata = '2025b' WHERE tzdata <> ''`)
	ts := cohorts.NewTimings()
	read := func(key string) (*calendar.Timing, int) {
		db := &counted{DB: h.pool}
		cohort, shard := int64(one[int](h, `SELECT cohort_id FROM schedule WHERE key = $1`, key)), int16(one[int](h, `SELECT shard FROM schedule WHERE key = $1`, key))
		found, _, err := ts.ByCohort(t.Context(), db, h.acme, []int16{shard}, []int64{cohort})
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
	h.exec(`UPDATE cohort SET tzdata = $1 WHERE tzdata = '2025b'`, calendar.InForce().Version())
	if timing, _ := read("moved"); timing.Zones() != calendar.InForce() {
		t.Errorf("a cohort in a changed zone is timed by %s after it is retimed", timing.Zones().Version())
	}
}
