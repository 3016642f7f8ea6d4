package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// Index entries of cohorts that fired cannot be removed while an old snapshot is open. What looks for due cohorts does not read
// them again each time.
func TestLooksForDueCohortsDoNotReadEarlierFiringsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	for i := range 100 {
		h.Put("w", fmt.Sprintf("k%d", i), schedules.Params{Spec: dispatchtest.At(7200 + i)})
	}
	d, r := h.Recording()
	h.OldSnapshot()
	look := func() (due []int16) {
		t.Helper()
		for range 2 {
			if err := d.MeasureHorizon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		due, err := d.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return due
	}
	fire := func(rounds int) {
		t.Helper()
		for range rounds {
			h.Exec(`UPDATE cohort SET next_at = date_trunc('second', clock_timestamp()) - interval '1 s', due_at = clock_timestamp()`)
			dispatchtest.Until(t, "nothing is due", func() bool {
				due := look()
				for _, shard := range due {
					if _, err := d.SweepOnce(t.Context(), shard); err != nil {
						t.Fatal(err)
					}
				}
				return len(due) == 0
			})
		}
		fired := time.Now() // another test's transaction may hold the horizon back
		dispatchtest.Until(t, "a look begins after the last firing", func() bool {
			look()
			if err := d.Watch(t.Context()); err != nil {
				t.Fatal(err)
			}
			const word = "c.due_at, h.due_at, t.due_at, clock"
			return r.Began("c.due_at >= s.at", 1).After(fired) && r.Began(word, 1).After(fired) && r.Began(word, 2).After(fired) && r.Began(word, 3).After(fired)
		})
		for shard := range int16(cohorts.Shards) {
			if _, err := d.SweepOnce(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
		}
	}
	words := []string{"h.due_at, t.due_at, clock", "m.from_at, m.until_at", "FROM fair_turn", "DELETE FROM delayed", "c.due_at >= s.at"}
	fire(3)
	before := h.Entries(r, words...)
	fire(20)
	dispatchtest.Grown(t, before, h.Entries(r, words...))
}

// floorsRise makes the next looks of a process begin at the clock, as they do after some time without anything due.
func floorsRise(h *dispatchtest.Carillon, d *dispatchtest.Process, r *dispatchtest.Recorder) {
	h.T.Helper()
	began := time.Now()
	dispatchtest.Until(h.T, "looks begin at the clock", func() bool { // another test's transaction may hold the horizon back
		lookAgain(h, d)
		return r.Began("c.due_at, h.due_at, t.due_at, clock", 1).After(began)
	})
}

// lookAgain reads the horizon and looks, so that the next look begins where this one ended.
func lookAgain(h *dispatchtest.Carillon, d *dispatchtest.Process) {
	h.T.Helper()
	for range 3 {
		if err := d.MeasureHorizon(h.T.Context()); err != nil {
			h.T.Fatal(err)
		}
		if _, err := d.Look(h.T.Context()); err != nil {
			h.T.Fatal(err)
		}
	}
}

// A transaction that wrote a due time and commits long after it is found by the next look.
func TestLookFindsWhatWasCommittedLongAfterItsDueTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.At(7200)})
	d, r := h.Recording()
	for name, write := range map[string]string{
		"cohort":    `UPDATE cohort SET due_at = clock_timestamp()`,
		"fair_turn": `INSERT INTO fair_turn (shard, tenant_id, due_at) SELECT shard, tenant_id, clock_timestamp() FROM cohort`,
		"delayed": `INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at)
			SELECT c.tenant_id, s.id, '2026-01-01', 0, 1, c.shard, 'retry', clock_timestamp() FROM cohort c JOIN schedule s ON s.cohort_id = c.id`,
	} {
		floorsRise(h, d, r)
		tx, err := h.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), write); err != nil {
			t.Fatal(err)
		}
		lookAgain(h, d)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		due, err := d.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(due) != 1 {
			t.Errorf("%s: the row is not found", name)
		}
		h.Exec(`DELETE FROM fair_turn`)
		h.Exec(`DELETE FROM delayed`)
		h.Exec(`UPDATE cohort SET due_at = clock_timestamp() + interval '1 h'`)
	}
}

// A row that came below the floor by means that the rules do not know is found too.
func TestSearchFindsADueTimeInThePast(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.At(7200)})
	d, r := h.Recording()
	floorsRise(h, d, r)
	h.Exec(`UPDATE cohort SET due_at = clock_timestamp() - interval '1 h'`)
	dispatchtest.Until(t, "the cohort is found", func() bool {
		due, err := d.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(due) == 1
	})
}

// Index entries of leases that ended cannot be removed while an old snapshot is open. The look for leases to end does not read them
// again each time.
func TestTheLookForEndedLeasesDoesNotReadEarlierOnesUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	d, r := h.Recording()
	h.OldSnapshot()
	const word = "SELECT (SELECT until_at FROM lease WHERE until_at <="
	rounds := func(n int) {
		t.Helper()
		for range n {
			h.Exec(`
				INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
				SELECT $1, 'w', clock_timestamp(), clock_timestamp(), 0, '\x0000' FROM generate_series(1, 100)`, h.Tenant)
			dispatchtest.Until(t, "all have ended", func() bool {
				for _, err := range []error{d.MeasureHorizon(t.Context()), d.EndLeases(t.Context())} {
					if err != nil {
						t.Fatal(err)
					}
				}
				return h.Number(`SELECT count(*) FROM lease`) == 0
			})
		}
		ended := time.Now()
		dispatchtest.Until(t, "a look begins after the last lease", func() bool { // another test's transaction may hold the horizon back
			for _, err := range []error{d.MeasureHorizon(t.Context()), d.EndLeases(t.Context())} {
				if err != nil {
					t.Fatal(err)
				}
			}
			return r.Began(word, 0).After(ended)
		})
	}
	rounds(2)
	before := h.Entries(r, word)
	rounds(10)
	dispatchtest.Grown(t, before, h.Entries(r, word))
	r.FromLowEnd(word, 0)
	for sql, n := range h.Entries(r, word) {
		if n < 1000 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}
