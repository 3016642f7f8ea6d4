package upkeep_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/tenants"
)

// Index entries of memberships and moves that ended cannot be removed while an old snapshot is open. Upkeep does not read them again.
func TestEndsOfSchedulesAndMovesDoNotReadEarlierOnesUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r := &dispatchtest.Recorder{Ran: map[string][]any{}}
	h.Config.Settle = func(context.Context, tenants.ID, string, string) error { return nil }
	h.Traced(r)
	d := h.Process()
	h.Put("w", "first", dispatchtest.Rarely("skip"))
	h.OldSnapshot()
	words := []string{"until_at >= $1 ORDER BY", "moved_until >= $1 ORDER BY", "(until_at, cohort_id, phase, schedule_id) >", "(moved_until, tenant_id, id) >"}
	lay := func() { // schedules that have ended, and whose moves have just passed
		t.Helper()
		h.Herd("w", "first", 100)
		h.Exec(`UPDATE member SET until_at = clock_timestamp() - interval '1 millisecond' WHERE tenant_id = $1 AND schedule_id IN (SELECT id FROM schedule WHERE key LIKE 'herd %')`, h.Tenant)
		h.Exec(`UPDATE schedule SET moved_until = clock_timestamp() - interval '1 millisecond' WHERE tenant_id = $1 AND key LIKE 'herd %'`, h.Tenant)
	}
	upkeep := func() {
		t.Helper()
		dispatchtest.Until(t, "no end is left", func() bool { // on a busy machine a look may take so long that a pause follows
			for range 2 {
				if err := d.MeasureHorizon(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.RunUpkeep(t.Context()); err != nil {
				t.Fatal(err)
			}
			return h.Number(`SELECT count(*) FROM member WHERE until_at IS NOT NULL`) == 0
		})
		h.Exec(`DELETE FROM schedule WHERE tenant_id = $1 AND key LIKE 'herd %'`, h.Tenant) // with its moves, which upkeep settles a minute later
	}
	round := func() {
		t.Helper()
		lay()
		upkeep()
	}
	rounds := func(n int) {
		t.Helper()
		for range n {
			round()
		}
		ended := time.Now() // another test's transaction may hold the horizon back
		dispatchtest.Until(t, "a look begins after the last round", func() bool {
			upkeep()
			return r.Began(words[0], 0).After(ended) && r.Began(words[1], 0).After(ended)
		})
		lay() // for the statements that are measured
		upkeep()
	}
	rounds(3)
	before := h.Entries(r, words...)
	rounds(20)
	dispatchtest.Grown(t, before, h.Entries(r, words...))
	for _, word := range words[:3] {
		r.FromLowEnd(word, 0)
	}
	for sql, n := range h.Entries(r, words[:3]...) {
		if n < 1000 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}

// A task that reads in vain for long, as it does under an old snapshot, pauses before it reads again.
func TestTasksThatReadInVainPause(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name, table, sql string
	}{
		{upkeep.Complete, "cohort", "AND (c.shard, c.id) >="},
		{upkeep.CancelOrphans, "buffered", "FROM buffered WHERE orphan"},
		{upkeep.WakeForsaken, "delayed", "WITH RECURSIVE parked"},
		{upkeep.LookForStuck, "tally", "FROM tally t WHERE"},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			h := dispatchtest.New(t)
			d, r := h.Recording()
			task := d.Keeper.Fresh(one.name)
			run := func(ctx context.Context) error {
				_, err := task.Some(ctx)
				return err
			}
			ran := func() (is bool) {
				t.Helper()
				r.Mu.Lock()
				clear(r.Ran)
				r.Mu.Unlock()
				if err := run(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.Mu.Lock()
				defer r.Mu.Unlock()
				for sql := range r.Ran {
					is = is || strings.Contains(sql, one.sql)
				}
				return is
			}
			dispatchtest.Until(t, "a run follows a short one at once", func() bool {
				first := ran()
				return ran() && first
			})
			holder, err := h.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := holder.Exec(t.Context(), `LOCK TABLE `+one.table+` IN ACCESS EXCLUSIVE MODE`); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- run(t.Context()) }()
			dispatchtest.Until(t, "a look takes long", func() bool {
				return h.Number(`
					SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '0.5 seconds'`) > 0
			})
			if err := holder.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if ran() {
				t.Error("it reads again at once")
			}
		})
	}
}

// Schedules past their last time are completed although many that cannot be completed yet come before them.
func TestSchedulesThatCannotBeCompletedYetDoNotStopOthers(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	waits := dispatchtest.Rarely("skip")
	h.Put("w", "waits", waits)
	h.Herd("w", "waits", 5200)
	h.Put("v", "ends", dispatchtest.Daily(8))
	for _, sql := range []string{
		`UPDATE cohort SET next_at = clock_timestamp() - interval '1 hour' WHERE tenant_id = $1 AND workflow = 'w'`, // it was not swept yet
		`UPDATE member SET until_at = clock_timestamp() - interval '10 minutes' WHERE tenant_id = $1 AND cohort_id IN (SELECT id FROM cohort WHERE workflow = 'w')`,
		`UPDATE member SET until_at = clock_timestamp() - interval '1 minute' WHERE tenant_id = $1 AND cohort_id IN (SELECT id FROM cohort WHERE workflow = 'v')`,
	} {
		h.Exec(sql, h.Tenant)
	}
	if err := h.Dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTexts(h, "completed", []string{"ends"}, `SELECT key FROM schedule WHERE status = 'completed'`)
}
