package control_test

import (
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
)

// An action triggers each schedule that it picks once: a worker gets a manual tick of each.
func TestAnActionTriggersManySchedules(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	for _, key := range []string{"a", "b", "c"} {
		h.Put("w", key, dispatchtest.Rarely("skip"))
	}
	op, _, err := h.Actions.Act(t.Context(), h.Tenant, schedules.ActionParams{Action: "trigger", Keys: []string{"w/a", "w/c"}}, schedules.Changer{By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Ended(op.ID); got.Counts["triggered"] != 2 {
		t.Errorf("got %+v", got)
	}
	keys := map[string]string{}
	for _, one := range c.LeaseAll(2) {
		keys[one.Key] = one.Cause
		h.Finish(one)
	}
	if len(keys) != 2 || keys["a"] != "manual" || keys["c"] != "manual" {
		t.Errorf("got ticks of %v", keys)
	}
}
