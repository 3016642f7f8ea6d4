package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// fail ends a leased tick as failed for good.
func (h *house) fail(one handed) {
	h.t.Helper()
	r, err := h.dispatch.Leases.Finish(h.t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "fail", Error: "no paper", Retry: new(false)}})
	if err != nil || r[0] != lease.Done {
		h.t.Fatalf("fail: %v, %v", r, err)
	}
}

func (h *house) stats(workflow, key string) schedules.Stats {
	h.t.Helper()
	s, err := h.schedules.Get(h.t.Context(), h.tenant, workflow, key)
	if err != nil {
		h.t.Fatal(err)
	}
	return s.Stats
}

// idle checks that a schedule's state counts nothing that runs or waits.
func (h *house) idle() {
	h.t.Helper()
	if n := h.number(`SELECT sum(live + waiting + aside + aside_waiting) FROM schedule_state`); n != 0 {
		h.t.Errorf("%d ticks are counted as under way", n)
	}
	for _, table := range []string{"buffered", "held", "ready"} {
		if n := h.number(`SELECT count(*) FROM ` + table); n != 0 {
			h.t.Errorf("%d rows are left in %s", n, table)
		}
	}
}

func TestCancelEndsWhatWaitsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	h.put("w", "k", rarely("buffer_all"))
	held := get[history.Tick](c, 202, "POST", trigger, "")
	waiting := get[history.Tick](c, 202, "POST", trigger, "")
	cancel := func(one history.Tick) string { return "/v1/ticks/" + one.TickID + "/cancel" }
	if got := get[history.Tick](c, 200, "POST", cancel(waiting), ""); got.State != "cancelled" || got.Reason != "requested" || got.EndedAt == nil {
		t.Errorf("one that waits for another: got %+v", got)
	}
	if got := get[history.Tick](c, 200, "POST", cancel(held), ""); got.State != "cancelled" || got.Reason != "requested" {
		t.Errorf("one that is held: got %+v", got)
	}
	h.idle()
	for _, one := range []history.Tick{held, waiting} {
		c.refused(409, "tick_ended", "", "POST", cancel(one), "")
	}
	c.refused(404, "not_found", "", "POST", "/v1/ticks/absent/cancel", "")
	c.refused(404, "not_found", "", "POST", "/v1/ticks/tick_0a1b2c3d4e5f6g7h8i9jklmnop/cancel", "")

	h.start(h.dispatch)
	ready := get[history.Tick](c, 202, "POST", trigger, "")
	until(t, "it waits for a worker", func() bool { return h.number(`SELECT count(*) FROM ready`) == 1 })
	if got := get[history.Tick](c, 200, "POST", cancel(ready), ""); got.State != "cancelled" {
		t.Errorf("one that waits for a worker: got %+v", got)
	}
	h.idle()
	next := get[history.Tick](c, 202, "POST", trigger, "")
	if got := c.leaseAll(1)[0]; got.TickID != next.TickID {
		t.Errorf("leased %s, want %s", got.TickID, next.TickID)
	}
	if got := h.stats("w", "k"); got.Succeeded+got.Failed+got.Skipped != 0 || got.Fired != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestCancelTellsTheWorkerToStop(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	h.start(h.dispatch)
	h.put("w", "k", rarely("buffer_all"))
	get[history.Tick](c, 202, "POST", trigger, "")
	running := c.leaseAll(1)[0]
	get[history.Tick](c, 202, "POST", trigger, "")
	path := "/v1/ticks/" + running.TickID
	for range 2 { // it can be asked again
		if got := get[history.Tick](c, 200, "POST", path+"/cancel", ""); got.State != "running" || got.Reason != "requested" {
			t.Errorf("got %+v", got)
		}
	}
	token := `{"lease_token": "` + running.LeaseToken + `"}`
	c.refused(409, "cancelled", "", "POST", path+"/heartbeat", token)
	if a := c.do("POST", path+"/complete", token); a.status != 204 {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if got := get[history.Tick](c, 200, "GET", path, ""); got.State != "cancelled" {
		t.Errorf("got %+v", got)
	}
	h.finish(c.leaseAll(1)[0]) // the one that waited
	h.idle()
	if got := h.stats("w", "k"); got.Fired != 2 || got.Succeeded != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestCancelOfAPushIsKnownWhenItReturns(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	began, release := make(chan struct{}, 10), make(chan struct{})
	c := h.catcher("pushed", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(200) })
	c.hang(func(int) {
		began <- struct{}{}
		<-release
	})
	h.start(h.dispatch)
	h.put("pushed", "k", schedules.Params{Spec: at(5)})
	<-began
	one := h.history("pushed", "k")[0]
	got, err := h.dispatch.Control.Cancel(t.Context(), h.tenant, one.TickID)
	if err != nil || got.State != "running" || got.Reason != "requested" {
		t.Errorf("got %+v, %v", got, err)
	}
	close(release)
	until(t, "it is cancelled", func() bool { return h.history("pushed", "k")[0].State == "cancelled" })
	h.idle()
}

func TestCancelBesideAFinish(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("allow_all"))
	const n = 20
	for range n {
		h.trigger()
	}
	var all []handed
	for len(all) < n {
		all = append(all, h.lease("overlap", n)...)
	}
	var wg sync.WaitGroup
	for _, one := range all {
		wg.Go(func() { h.finish(one) })
		wg.Go(func() { _, _ = h.dispatch.Control.Cancel(context.Background(), h.tenant, one.TickID) })
	}
	wg.Wait()
	succeeded := 0
	for _, one := range h.history("overlap", "k") {
		switch one.State {
		case "succeeded":
			succeeded++
		case "cancelled":
		default:
			t.Errorf("a tick is %s", one.State)
		}
	}
	h.idle()
	if got := h.stats("overlap", "k"); int(got.Succeeded) != succeeded || got.Failed != 0 {
		t.Errorf("got %+v, and %d have succeeded", got, succeeded)
	}
}

func TestReplayDeliversAFailedTickAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	c := s.operator()
	h.start(h.dispatch)
	p := rarely("skip")
	p.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.put("w", "k", p)
	get[history.Tick](c, 202, "POST", trigger, `{"payload": {"n":  1.0}}`)
	first := c.leaseAll(1)[0]
	path := "/v1/ticks/" + first.TickID
	c.refused(409, "tick_not_failed", "", "POST", path+"/replay", "")
	h.fail(first)
	letters := get[page](c, 200, "GET", "/v1/admin/dead-letters?workflow=w&key=k", "").Items
	if len(letters) != 1 || letters[0].TickID != first.TickID || letters[0].Error == nil || *letters[0].Error != "no paper" {
		t.Fatalf("got %+v", letters)
	}
	if got := h.stats("w", "k"); got.Failed != 1 {
		t.Errorf("got %+v", got)
	}
	again := get[history.Tick](c, 202, "POST", path+"/replay", "", "Idempotency-Key", "one")
	if again.TickID != first.TickID || again.State != "running" || again.Attempt != 2 || again.Error != nil || again.EndedAt != nil {
		t.Errorf("got %+v", again)
	}
	get[history.Tick](c, 202, "POST", path+"/replay", "", "Idempotency-Key", "one")
	c.refused(409, "tick_not_failed", "", "POST", path+"/replay", "")
	if got := get[page](c, 200, "GET", "/v1/admin/dead-letters", "").Items; len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	second := c.leaseAll(1)[0]
	if second.TickID != first.TickID || second.Attempt != 2 || second.MaxAttempts != 2 || string(second.Payload) != `{"n":  1.0}` {
		t.Errorf("got %+v", second)
	}
	// Its only attempt fails again, and it is dead again; a third time it succeeds.
	r, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: second.TickID, LeaseToken: second.LeaseToken, Outcome: "fail", Error: "no ink"}})
	if err != nil || r[0] != lease.Done {
		t.Fatalf("got %+v, %v", r, err)
	}
	get[history.Tick](c, 202, "POST", path+"/replay", "")
	third := c.leaseAll(1)[0]
	h.finish(third)
	got := get[history.Tick](c, 200, "GET", path, "")
	if got.State != "succeeded" || got.Attempt != 3 || len(got.Attempts) != 3 {
		t.Errorf("got %+v", got)
	}
	if stats := h.stats("w", "k"); stats.Fired != 1 || stats.Failed != 0 || stats.Succeeded != 1 {
		t.Errorf("got %+v", stats)
	}
	h.idle()
	c.refused(404, "not_found", "", "POST", "/v1/ticks/tick_0a1b2c3d4e5f6g7h8i9jklmnop/replay", "")
	s.as("rival", tenants.TenantAdmin).refused(404, "not_found", "", "POST", path+"/replay", "")
	s.as("rival", tenants.TenantAdmin).refused(404, "not_found", "", "POST", path+"/cancel", "")
}

