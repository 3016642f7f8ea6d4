package schedulestest

import (
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
)

// Act runs an action on all schedules of acme that a filter picks. It fails the test unless the action succeeds.
func (h *Fixture) Act(action string, f schedules.ActionFilter) operations.Answer {
	h.T.Helper()
	op := h.RunAction(action, f)
	if op.State != operations.Succeeded {
		h.T.Fatalf("got %+v", op)
	}
	return op
}

// RunAction runs an action and returns its operation, which has ended.
func (h *Fixture) RunAction(action string, f schedules.ActionFilter) operations.Answer {
	h.T.Helper()
	return h.Do(schedules.ActionParams{Action: action, Filter: &f})
}

// Do runs an action of acme and returns its operation, which has ended.
func (h *Fixture) Do(p schedules.ActionParams) operations.Answer {
	h.T.Helper()
	op, _, err := h.Actions.Act(h.T.Context(), h.Acme, p, schedules.Changer{By: "bob"})
	if err != nil {
		h.T.Fatal(err)
	}
	return h.Operate(op.ID)
}
