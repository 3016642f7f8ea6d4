package dispatchtest

import (
	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
)

// ReadyHerd makes n schedules of a workflow, "herd 1" to "herd n-1" and "first", that are due at once. Their
// ticks wait for workers.
func (h *Carillon) ReadyHerd(workflow string, n int) {
	h.T.Helper()
	h.SweptHerd(workflow, n)
	for _, id := range h.Chunks() {
		if err := h.Dispatch.Open(h.T.Context(), id); err != nil {
			h.T.Fatal(err)
		}
	}
	if waiting := h.Number(`SELECT sum(ticks) FROM ready`); waiting != n {
		h.T.Fatalf("%d ticks wait, want %d", waiting, n)
	}
}

// SweptHerd makes n schedules of a workflow that are due at once, and sweeps them.
func (h *Carillon) SweptHerd(workflow string, n int) {
	h.T.Helper()
	if err := h.Dispatch.Register(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
	h.Put(workflow, "first", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}})
	h.Herd(workflow, "first", n-1)
	h.Exec(`UPDATE member SET from_at = from_at - interval '1 minute'`)
	h.Exec(`UPDATE cohort SET next_at = date_trunc('second', clock_timestamp()), due_at = clock_timestamp()`)
	if _, err := h.Dispatch.SweepOnce(h.T.Context(), int16(h.Number(`SELECT shard FROM cohort`))); err != nil {
		h.T.Fatal(err)
	}
}
