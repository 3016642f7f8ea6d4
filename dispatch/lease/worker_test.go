package lease_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func TestLongPollIsWokenAtOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all"}
	h.Put("w", "k", p)
	// A poll that is not woken finds its ticks every 2 s, and the oldest of them is more than a second late. Each begins when the one
	// before has been answered, so that the oldest tick of its answer became ready while it waited. On a machine that does much
	// else many are late: three must be on time.
	onTime, late := 0, []time.Duration{}
	dispatchtest.Until(t, "three polls are woken at once", func() bool {
		if wait := time.Since(c.LeaseAll(1)[0].FiredAt); wait < 800*time.Millisecond {
			onTime++
		} else if late = append(late, wait); len(late)%20 == 0 {
			t.Logf("ticks were leased %s after they had fired", late)
		}
		return onTime == 3
	})
}

func TestLeaseWithoutATickIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	for wait, least := range map[string]time.Duration{`"0s"`: 0, `"1s"`: time.Second} {
		began := time.Now()
		a := c.Do("POST", "/v1/ticks/lease", `{"workflows": ["w", "absent"], "wait": `+wait+`}`)
		if took := time.Since(began); a.Status != 200 || string(a.Body) != `{"ticks":[]}` || took < least || took > least+30*time.Second { // the longest poll takes twice that
			t.Errorf("wait %s: got %d %s after %s", wait, a.Status, a.Body, took)
		}
	}
}

func TestWorkersBodiesAreChecked(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	many := func(item string, n int) string {
		return `{"ticks": [` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `]}`
	}
	for _, wrong := range []struct {
		status              int
		code, path, pointer string
		body                string
	}{
		{422, "invalid", "lease", "/workflows", `{}`},
		{422, "invalid", "lease", "/workflows", `{"workflows": []}`},
		{422, "invalid", "lease", "/workflows/1", `{"workflows": ["a", "no name"]}`},
		{422, "invalid", "lease", "/queues/0", `{"workflows": ["a"], "queues": [""]}`},
		{422, "invalid", "lease", "/max", `{"workflows": ["a"], "max": 0}`},
		{422, "invalid", "lease", "/max", `{"workflows": ["a"], "max": 1001}`},
		{422, "invalid", "lease", "/wait", `{"workflows": ["a"], "wait": "61s"}`},
		{422, "invalid", "lease", "/lease", `{"workflows": ["a"], "lease": "9s"}`},
		{422, "invalid", "lease", "/lease", `{"workflows": ["a"], "lease": "11m"}`},
		{422, "invalid", "lease", "/worker", `{"workflows": ["a"], "worker": "` + strings.Repeat("x", 257) + `"}`},
		{422, "invalid", "lease", "/max /wait /lease", `{"workflows": ["a"], "max": -1, "wait": "soon", "lease": "1"}`},
		{400, "unknown_field", "lease", "/colour", `{"workflows": ["a"], "colour": "red"}`},
		{422, "wrong_type", "lease", "/workflows", `{"workflows": "a"}`},
		{422, "invalid", "finish", "/ticks", `{}`},
		{422, "invalid", "finish", "/ticks", `{"ticks": []}`},
		{422, "invalid", "finish", "/ticks", many(`{"tick_id": "x", "lease_token": "t", "outcome": "complete"}`, 1001)},
		{422, "invalid", "finish", "/ticks/1/outcome", `{"ticks": [{"tick_id": "x", "lease_token": "t", "outcome": "complete"}, {"tick_id": "x", "lease_token": "t", "outcome": "done"}]}`},
		{422, "invalid", "finish", "/ticks/0/retry_after", `{"ticks": [{"tick_id": "x", "lease_token": "t", "outcome": "fail", "retry_after": "25h"}]}`},
		{413, "result_too_large", "finish", "/ticks/0/result", `{"ticks": [{"tick_id": "x", "lease_token": "t", "outcome": "complete", "result": "` + strings.Repeat("x", 70_000) + `"}]}`},
		{422, "invalid", "heartbeat", "/ticks", many(`{"tick_id": "x", "lease_token": "t"}`, 1001)},
		{422, "invalid", "heartbeat", "/ticks/0/lease", `{"ticks": [{"tick_id": "x", "lease_token": "t", "lease": "1s"}]}`},
		{422, "required", "finish", "/ticks/0/lease_token", `{"ticks": [{"tick_id": "x", "outcome": "complete"}]}`},
		{422, "required", "heartbeat", "/ticks/1/tick_id", `{"ticks": [{"tick_id": "x", "lease_token": "t"}, {"lease_token": "t"}]}`},
		{422, "invalid", "x/heartbeat", "/lease", `{"lease_token": "t", "lease": "1h"}`},
		{422, "required", "x/heartbeat", "/lease_token", `{}`},
		{422, "required", "x/complete", "/lease_token", `{"result": 1}`},
		{422, "required", "x/fail", "/error", `{"lease_token": "t"}`},
		{422, "invalid", "x/fail", "/retry_after", `{"lease_token": "t", "error": "x", "retry_after": "never"}`},
		{400, "invalid_json", "x/complete", "", `{"lease_token": "t"`},
	} {
		c.Refused(wrong.status, wrong.code, wrong.pointer, "POST", "/v1/ticks/"+wrong.path, wrong.body)
	}
}