func TestReplayWaitsForItsTurnAndOthersForIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("skip"))
	h.trigger()
	dead := h.lease("overlap", 1)[0]
	h.fail(dead)
	h.trigger()
	running := h.lease("overlap", 1)[0]
	replay := func() {
		t.Helper()
		if _, _, err := h.dispatch.Control.Replay(t.Context(), h.tenant, dead.TickID, once.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	replay()
	h.wantStates("scheduled", "running")
	h.finish(running)
	h.wantStates("running", "succeeded")
	again := h.lease("overlap", 1)[0]
	h.trigger() // it waits, though the policy is to skip
	h.trigger() // but this one is skipped for it
	h.wantStates("running", "succeeded", "scheduled", "skipped overlap")
	h.finish(again)
	h.wantStates("succeeded", "succeeded", "running", "skipped overlap")
	h.finish(h.lease("overlap", 1)[0])
	h.idle()
}

func TestReplayTwiceAtOnceDeliversOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("skip"))
	h.trigger()
	h.fail(h.lease("overlap", 1)[0])
	id := h.history("overlap", "k")[0].TickID
	h.exec(`DELETE FROM tick`) // its day is gone from the record, and the dead letter is left
	if got, err := h.dispatch.Reader.Tick(t.Context(), h.tenant, id); err != nil || got.State != "failed" {
		t.Fatalf("got %+v, %v", got, err)
	}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, _, errs[i] = h.dispatch.Control.Replay(context.Background(), h.tenant, id, once.Request{}) })
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
	h.finish(h.lease("overlap", 1)[0])
	h.wantStates("succeeded")
	h.idle()
	if n := h.number(`SELECT count(*) FROM dead_letter`); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

func TestReplayNeedsTheScheduleAndItsWorkflow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	h.start(h.dispatch)
	h.put("w", "k", rarely("skip"))
	get[history.Tick](c, 202, "POST", trigger, "")
	h.fail(c.leaseAll(1)[0])
	path := "/v1/ticks/" + h.history("w", "k")[0].TickID + "/replay"
	h.exec(`UPDATE workflow SET name = 'other'`)
	c.refused(409, "workflow_deleted", "", "POST", path, "")
	if err := h.schedules.Delete(t.Context(), h.tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	c.refused(409, "schedule_deleted", "", "POST", path, "")
	if got := get[page](c, 200, "GET", "/v1/admin/dead-letters", "").Items; len(got) != 1 || got[0].Key != "k" {
		t.Errorf("got %+v", got)
	}
}

func TestTicksOfATenantAreListedByTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	c := s.operator()
	h.start(h.dispatch)
	soon := time.Now().UTC().Truncate(time.Second).Add(15 * time.Second) // the schedules are stored by then, on a busy machine too
	spec := calendar.Spec{At: []string{soon.Format("2006-01-02T15:04:05"), soon.Add(time.Second).Format("2006-01-02T15:04:05")}}
	const n = 12
	for i := range n {
		h.put([]string{"a", "b"}[i%2], fmt.Sprintf("k%d", i), schedules.Params{Spec: spec, Policy: &policy.Policy{Overlap: "allow_all"}})
	}
	until(t, "all have fired", func() bool { return h.number(`SELECT count(*) FROM tick`) == 2*n })
	walk := func(query string, limit int) (all []history.Tick) {
		t.Helper()
		cursor := ""
		for range 100 {
			p := get[page](c, 200, "GET", fmt.Sprintf("/v1/ticks?limit=%d%s%s", limit, query, cursor), "")
			all = append(all, p.Items...)
			if p.NextCursor == nil {
				return all
			}
			cursor = "&cursor=" + *p.NextCursor
			c.refused(422, "invalid_cursor", "/cursor", "GET", "/v1/ticks?workflow=elsewhere"+cursor, "")
			s.as("rival", tenants.TenantAdmin).refused(422, "invalid_cursor", "/cursor", "GET", "/v1/ticks?limit=1"+query+cursor, "")
		}
		t.Fatalf("%s: no end", query)
		return nil
	}
	times := soon.Format(time.RFC3339)
	ofA := walk("&workflow=a", 1000)
	for _, list := range []struct {
		query string
		want  int
	}{
		{"", 2 * n}, {"&workflow=a", n}, {"&workflow=a&key=k0", 2}, {"&key=k0", 2}, {"&key=none", 0}, {"&workflow=b&key=k0", 0},
		{"&schedule_id=" + ofA[0].ScheduleID, 2}, {"&workflow=b&schedule_id=" + ofA[0].ScheduleID, 0}, {"&schedule_id=sch_none", 0},
		{"&state=running", 2 * n}, {"&state=skipped", 0}, {"&state=failed", 0}, {"&workflow=b&state=running", n},
		{"&to=" + soon.Add(time.Second).Format(time.RFC3339), n}, {"&from=" + soon.Add(time.Second).Format(time.RFC3339), n},
		{"&workflow=a&from=" + times + "&to=" + soon.Add(time.Second).Format(time.RFC3339), n / 2}, {"&to=" + times, 0},
	} {
		for _, limit := range []int{1, 5, 1000} {
			got := walk(list.query, limit)
			if len(got) != list.want {
				t.Errorf("%s by %d: got %d ticks, want %d", list.query, limit, len(got), list.want)
			}
			seen := map[string]bool{}
			for _, one := range got {
				seen[one.TickID] = true
			}
			newestFirst := slices.IsSortedFunc(got, func(a, b history.Tick) int { return b.Timestamp.Compare(a.Timestamp) })
			if len(seen) != len(got) || !newestFirst {
				t.Errorf("%s by %d: %d ticks of %d, newest first: %t", list.query, limit, len(seen), len(got), newestFirst)
			}
		}
	}
	for _, one := range h.lease("a", 2) {
		h.fail(one)
	}
	if got := walk("&state=failed&workflow=a", 1); len(got) != 2 || got[0].State != "failed" {
		t.Errorf("got %+v", got)
	}
	if got := walk("&state=failed&workflow=b", 1); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	if got := get[page](s.as("rival", tenants.TenantAdmin), 200, "GET", "/v1/ticks?schedule_id="+ofA[0].ScheduleID, "").Items; len(got) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	for query, pointer := range map[string]string{
		"state=late": "/state", "state=": "/state", "from=x": "/from", "to=x": "/to", "limit=0": "/limit", "workflow=": "/workflow",
		"key=": "/key", "schedule_id=": "/schedule_id", "cursor=": "/cursor",
	} {
		c.refused(422, "invalid", pointer, "GET", "/v1/ticks?"+query, "")
	}
	for query, pointer := range map[string]string{"from=x": "/from", "to=x": "/to", "limit=0": "/limit", "workflow=%2F": "/workflow", "key=": "/key"} {
		c.refused(422, "invalid", pointer, "GET", "/v1/admin/dead-letters?"+query, "")
	}
}
