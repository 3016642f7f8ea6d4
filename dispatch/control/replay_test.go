package control_test

import (
	"context"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func TestReplayDeliversAFailedTickAgain(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	h.Start(h.Dispatch)
	p := dispatchtest.Rarely("skip")
	p.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.Put("w", "k", p)
	dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, `{"payload": {"n":  1.0}}`)
	first := c.LeaseAll(1)[0]
	path := "/v1/ticks/" + first.TickID
	c.Refused(409, "tick_not_failed", "", "POST", path+"/replay", "")
	h.Fail(first)
	letters := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/admin/dead-letters?workflow=w&key=k", "").Items
	if len(letters) != 1 || letters[0].TickID != first.TickID || letters[0].Error == nil || *letters[0].Error != "no paper" {
		t.Fatalf("got %+v", letters)
	}
	if got := stats(h, "w", "k"); got.Failed != 1 {
		t.Errorf("got %+v", got)
	}
	again := dispatchtest.Get[history.Tick](c, 202, "POST", path+"/replay", "", "Idempotency-Key", "one")
	if again.TickID != first.TickID || again.State != "running" || again.Attempt != 2 || again.Error != nil || again.EndedAt != nil {
		t.Errorf("got %+v", again)
	}
	dispatchtest.Get[history.Tick](c, 202, "POST", path+"/replay", "", "Idempotency-Key", "one")
	c.Refused(409, "tick_not_failed", "", "POST", path+"/replay", "")
	if got := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/admin/dead-letters", "").Items; len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	second := c.LeaseAll(1)[0]
	if second.TickID != first.TickID || second.Attempt != 2 || second.MaxAttempts != 2 || string(second.Payload) != `{"n":  1.0}` {
		t.Errorf("got %+v", second)
	}
	// Its only attempt fails again, and it is dead again; a third time it succeeds.
	r, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: second.TickID, LeaseToken: second.LeaseToken, Outcome: "fail", Error: "no ink"}})
	if err != nil || r[0] != lease.Done {
		t.Fatalf("got %+v, %v", r, err)
	}
	dispatchtest.Get[history.Tick](c, 202, "POST", path+"/replay", "")
	third := c.LeaseAll(1)[0]
	h.Finish(third)
	got := dispatchtest.Get[history.Tick](c, 200, "GET", path, "")
	if got.State != "succeeded" || got.Attempt != 3 || len(got.Attempts) != 3 {
		t.Errorf("got %+v", got)
	}
	if stats := stats(h, "w", "k"); stats.Fired != 1 || stats.Failed != 0 || stats.Succeeded != 1 {
		t.Errorf("got %+v", stats)
	}
	h.Idle()
	c.Refused(404, "not_found", "", "POST", "/v1/ticks/tick_0a1b2c3d4e5f6g7h8i9jklmnop/replay", "")
	s.As("rival", tenants.TenantAdmin).Refused(404, "not_found", "", "POST", path+"/replay", "")
	s.As("rival", tenants.TenantAdmin).Refused(404, "not_found", "", "POST", path+"/cancel", "")
}

func TestReplayWaitsForItsTurnAndOthersForIt(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("skip"))
	h.Trigger()
	dead := h.Lease("overlap", 1)[0]
	h.Fail(dead)
	h.Trigger()
	running := h.Lease("overlap", 1)[0]
	replay := func() {
		t.Helper()
		if _, _, err := h.Dispatch.Replays.Replay(t.Context(), h.Tenant, dead.TickID, once.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	replay()
	h.WantStates("scheduled", "running")
	h.Finish(running)
	h.WantStates("running", "succeeded")
	again := h.Lease("overlap", 1)[0]
	h.Trigger() // it waits, though the policy is to skip
	h.Trigger() // but this one is skipped for it
	h.WantStates("running", "succeeded", "scheduled", "skipped overlap")
	h.Finish(again)
	h.WantStates("succeeded", "succeeded", "running", "skipped overlap")
	h.Finish(h.Lease("overlap", 1)[0])
	h.Idle()
}

func TestReplayTwiceAtOnceDeliversOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("skip"))
	h.Trigger()
	h.Fail(h.Lease("overlap", 1)[0])
	id := h.History("overlap", "k")[0].TickID
	h.Exec(`DELETE FROM tick`) // its day is gone from the record, and the dead letter is left
	if got, err := h.Dispatch.Reader.Tick(t.Context(), h.Tenant, id); err != nil || got.State != "failed" {
		t.Fatalf("got %+v, %v", got, err)
	}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, _, errs[i] = h.Dispatch.Replays.Replay(context.Background(), h.Tenant, id, once.Request{}) })
	}
	wg.Wait()
	done := 0
	for _, err := range errs {
		if err == nil {
			done++
		} else if err.Error() != "the tick is running: one that failed for good can be delivered again" {
			t.Error(err)
		}
	}
	if done != 1 {
		t.Errorf("it was delivered again %d times", done)
	}
	h.Finish(h.Lease("overlap", 1)[0])
	h.WantStates("succeeded")
	h.Idle()
	if n := h.Number(`SELECT count(*) FROM dead_letter`); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

func TestReplayNeedsTheScheduleAndItsWorkflow(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.Rarely("skip"))
	dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	h.Fail(c.LeaseAll(1)[0])
	path := "/v1/ticks/" + h.History("w", "k")[0].TickID + "/replay"
	h.Exec(`UPDATE workflow SET name = 'other'`)
	c.Refused(409, "workflow_deleted", "", "POST", path, "")
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	c.Refused(409, "schedule_deleted", "", "POST", path, "")
	if got := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/admin/dead-letters", "").Items; len(got) != 1 || got[0].Key != "k" {
		t.Errorf("got %+v", got)
	}
}
