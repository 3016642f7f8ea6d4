package control_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules"
)

func stats(h *dispatchtest.Carillon, workflow, key string) schedules.Stats {
	h.T.Helper()
	s, err := h.Schedules.Get(h.T.Context(), h.Tenant, workflow, key)
	if err != nil {
		h.T.Fatal(err)
	}
	return s.Stats
}

func TestCancelEndsWhatWaitsAtOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Put("w", "k", dispatchtest.Rarely("buffer_all"))
	held := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	waiting := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	cancel := func(one history.Tick) string { return "/v1/ticks/" + one.TickID + "/cancel" }
	if got := dispatchtest.Get[history.Tick](c, 200, "POST", cancel(waiting), ""); got.State != "cancelled" || got.Reason != "requested" || got.EndedAt == nil {
		t.Errorf("one that waits for another: got %+v", got)
	}
	if got := dispatchtest.Get[history.Tick](c, 200, "POST", cancel(held), ""); got.State != "cancelled" || got.Reason != "requested" {
		t.Errorf("one that is held: got %+v", got)
	}
	h.Idle()
	for _, one := range []history.Tick{held, waiting} {
		c.Refused(409, "tick_ended", "", "POST", cancel(one), "")
	}
	c.Refused(404, "not_found", "", "POST", "/v1/ticks/absent/cancel", "")
	c.Refused(404, "not_found", "", "POST", "/v1/ticks/tick_0a1b2c3d4e5f6g7h8i9jklmnop/cancel", "")

	h.Start(h.Dispatch)
	ready := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	dispatchtest.Until(t, "it waits for a worker", func() bool { return h.Number(`SELECT count(*) FROM ready`) == 1 })
	if got := dispatchtest.Get[history.Tick](c, 200, "POST", cancel(ready), ""); got.State != "cancelled" {
		t.Errorf("one that waits for a worker: got %+v", got)
	}
	h.Idle()
	next := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	if got := c.LeaseAll(1)[0]; got.TickID != next.TickID {
		t.Errorf("leased %s, want %s", got.TickID, next.TickID)
	}
	if got := stats(h, "w", "k"); got.Succeeded+got.Failed+got.Skipped != 0 || got.Fired != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestCancelTellsTheWorkerToStop(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.Rarely("buffer_all"))
	dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	running := c.LeaseAll(1)[0]
	dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	path := "/v1/ticks/" + running.TickID
	for range 2 { // it can be asked again
		if got := dispatchtest.Get[history.Tick](c, 200, "POST", path+"/cancel", ""); got.State != "running" || got.Reason != "requested" {
			t.Errorf("got %+v", got)
		}
	}
	token := `{"lease_token": "` + running.LeaseToken + `"}`
	c.Refused(409, "cancelled", "", "POST", path+"/heartbeat", token)
	if a := c.Do("POST", path+"/complete", `{"lease_token": "`+running.LeaseToken+`", "result": 7}`); a.Status != 204 {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
	got := dispatchtest.Get[history.Tick](c, 200, "GET", path, "")
	if got.State != "cancelled" || got.Result != nil || len(got.Attempts) != 1 || string(got.Attempts[0].Result) != "7" {
		t.Errorf("got %+v", got)
	}
	h.Finish(c.LeaseAll(1)[0]) // the one that waited
	h.Idle()
	if got := stats(h, "w", "k"); got.Fired != 2 || got.Succeeded != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestCancelOfAPushIsKnownWhenItReturns(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	began, release := make(chan struct{}, 10), make(chan struct{})
	c := h.Catcher("pushed", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(200) })
	c.Hang(func(int) {
		began <- struct{}{}
		<-release
	})
	h.Start(h.Dispatch)
	h.Put("pushed", "k", schedules.Params{Spec: dispatchtest.At(15)})
	<-began
	one := h.History("pushed", "k")[0]
	got, err := h.Dispatch.Control.Cancel(t.Context(), h.Tenant, one.TickID)
	if err != nil || got.State != "running" || got.Reason != "requested" {
		t.Errorf("got %+v, %v", got, err)
	}
	close(release)
	dispatchtest.Until(t, "it is cancelled", func() bool { return h.History("pushed", "k")[0].State == "cancelled" })
	h.Idle()
}

func TestCancelBesideAFinish(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("allow_all"))
	const n = 20
	for range n {
		h.Trigger()
	}
	var all []dispatchtest.Handed
	for len(all) < n {
		all = append(all, h.Lease("overlap", n)...)
	}
	var wg sync.WaitGroup
	for _, one := range all {
		wg.Go(func() { h.Finish(one) })
		wg.Go(func() { _, _ = h.Dispatch.Control.Cancel(context.Background(), h.Tenant, one.TickID) })
	}
	wg.Wait()
	succeeded := 0
	for _, one := range h.History("overlap", "k") {
		switch one.State {
		case "succeeded":
			succeeded++
		case "cancelled":
		default:
			t.Errorf("a tick is %s", one.State)
		}
	}
	h.Idle()
	if got := stats(h, "overlap", "k"); int(got.Succeeded) != succeeded || got.Failed != 0 {
		t.Errorf("got %+v, and %d have succeeded", got, succeeded)
	}
}
