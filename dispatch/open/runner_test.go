package open_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// withoutRiver makes each fetch of jobs by River fail.
func withoutRiver(h *dispatchtest.Carillon) {
	h.T.Helper()
	if _, err := h.Pool.Exec(h.T.Context(), `
		CREATE FUNCTION refuse_fetch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no job is fetched'; END $$;
		CREATE TRIGGER refuse_fetch BEFORE UPDATE ON river_job FOR EACH ROW WHEN (NEW.kind = 'open' AND NEW.state = 'running') EXECUTE FUNCTION refuse_fetch()`); err != nil {
		h.T.Fatal(err)
	}
}

// opensSoon waits until one tick of a schedule that fires each second was opened within two seconds. On a busy machine other ticks may be
// late.
func opensSoon(h *dispatchtest.Carillon, key string) {
	h.T.Helper()
	dispatchtest.Until(h.T, "a tick of "+key+" was opened within two seconds", func() bool {
		return slices.ContainsFunc(h.History("w", key), func(one history.Tick) bool { return one.FiredAt.Sub(one.Timestamp) < 2*time.Second })
	})
}

// River's fetch reads the entries of all jobs since an old snapshot was opened. Here it does not work at all.
func TestDueTicksAreOpenedWhileRiverFetchesNoJob(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	withoutRiver(h)
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.EverySecond())
	opensSoon(h, "k")
	if n := h.Number(`SELECT count(*) FROM river_job WHERE state <> 'available' AND kind = 'open'`); n != 0 {
		t.Errorf("River fetched %d jobs", n)
	}
}

func TestDueTicksOfAProcessThatOnlySweepsAreOpenedByAnother(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	withoutRiver(h)
	h.Config.Dispatches = false
	h.Start(h.Process())
	h.Config.Sweeps, h.Config.Dispatches = false, true
	h.Start(h.Process())
	h.Put("w", "k", dispatchtest.EverySecond())
	opensSoon(h, "k")
}

// Once River fetches jobs again, each job finds that its run is open.
func TestJobsOfOpenedRunsEnd(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	withoutRiver(h)
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.EverySecond())
	opensSoon(h, "k")
	if _, err := h.Pool.Exec(t.Context(), `DROP TRIGGER refuse_fetch ON river_job`); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "jobs have ended", func() bool {
		return h.Number(`SELECT count(*) FROM river_job WHERE state = 'completed' AND kind = 'open'`) >= 5
	})
	if n := h.Number(`SELECT count(*) FROM river_job WHERE attempt > 1 AND kind = 'open'`); n != 0 {
		t.Errorf("%d jobs were tried again", n)
	}
	if n := h.Number(`SELECT count(*) - count(DISTINCT (schedule_id, nominal_at)) FROM tick`); n != 0 {
		t.Errorf("%d ticks are doubled", n)
	}
}

// A run that no process opened directly does not wait for its job either: its process died, or had no room for it.
func TestChunksAreOpenedWhoseJobsRiverDoesNotFetch(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	withoutRiver(h)
	for i := range 20 {
		h.Put("w", fmt.Sprint(i), dispatchtest.EverySecond())
	}
	swept := h.Process() // it is not started, and opens nothing
	dispatchtest.Until(t, "chunks are swept", func() bool {
		for shard := range int16(cohorts.Shards) {
			if _, err := swept.SweepOnce(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
		}
		return h.Number(`SELECT count(*) FROM chunk`) > 60
	})
	h.Exec(`UPDATE chunk SET swept_at = swept_at - interval '2 minutes'`) // they have waited for so long that they count as stale
	last := h.Number(`SELECT max(id) FROM chunk`)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "all are opened", func() bool {
		return h.Number(`SELECT count(*) FROM chunk WHERE opened_at IS NULL AND id <= $1`, last) == 0
	})
	if n := h.Number(`SELECT count(*) FROM river_job WHERE state <> 'available' AND kind = 'open'`); n != 0 {
		t.Errorf("River fetched %d jobs", n)
	}
}
