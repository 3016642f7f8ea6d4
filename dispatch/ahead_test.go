package dispatch_test

import "testing"

// The database's clock may step back after a sweep. No tick is handed out before its nominal time: its chunk is left to a later try.
func TestAChunkWhoseTimeLiesAheadIsLeft(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sweptDaily()
	id := h.chunks()[0]
	h.exec(`UPDATE chunk SET nominal_at = nominal_at + interval '2 days'`)
	if err := h.dispatch.Open(t.Context(), id); err == nil {
		t.Error("it is opened before its time")
	}
	if n := h.number(`SELECT count(*) FROM tick`); n != 0 || len(h.chunks()) != 1 {
		t.Errorf("%d ticks are made, and %d chunks are unopened", n, len(h.chunks()))
	}
	h.exec(`UPDATE chunk SET nominal_at = nominal_at - interval '2 days'`)
	if err := h.dispatch.Open(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if n := h.number(`SELECT count(*) FROM tick WHERE fired_at >= nominal_at`); n != 1 || len(h.chunks()) != 0 {
		t.Errorf("%d ticks are made, and %d chunks are unopened", n, len(h.chunks()))
	}
}
