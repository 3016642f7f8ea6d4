package dispatchtest

import (
	"encoding/json"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/schedules"
)

// Delay fires at once, and then a while after each tick has ended.
func Delay(every string) schedules.Params {
	return schedules.Params{Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: every, Mode: "fixed_delay", First: "now"}}}}
}

func (h *Carillon) End(one Handed, outcome string, retry bool) {
	h.T.Helper()
	r, err := h.Dispatch.Leases.Finish(h.T.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: outcome, Retry: &retry, Error: "e", RetryAfter: "0s"}})
	if err != nil || r[0] != lease.Done {
		h.T.Fatalf("end: %v, %v", r, err)
	}
}

func TicksOf(t *testing.T, body []byte) []Handed {
	t.Helper()
	var answer struct{ Ticks []Handed }
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Errorf("%v in %s", err, body)
	}
	return answer.Ticks
}
