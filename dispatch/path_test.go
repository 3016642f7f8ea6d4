package dispatch_test

import (
	"net/http"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/web"
)

func TestPulledTicksComeInOrderOnceEach(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("pulled", "user/1", dispatchtest.EverySecondInOrder())
	var got []dispatchtest.Handed
	for len(got) < 3 {
		ticks := h.Lease("pulled", 10)
		for _, one := range ticks {
			r, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete", Result: web.Raw(`{"ok":true}`)}})
			if err != nil || r[0] != lease.Done {
				t.Fatalf("finish: %v, %v", r, err)
			}
		}
		got = append(got, ticks...)
	}
	dispatchtest.CheckSequence(t, got)
	if string(got[0].Payload) != `{"a": 1.00000000000000000001}` || got[0].Key != "user/1" {
		t.Errorf("got %+v", got[0])
	}
	again, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: got[0].TickID, LeaseToken: got[0].LeaseToken, Outcome: "complete"}})
	if err != nil || again[0] != lease.Lost {
		t.Errorf("a second finish: got %v, %v, want Lost", again, err)
	}
	for i, one := range h.History("pulled", "user/1")[:3] {
		if one.State != "succeeded" || one.TickID != got[i].TickID || string(one.Result) != `{"ok":true}` {
			t.Errorf("tick %d: got %+v", i, one)
		}
	}
}

func TestPushedTicksAreSignedAndInOrder(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("pushed", 1, nil)
	h.Start(h.Dispatch)
	h.Put("pushed", "k", dispatchtest.EverySecondInOrder())
	dispatchtest.Until(t, "three ticks were pushed", func() bool { return len(c.Caught()) >= 3 })
	if len(c.Errs) > 0 {
		t.Fatal(c.Errs)
	}
	dispatchtest.CheckSequence(t, c.Caught()[:3])
	dispatchtest.Until(t, "they have succeeded", func() bool {
		ticks := h.History("pushed", "k")
		return len(ticks) >= 3 && ticks[2].State == "succeeded"
	})
}

// Firing changes what a schedule shows of its ticks, and not its version, which is its entity tag.
func TestFiringKeepsTheVersionOfASchedule(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("fires", "k", dispatchtest.EverySecond())
	h.Finish(h.Lease("fires", 1)[0])
	s, err := h.Schedules.Get(t.Context(), h.Tenant, "fires", "k")
	if err != nil || s.Version != 1 || s.LastAt == nil || s.LastTickID == nil || s.Stats.Fired == 0 || s.Stats.Succeeded == 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestFailedPushIsTriedAgainWithTheSameTick(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("flaky", 1, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(500)
		}
	})
	h.Start(h.Dispatch)
	p := dispatchtest.EverySecond()
	p.Spec = dispatchtest.At(5)
	h.Put("flaky", "k", p)
	dispatchtest.Until(t, "it was pushed twice", func() bool { return len(c.Caught()) == 2 })
	got := c.Caught()
	if got[0].TickID != got[1].TickID || got[1].Attempt != 2 || string(got[0].Payload) != string(got[1].Payload) {
		t.Errorf("got %+v and then %+v", got[0], got[1])
	}
	dispatchtest.Until(t, "it has succeeded", func() bool { return h.History("flaky", "k")[0].State == "succeeded" })
	one, err := h.Dispatch.Reader.Tick(t.Context(), h.Tenant, got[0].TickID)
	if err != nil || len(one.Attempts) != 2 || one.Attempts[0].Outcome != "failed" || *one.Attempts[0].Status != 500 || one.Attempts[1].Outcome != "succeeded" {
		t.Errorf("got %+v, %v", one, err)
	}
}
