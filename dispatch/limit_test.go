package dispatch_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestTickOfALimitedScheduleAnnouncesNoneBeyondTheLast(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	p := everySecond()
	p.Spec.MaxTicks = new(3)
	p.Policy = &policy.Policy{Overlap: "allow_all", Missed: "all"}
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
			if _, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}}); err != nil {
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

// A schedule whose last tick was swept is not completed before its ticks are opened: they would announce none of those
// that came after them.
func TestTicksOpenedLateAnnounceThoseUpToTheLast(t *testing.T) {
	t.Parallel()
	c := stoppedClock(t, time.Date(2027, 3, 1, 0, 0, 0, 5e8, time.UTC))
	h := newHouseOn(t, c.pool)
	if err := h.dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.put("limited", "k", schedules.Params{
		Spec:   calendar.Spec{Cron: calendar.StringList{"* * * * *"}, MaxTicks: new(3)},
		Policy: &policy.Policy{Overlap: "allow_all", Missed: "all"},
	})
	shard := int16(h.number(`SELECT shard FROM cohort`))
	for range 4 {
		c.move(t, time.Minute)
		if _, err := h.dispatch.SweepOnce(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range h.chunks() {
		if err := h.dispatch.Open(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	got := h.lease("limited", 10)
	for i, one := range got {
		if len(one.Upcoming) != 2-i {
			t.Errorf("tick %d of 3 announces %v", i+1, one.Upcoming)
		}
	}
	if err := h.dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := h.schedules.Get(t.Context(), h.tenant, "limited", "k")
	if err != nil || s.Status != schedules.Completed || len(got) != 3 {
		t.Errorf("got %d ticks, status %s, %v", len(got), s.Status, err)
	}
}
