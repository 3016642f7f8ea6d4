package control_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules"
)

// An action triggers each schedule that it picks once: a worker gets a manual tick of each, and a list by operation has these ticks.
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
	dispatchtest.Get[history.Tick](c, 202, "POST", "/v1/workflows/w/schedules/b/trigger", "")
	for query, want := range map[string]string{"": "a c", "&key=a": "a", "&cause=manual": "a c", "&cause=backfill": "", "&workflow=other": "", "&state=failed": ""} {
		var got []string
		for _, one := range dispatchtest.Get[struct{ Items []history.Tick }](c, 200, "GET", "/v1/ticks?operation="+op.ID+query, "").Items {
			got = append(got, one.Key)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%q: the ticks of the operation are those of %q, want %q", query, got, want)
		}
	}
	keys := map[string]string{}
	for _, one := range c.LeaseAll(3) {
		keys[one.Key] = one.Cause
		h.Finish(one)
	}
	if len(keys) != 3 || keys["a"] != "manual" || keys["c"] != "manual" {
		t.Errorf("got ticks of %v", keys)
	}
}
