package open_test

import (
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// The database's clock may step back after a sweep. No tick is handed out before its nominal time: its chunk is left to a later try.
func TestAChunkWhoseTimeLiesAheadIsLeft(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	sweptDaily(h)
	id := h.Chunks()[0]
	h.Exec(`UPDATE chunk SET nominal_at = nominal_at + interval '2 days'`)
	if err := h.Dispatch.Open(t.Context(), id); err == nil {
		t.Error("it is opened before its time")
	}
	if n := h.Number(`SELECT count(*) FROM tick`); n != 0 || len(h.Chunks()) != 1 {
		t.Errorf("%d ticks are made, and %d chunks are unopened", n, len(h.Chunks()))
	}
	h.Exec(`UPDATE chunk SET nominal_at = nominal_at - interval '2 days'`)
	if err := h.Dispatch.Open(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM tick WHERE fired_at >= nominal_at`); n != 1 || len(h.Chunks()) != 0 {
		t.Errorf("%d ticks are made, and %d chunks are unopened", n, len(h.Chunks()))
	}
}
