package chunk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// Index entries of chunks that are opened and done cannot be removed while an old snapshot is open. A look for unopened chunks, or for
// open chunks to take over, does not read them again. A chunk that no process can open does not change this.
func TestLooksForChunksDoNotReadEarlierOnesUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	d, r := h.Recording()
	if err := d.TakeOwned(t.Context()); err != nil { // it joins the processes
		t.Fatal(err)
	}
	self := int64(h.Number(`SELECT max(id) FROM process`))
	const dead = 77
	h.Exec(`INSERT INTO process (id, name, place, pid, sweeps, dispatches, beat_at) OVERRIDING SYSTEM VALUE VALUES ($1, 'x', '', 1, true, true, now() - interval '20 seconds')`, dead)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		VALUES (0, $1, 0, 'none', now(), 1, 1, 1, '\xff', now() - interval '1 hour', '{}')`, h.Tenant) // no schedule can be read of it
	h.Exec(`ANALYZE chunk`)
	h.OldSnapshot()
	watch := d.Watchdog()
	words := []string{"swept_at IS NOT NULL AND id >= $1\n", "AND id >= $4 AND", "e.first_id <= c.last_id", "owner = $1 AND opened_at >= $3", "o.owner, c.opened_at", "lead(id"}
	at := []int{0, 3, 2, 2, 1, -1} // the index of the argument that says where each begins to read
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
			h.ChunksGo(self, 200)
			h.ChunksGo(dead, 200)
			look()
		}
		gone, last := time.Now(), int64(h.Number(`SELECT max(id) FROM chunk`))
		dispatchtest.Until(t, "all looks begin after the last chunk", func() bool {
			look()
			for i, word := range words {
				if at[i] >= 0 && !r.Began(word, at[i]).After(gone) && r.BeganAt(word, at[i]) <= last {
					return false
				}
			}
			return true
		})
		r.Mu.Lock()
		defer r.Mu.Unlock()
		for sql, args := range r.Ran {
			if strings.Contains(sql, words[3]) {
				args[0] = self // beside much other load the process may have joined again, with another number
			}
		}
	}
	rounds(3)
	before := h.Entries(r, words...)
	rounds(10)
	dispatchtest.Grown(t, before, h.Entries(r, words...))

	for i, word := range words[:len(words)-1] {
		r.FromLowEnd(word, at[i])
	}
	for sql, n := range h.Entries(r, words[:len(words)-1]...) {
		if n < 1000 && !strings.Contains(sql, words[2]) { // words[2] looks for chunks before the one that cannot be opened: there is none
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}

// A chunk whose transaction ends long after others have opened later chunks is not missed.
func TestAChunkThatIsCommittedLateIsFound(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	d, r := h.Recording()
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var late int64
	if err := tx.QueryRow(t.Context(), `
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 0, $1, 0, 'small', now(), 1, 1, 1, '', clock_timestamp(), '{}' WHERE pg_current_xact_id() IS NOT NULL
		RETURNING id`, h.Tenant).Scan(&late); err != nil {
		t.Fatal(err)
	}
	const word = "swept_at IS NOT NULL AND id >= $1\n"
	look := func() (from int64) {
		t.Helper()
		for range 3 {
			h.ChunksGo(1, 10)
			for _, err := range []error{d.MeasureHorizon(t.Context()), d.CountUnopened(t.Context())} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return r.BeganAt(word, 0)
	}
	if from := look(); from > late {
		t.Errorf("reading begins at %d while the chunk %d is not committed", from, late)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "reading begins after the chunk", func() bool { return look() > late })
}
