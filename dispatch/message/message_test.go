package message_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestTickOfALimitedScheduleAnnouncesNoneBeyondTheLast(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	p := dispatchtest.EverySecond()
	p.Spec.MaxTicks = new(3)
	p.Policy = &policy.Policy{Overlap: "allow_all", Missed: "all"}
	made := h.Put("limited", "k", p)
	if len(made.Upcoming) != 3 {
		t.Errorf("the schedule shows %v", made.Upcoming)
	}
	h.Put("limited", "free", dispatchtest.EverySecond()) // of the same timing, without a limit
	h.Start(h.Dispatch)
	var got []dispatchtest.Handed
	for len(got) < 3 {
		for _, one := range h.Lease("limited", 10) {
			if one.Key == "k" {
				got = append(got, one)
			} else if len(one.Upcoming) != 5 {
				t.Errorf("the one without a limit announces %v", one.Upcoming)
			}
			if _, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.SortFunc(got, func(a, b dispatchtest.Handed) int { return a.Timestamp.Compare(b.Timestamp) }) // two that run side by side may be leased in any order
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
	c := postgrestest.StoppedClock(t, time.Date(2090, 3, 1, 0, 0, 0, 5e8, time.UTC))
	h := dispatchtest.NewOn(t, c.Pool)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Put("limited", "k", schedules.Params{
		Spec:   calendar.Spec{Cron: calendar.StringList{"* * * * *"}, MaxTicks: new(3)},
		Policy: &policy.Policy{Overlap: "allow_all", Missed: "all"},
	})
	shard := int16(h.Number(`SELECT shard FROM cohort`))
	for range 4 {
		c.Move(t, time.Minute)
		if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range h.Chunks() {
		if err := h.Dispatch.Open(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	got := h.Lease("limited", 10)
	for i, one := range got {
		if len(one.Upcoming) != 2-i {
			t.Errorf("tick %d of 3 announces %v", i+1, one.Upcoming)
		}
	}
	if err := h.Dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := h.Schedules.Get(t.Context(), h.Tenant, "limited", "k")
	if err != nil || s.Status != policy.Completed || len(got) != 3 {
		t.Errorf("got %d ticks, status %s, %v", len(got), s.Status, err)
	}
}
