package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// chunksGo has chunks of a process swept, opened and done, each in a transaction of its own.
func (h *house) chunksGo(owner int64, n int) {
	h.t.Helper()
	h.exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT n % 4, $1, 0, 'small', now(), n, n, 1, '', clock_timestamp(), '{}' FROM generate_series(1, $2::int) n`, h.tenant, n)
	h.exec(`UPDATE chunk SET opened_at = clock_timestamp(), owner = $1, epoch = 1 WHERE opened_at IS NULL AND lane = 'small'`, owner)
	h.exec(`UPDATE chunk SET done_at = clock_timestamp() WHERE owner = $1 AND done_at IS NULL`, owner)
}

// Index entries of chunks that are opened and done cannot be removed while an old snapshot is open. What looks for unopened
// chunks, or for open ones to take, does not read them again each time. A chunk that nobody opens changes nothing in that.
func TestLooksForChunksDoNotReadEarlierOnesUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d, r := h.recording()
	if err := d.TakeOwned(t.Context()); err != nil { // it joins the processes
		t.Fatal(err)
	}
	self := int64(h.number(`SELECT max(id) FROM process`))
	const dead = 77
	h.exec(`INSERT INTO process (id, name, place, pid, sweeps, dispatches, beat_at) OVERRIDING SYSTEM VALUE VALUES ($1, 'x', '', 1, true, true, now() - interval '20 seconds')`, dead)
	h.exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		VALUES (0, $1, 0, 'none', now(), 1, 1, 1, '\xff', now() - interval '1 hour', '{}')`, h.tenant) // no schedule can be read of it
	h.exec(`ANALYZE chunk`)
	h.oldSnapshot()
	watch := d.Watchdog()
	words := []string{"swept_at IS NOT NULL AND id >= $1\n", "AND id >= $4 AND", "e.first_id <= c.last_id", "owner = $1 AND opened_at >= $3", "o.owner, c.opened_at", "lead(id"}
	at := []int{0, 3, 2, 2, 1, -1} // their arguments that tell where to begin
	look := func() {
		t.Helper()
		for range 2 {
			if err := d.MeasureHorizon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			_ = d.OpenStale(t.Context()) // of the chunk that cannot be opened
			for what, err := range map[string]error{"count": d.CountUnopened(t.Context()), "take": d.TakeOwned(t.Context()), "watch": watch(t.Context(), time.Now())} {
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
		}
	}
	rounds := func(n int) {
		t.Helper()
		for range n {
			h.chunksGo(self, 200)
			h.chunksGo(dead, 200)
			look()
		}
		gone, last := time.Now(), int64(h.number(`SELECT max(id) FROM chunk`))
		until(t, "all looks begin after the last chunk", func() bool {
			look()
			for i, word := range words {
				if at[i] >= 0 && !r.began(word, at[i]).After(gone) && r.beganAt(word, at[i]) <= last {
					return false
				}
			}
			return true
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		for sql, args := range r.ran {
			if strings.Contains(sql, words[3]) {
				args[0] = self // beside much other load the process may have joined again, with another number
			}
		}
	}
	rounds(3)
	before := h.entries(r, words...)
	rounds(10)
	grown(t, before, h.entries(r, words...))

	for i, word := range words[:len(words)-1] {
		r.fromLowEnd(word, at[i])
	}
	for sql, n := range h.entries(r, words[:len(words)-1]...) {
		if n < 1000 && !strings.Contains(sql, words[2]) { // which looks for chunks before the one that cannot be opened, and that is the first
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}

// fromLowEnd makes the statement with a word read from the low end of its index when it is run again.
func (r *recorder) fromLowEnd(word string, arg int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sql, args := range r.ran {
		if !strings.Contains(sql, word) {
			continue
		}
		args = slices.Clone(args)
		switch from := args[arg].(type) {
		case time.Time:
			args[arg] = time.Time{}
		case []time.Time:
			args[arg] = make([]time.Time, len(from))
		case int64:
			args[arg] = int64(0)
		case []int64:
			args[arg] = make([]int64, len(from))
		}
		r.ran[sql] = args
	}
}

// beganAt is like began, for a statement that begins at a number.
func (r *recorder) beganAt(word string, arg int) (from int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sql, args := range r.ran {
		if strings.Contains(sql, word) {
			from, _ = args[arg].(int64)
		}
	}
	return from
}

// A chunk whose transaction ends long after others have opened later chunks is not missed.
func TestAChunkThatIsCommittedLateIsFound(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d, r := h.recording()
	tx, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var late int64
	if err := tx.QueryRow(t.Context(), `
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 0, $1, 0, 'small', now(), 1, 1, 1, '', clock_timestamp(), '{}' WHERE pg_current_xact_id() IS NOT NULL
		RETURNING id`, h.tenant).Scan(&late); err != nil {
		t.Fatal(err)
	}
	const word = "swept_at IS NOT NULL AND id >= $1\n"
	look := func() (from int64) {
		t.Helper()
		for range 3 {
			h.chunksGo(1, 10)
			for _, err := range []error{d.MeasureHorizon(t.Context()), d.CountUnopened(t.Context())} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return r.beganAt(word, 0)
	}
	if from := look(); from > late {
		t.Errorf("reading begins at %d while the chunk %d is not committed", from, late)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "reading begins after the chunk", func() bool { return look() > late })
}
