package dispatch_test

import (
	"testing"

	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/schedules"
)

func TestTickOfALimitedScheduleAnnouncesNoneBeyondTheLast(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	p := everySecond()
	p.Spec.MaxTicks = new(3)
	p.Policy = &schedules.Policy{Overlap: "allow_all", Missed: "all"}
	made := h.put("limited", "k", p)
	if len(made.Upcoming) != 3 {
		t.Errorf("the schedule shows %v", made.Upcoming)
	}
	h.put("limited", "free", everySecond()) // of the same timing, without a limit
	h.start(h.dispatch)
	var got []handed
	for len(got) < 3 {
		for _, one := range h.lease("limited", 10) {
			if one.Key == "k" {
				got = append(got, one)
			} else if len(one.Upcoming) != 5 {
				t.Errorf("the one without a limit announces %v", one.Upcoming)
			}
			if _, err := h.dispatch.Finish(t.Context(), h.tenant, []dispatch.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, one := range got {
		if len(one.Upcoming) != 2-i {
			t.Errorf("tick %d of 3 announces %v", i+1, one.Upcoming)
		}
	}
}
