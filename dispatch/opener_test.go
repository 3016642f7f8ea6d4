package dispatch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// withoutRiver has each of River's fetches of jobs fail.
func (h *house) withoutRiver() {
	h.t.Helper()
	if _, err := h.pool.Exec(h.t.Context(), `
		CREATE FUNCTION refuse_fetch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no job is fetched'; END $$;
		CREATE TRIGGER refuse_fetch BEFORE UPDATE ON river_job FOR EACH ROW WHEN (NEW.kind = 'open' AND NEW.state = 'running') EXECUTE FUNCTION refuse_fetch()`); err != nil {
		h.t.Fatal(err)
	}
}

// opensSoon waits until a tick of a schedule that fires each second was opened as soon as it was to be: on a machine that does much
// else others are late.
func (h *house) opensSoon(key string) {
	h.t.Helper()
	until(h.t, "a tick of "+key+" was opened within two seconds", func() bool {
		return slices.ContainsFunc(h.history("w", key), func(one history.Tick) bool { return one.FiredAt.Sub(one.Timestamp) < 2*time.Second })
	})
}

// River's fetch reads the entries of all jobs since an old snapshot was opened. Here it does not work at all.
func TestDueTicksAreOpenedWhileRiverFetchesNoJob(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.withoutRiver()
	h.start(h.dispatch)
	h.put("w", "k", everySecond())
	h.opensSoon("k")
	if n := h.number(`SELECT count(*) FROM river_job WHERE state <> 'available' AND kind = 'open'`); n != 0 {
		t.Errorf("River fetched %d jobs", n)
	}
}

func TestDueTicksOfAProcessThatOnlySweepsAreOpenedByAnother(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.withoutRiver()
	h.config.Dispatches = false
	h.start(h.process())
	h.config.Sweeps, h.config.Dispatches = false, true
	h.start(h.process())
	h.put("w", "k", everySecond())
	h.opensSoon("k")
}

// Once River fetches jobs again, each job finds that its run is open.
func TestJobsOfOpenedRunsEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.withoutRiver()
	h.start(h.dispatch)
	h.put("w", "k", everySecond())
	h.opensSoon("k")
	if _, err := h.pool.Exec(t.Context(), `DROP TRIGGER refuse_fetch ON river_job`); err != nil {
		t.Fatal(err)
	}
	until(t, "jobs have ended", func() bool {
		return h.number(`SELECT count(*) FROM river_job WHERE state = 'completed' AND kind = 'open'`) >= 5
	})
	if n := h.number(`SELECT count(*) FROM river_job WHERE attempt > 1 AND kind = 'open'`); n != 0 {
		t.Errorf("%d jobs were tried again", n)
	}
	if n := h.number(`SELECT count(*) - count(DISTINCT (schedule_id, nominal_at)) FROM tick`); n != 0 {
		t.Errorf("%d ticks are doubled", n)
	}
}

// A run that no process opened directly does not wait for its job either: its process died, or had no room for it.
func TestChunksAreOpenedWhoseJobsRiverDoesNotFetch(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.withoutRiver()
	for i := range 20 {
		h.put("w", fmt.Sprint(i), everySecond())
	}
	swept := h.process() // it is not started, and opens nothing
	until(t, "chunks are swept", func() bool {
		for shard := range int16(cohorts.Shards) {
			if _, err := swept.SweepOnce(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
		}
		return h.number(`SELECT count(*) FROM chunk`) > 60
	})
	last := h.number(`SELECT max(id) FROM chunk`)
	h.start(h.dispatch)
	until(t, "all are opened", func() bool {
		return h.number(`SELECT count(*) FROM chunk WHERE opened_at IS NULL AND id <= $1`, last) == 0
	})
	if n := h.number(`SELECT count(*) FROM river_job WHERE state <> 'available' AND kind = 'open'`); n != 0 {
		t.Errorf("River fetched %d jobs", n)
	}
}
