package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// recording is a process on a pool of its own that keeps the statements it runs.
func (h *house) recording() (*process, *recorder) {
	h.t.Helper()
	r := &recorder{ran: map[string][]any{}}
	h.traced(r)
	return h.process(), r
}

// oldSnapshot holds a snapshot of the database open until the test ends.
func (h *house) oldSnapshot() {
	h.t.Helper()
	conn, err := pgx.ConnectConfig(h.t.Context(), h.pool.Config().ConnConfig.Copy())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close(h.t.Context()) })
	for _, sql := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM cohort`} {
		if _, err := conn.Exec(h.t.Context(), sql); err != nil {
			h.t.Fatal(err)
		}
	}
}

// entries returns how many index entries each statement that was recorded and contains one of some words reads now, dead ones
// included. One that is about a shard is run for every shard.
func (h *house) entries(r *recorder, words ...string) map[string]int {
	h.t.Helper()
	conn, err := h.pool.Acquire(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Release()
	total := func() (n int) {
		h.t.Helper()
		if _, err := conn.Exec(h.t.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
			h.t.Fatal(err)
		}
		err := conn.QueryRow(h.t.Context(), `SELECT sum(idx_tup_read) FROM pg_stat_user_indexes`).Scan(&n)
		if err != nil {
			h.t.Fatal(err)
		}
		return n
	}
	read := map[string]int{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for sql, args := range r.ran {
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(sql, word) }) {
			continue
		}
		before := total()
		tx, err := conn.Begin(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		args, runs := slices.Clone(args), 1
		ofShard := false
		if len(args) > 0 {
			_, ofShard = args[0].(int16)
		}
		if ofShard {
			runs = cohorts.Shards
		}
		for run := range runs {
			if ofShard {
				args[0] = int16(run)
			}
			if _, err := tx.Exec(h.t.Context(), sql, args...); err != nil {
				h.t.Fatalf("%v:\n%s", err, sql)
			}
		}
		_ = tx.Rollback(h.t.Context())
		read[sql] = total() - before
	}
	if len(read) < len(words) {
		h.t.Fatalf("%d statements contain %q", len(read), words)
	}
	return read
}

// grown reports statements that read more than twice as much as before.
func grown(t *testing.T, before, after map[string]int) {
	t.Helper()
	for sql, n := range before {
		t.Logf("%d index entries read, then %d: %.60s", n, after[sql], sql)
		if after[sql] > 2*n+100 {
			t.Errorf("%d index entries read, and %d at the start:\n%s", after[sql], n, sql)
		}
	}
}

// began returns the earliest moment from which the last run of the statement with a word read, by one of its arguments.
func (r *recorder) began(word string, arg int) (first time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sql, args := range r.ran {
		if !strings.Contains(sql, word) {
			continue
		}
		switch from := args[arg].(type) {
		case time.Time:
			return from
		case []time.Time:
			return slices.MinFunc(from, time.Time.Compare)
		}
	}
	return first
}

// Index entries of cohorts that fired cannot be removed while an old snapshot is open. What looks for due cohorts does not read
// them again each time.
func TestLooksForDueCohortsDoNotReadEarlierFiringsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for i := range 100 {
		h.put("w", fmt.Sprintf("k%d", i), schedules.Params{Spec: at(7200 + i)})
	}
	d, r := h.recording()
	h.oldSnapshot()
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
			h.exec(`UPDATE cohort SET next_at = date_trunc('second', clock_timestamp()) - interval '1 s', due_at = clock_timestamp()`)
			until(t, "nothing is due", func() bool {
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
		until(t, "a look begins after the last firing", func() bool {
			look()
			if err := d.Watch(t.Context()); err != nil {
				t.Fatal(err)
			}
			const word = "c.due_at, h.due_at, t.due_at, clock"
			return r.began("c.due_at >= s.at", 1).After(fired) && r.began(word, 1).After(fired) && r.began(word, 2).After(fired) && r.began(word, 3).After(fired)
		})
		for shard := range int16(cohorts.Shards) {
			if _, err := d.SweepOnce(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
		}
	}
	words := []string{"h.due_at, t.due_at", "m.from_at, m.until_at", "FROM turn", "DELETE FROM held", "c.due_at >= s.at"}
	fire(3)
	before := h.entries(r, words...)
	fire(20)
	grown(t, before, h.entries(r, words...))
}

// floorsRise makes the next looks of a process begin at the clock, as they do after some time without anything due.
func (h *house) floorsRise(d *process, r *recorder) {
	h.t.Helper()
	began := time.Now()
	until(h.t, "looks begin at the clock", func() bool { // another test's transaction may hold the horizon back
		h.lookAgain(d)
		return r.began("c.due_at, h.due_at, t.due_at, clock", 1).After(began)
	})
}

// lookAgain reads the horizon and looks, so that the next look begins where this one ended.
func (h *house) lookAgain(d *process) {
	h.t.Helper()
	for range 3 {
		if err := d.MeasureHorizon(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		if _, err := d.Look(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	}
}

// A transaction that wrote a due time and commits long after it is found by the next look.
func TestLookFindsWhatWasCommittedLongAfterItsDueTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", schedules.Params{Spec: at(7200)})
	d, r := h.recording()
	for name, write := range map[string]string{
		"cohort": `UPDATE cohort SET due_at = clock_timestamp()`,
		"turn":   `INSERT INTO turn (shard, tenant_id, due_at) SELECT shard, tenant_id, clock_timestamp() FROM cohort`,
		"held": `INSERT INTO held (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at)
			SELECT c.tenant_id, s.id, '2026-01-01', 0, 1, c.shard, 'retry', clock_timestamp() FROM cohort c JOIN schedule s ON s.cohort_id = c.id`,
	} {
		h.floorsRise(d, r)
		tx, err := h.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), write); err != nil {
			t.Fatal(err)
		}
		h.lookAgain(d)
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
		h.exec(`DELETE FROM turn`)
		h.exec(`DELETE FROM held`)
		h.exec(`UPDATE cohort SET due_at = clock_timestamp() + interval '1 h'`)
	}
}

// A row that came below the floor by means that the rules do not know is found too.
func TestSearchFindsADueTimeInThePast(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", schedules.Params{Spec: at(7200)})
	d, r := h.recording()
	h.floorsRise(d, r)
	h.exec(`UPDATE cohort SET due_at = clock_timestamp() - interval '1 h'`)
	until(t, "the cohort is found", func() bool {
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
	h := newHouse(t)
	d, r := h.recording()
	h.oldSnapshot()
	const word = "SELECT (SELECT until_at FROM lease WHERE until_at <="
	rounds := func(n int) {
		t.Helper()
		for range n {
			h.exec(`
				INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
				SELECT $1, 'w', clock_timestamp(), clock_timestamp(), 0, '\x0000' FROM generate_series(1, 100)`, h.tenant)
			until(t, "all have ended", func() bool {
				for _, err := range []error{d.MeasureHorizon(t.Context()), d.EndLeases(t.Context())} {
					if err != nil {
						t.Fatal(err)
					}
				}
				return h.number(`SELECT count(*) FROM lease`) == 0
			})
		}
		ended := time.Now()
		until(t, "a look begins after the last lease", func() bool { // another test's transaction may hold the horizon back
			for _, err := range []error{d.MeasureHorizon(t.Context()), d.EndLeases(t.Context())} {
				if err != nil {
					t.Fatal(err)
				}
			}
			return r.began(word, 0).After(ended)
		})
	}
	rounds(2)
	before := h.entries(r, word)
	rounds(10)
	grown(t, before, h.entries(r, word))
	r.fromLowEnd(word, 0)
	for sql, n := range h.entries(r, word) {
		if n < 1000 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}
