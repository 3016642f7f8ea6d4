package dispatchtest

import (
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Overlapping returns a Carillon with one schedule that fires only by hand, so that the test decides when ticks overlap.
func Overlapping(t *testing.T, overlap string) *Carillon {
	t.Helper()
	h := New(t)
	h.Start(h.Dispatch)
	h.Put("overlap", "k", schedules.Params{
		Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}, Policy: &policy.Policy{Overlap: overlap},
	})
	return h
}

func (h *Carillon) Trigger() {
	h.T.Helper()
	if _, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, "overlap", "k", control.TriggerParams{}, once.Request{}); err != nil {
		h.T.Fatal(err)
	}
}

// States are the states and reasons of the ticks, in the order in which they were made.
func (h *Carillon) States() []string {
	h.T.Helper()
	var all []string
	for _, one := range h.History("overlap", "k") {
		if one.Reason != "" {
			one.State += " " + one.Reason
		}
		all = append(all, one.State)
	}
	return all
}

func (h *Carillon) Finish(one Handed) lease.Verdict {
	h.T.Helper()
	r, err := h.Dispatch.Leases.Finish(h.T.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}})
	if err != nil {
		h.T.Fatal(err)
	}
	return r[0]
}

func (h *Carillon) WantStates(want ...string) {
	h.T.Helper()
	got := h.States()
	if len(got) != len(want) {
		h.T.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			h.T.Fatalf("got %q, want %q", got, want)
		}
	}
}