func TestTicksAreFinishedOneByOne(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	leased := c.Fired(3)
	one, two, three := leased[0], leased[1], leased[2]
	path := func(tick dispatchtest.Handed, what string) string { return "/v1/ticks/" + tick.TickID + "/" + what }
	token := func(tick dispatchtest.Handed, more string) string {
		return `{"lease_token": "` + tick.LeaseToken + `"` + more + `}`
	}

	until := dispatchtest.Get[struct {
		LeaseUntil time.Time `json:"lease_until"`
	}](c, 200, "POST", path(one, "heartbeat"), token(one, `, "lease": "30s"`)).LeaseUntil
	if left := time.Until(until); left < 0 || left > 31*time.Second {
		t.Errorf("the lease lasts %s more", left)
	}
	if a := c.Do("POST", path(one, "complete"), token(one, `, "result": {"n": 1.0}`)); a.Status != 204 || len(a.Body) > 0 {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
	if a := c.Do("POST", path(two, "fail"), token(two, `, "error": "no paper", "retry": false`)); a.Status != 204 {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
	for _, what := range []string{"heartbeat", "complete"} {
		c.Refused(409, "lease_lost", "", "POST", path(one, what), token(one, ""))          // ended
		c.Refused(409, "lease_lost", "", "POST", path(three, what), token(one, ""))        // another tick's token
		c.Refused(409, "lease_lost", "", "POST", path(three, what), `{"lease_token":"x"}`) // none at all
		c.Refused(404, "not_found", "", "POST", "/v1/ticks/absent/"+what, token(one, ""))
	}
	c.Refused(409, "lease_lost", "", "POST", path(two, "fail"), token(two, `, "error": "again"`))

	read := func(tick dispatchtest.Handed) history.Tick {
		return dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+tick.TickID, "")
	}
	if got := read(one); got.State != "succeeded" || string(got.Result) != `{"n": 1.0}` || got.EndedAt == nil {
		t.Errorf("got %+v", got)
	}
	if got := read(two); got.State != "failed" || got.Attempts[0].Error == nil || *got.Attempts[0].Error != "no paper" {
		t.Errorf("got %+v", got)
	}
	if got := read(three); got.State != "running" {
		t.Errorf("tokens that are not its own changed it: got %+v", got)
	}
	if a := c.Do("POST", path(three, "fail"), token(three, `, "error": "jam", "retry_after": "1s"`)); a.Status != 204 {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
	if got := c.LeaseAll(1)[0]; got.TickID != three.TickID || got.Attempt != 2 || string(got.Payload) != string(three.Payload) {
		t.Errorf("tried again: got %+v", got)
	}
}

func TestTicksAreFinishedInBulk(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	leased := c.Fired(3)
	item := func(id, token, more string) string {
		return fmt.Sprintf(`{"tick_id": %q, "lease_token": %q%s}`, id, token, more)
	}
	own := func(i int, more string) string { return item(leased[i].TickID, leased[i].LeaseToken, more) }
	send := func(route string, items ...string) []string {
		t.Helper()
		answer := dispatchtest.Get[struct {
			Results []struct {
				TickID     string `json:"tick_id"`
				Status     int
				Code       string
				LeaseUntil *time.Time `json:"lease_until"`
			}
		}](c, 200, "POST", "/v1/ticks/"+route, `{"ticks": [`+strings.Join(items, ",")+`]}`)
		var seen []string
		for _, r := range answer.Results {
			seen = append(seen, strings.TrimSpace(fmt.Sprint(r.Status, " ", r.Code)))
			if (r.LeaseUntil != nil) != (r.Status == 200) {
				t.Errorf("%s: got %+v", route, r)
			}
		}
		return seen
	}
	expect := func(want, got []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	const complete = `, "outcome": "complete"`
	expect([]string{"200", "404 not_found", "409 lease_lost", "200"},
		send("heartbeat", own(0, ""), item("absent", "t", ""), item(leased[1].TickID, leased[0].LeaseToken, ""), own(2, `, "lease": "10s"`)))
	expect([]string{"204", "204", "404 not_found", "409 lease_lost"},
		send("finish", own(0, complete+`, "result": [1]`), own(1, `, "outcome": "fail", "error": "x", "retry": false`),
			item("absent", "t", complete), item(leased[2].TickID, "t", complete)))
	expect([]string{"409 lease_lost", "409 lease_lost", "204"},
		send("finish", own(0, complete), own(1, complete), own(2, `, "outcome": "fail", "error": "x", "retry_after": "1h"`)))
	expect([]string{"409 lease_lost", "409 lease_lost"}, send("heartbeat", own(0, ""), own(2, "")))
	var states []string
	for _, tick := range leased {
		states = append(states, dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+tick.TickID, "").State)
	}
	expect([]string{"succeeded", "failed", "running"}, states)
}

func TestPayloadOfATriggerIsThatTicksAlone(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	p := dispatchtest.Rarely("allow_all")
	p.Payload = web.Raw(`{"of":  "schedule"}`)
	h.Put("w", "k", p)
	dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, `{"payload": {"n":  1.0}}`)
	dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	var got []string
	for _, tick := range c.LeaseAll(2) {
		got = append(got, string(tick.Payload))
	}
	slices.Sort(got)
	if want := []string{`{"n":  1.0}`, `{"of":  "schedule"}`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWorkersHoldAtMostTheQuota(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.Leased = 2
		return q, nil
	}
	d := h.Process()
	c := h.Open(d).Operator()
	h.Start(d)
	c.Put("w", "k", dispatchtest.Rarely("allow_all"))
	for range 3 {
		dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	}
	held := c.LeaseAll(2)
	refused := dispatchtest.Get[map[string]any](c, 429, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "max": 1000}`)
	if refused["quota"] != "leased" || refused["limit"] != 2.0 || refused["used"] != 2.0 {
		t.Errorf("got %v", refused)
	}
	if a := c.Do("POST", "/v1/ticks/"+held[0].TickID+"/complete", fmt.Sprintf(`{"lease_token": %q}`, held[0].LeaseToken)); a.Status != 204 {
		t.Fatalf("got %d %s", a.Status, a.Body)
	}
	c.LeaseAll(1)
}
