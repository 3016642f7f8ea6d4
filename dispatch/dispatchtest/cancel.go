package dispatchtest

import (
	"github.com/carillonhq/carillon/dispatch/lease"
)

// Fail ends a leased tick as failed for good.
func (h *Carillon) Fail(one Handed) {
	h.T.Helper()
	r, err := h.Dispatch.Leases.Finish(h.T.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "fail", Error: "no paper", Retry: new(false)}})
	if err != nil || r[0] != lease.Done {
		h.T.Fatalf("fail: %v, %v", r, err)
	}
}

// Idle checks that a schedule's state counts nothing that runs or waits.
func (h *Carillon) Idle() {
	h.T.Helper()
	if n := h.Number(`SELECT COALESCE(sum(live + buffered + aside + aside_buffered), 0) FROM schedule_state`); n != 0 {
		h.T.Errorf("%d ticks are counted as under way", n)
	}
	for _, table := range []string{"buffered", "delayed", "ready"} {
		if n := h.Number(`SELECT count(*) FROM ` + table); n != 0 {
			h.T.Errorf("%d rows are left in %s", n, table)
		}
	}
}
