package control_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules"
)

const holdPath, releasePath = "/v1/workflows/w/hold", "/v1/workflows/w/release"

// A held workflow hands nothing out: what becomes due waits, and a tick that is ready waits too. After the release all of it is handed out
// by the policies of the schedules, and no schedule has another version.
func TestAHeldWorkflowHandsNothingOut(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch, func(g *echo.Group) { schedules.Routes(g, h.Schedules) }).Operator()
	every := schedules.Params{Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: "1s"}}}}
	for _, key := range []string{"a", "paused"} {
		h.Put("w", key, every)
	}
	other := h.Put("other", "k", every)
	if _, _, err := h.Schedules.Pause(t.Context(), h.Tenant, "w", "paused", schedules.PauseParams{}, schedules.Changer{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.Put("w", "ready", dispatchtest.Rarely("skip"))
	h.Start(h.Dispatch)
	ready := dispatchtest.Get[history.Tick](c, 202, "POST", "/v1/workflows/w/schedules/ready/trigger", "")
	dispatchtest.Until(t, "the manual tick is ready", func() bool { return h.Number(`SELECT COALESCE(sum(ticks), 0) FROM ready WHERE workflow = 'w'`) >= 1 })

	if w := dispatchtest.Get[schedules.Workflow](c, 200, "POST", holdPath, ""); w.State != "held" {
		t.Errorf("got %+v", w)
	}
	if w := dispatchtest.Get[schedules.Workflow](c, 200, "POST", holdPath, ""); w.State != "held" {
		t.Errorf("held twice it is %+v", w)
	}
	c.Refused(409, "workflow_held", "", "POST", "/v1/workflows/w/schedules/a/trigger", "")
	dispatchtest.Until(t, "the due cohort is set aside", func() bool { return h.Number(`SELECT count(*) FROM cohort WHERE held`) >= 1 })
	if list := c.Do("POST", "/v1/ticks/lease", `{"workflows": ["w"], "max": 100}`); string(list.Body) != `{"ticks":[]}` {
		t.Errorf("a held workflow leases %s", list.Body)
	}
	if n := h.Number(`SELECT count(*) FROM delayed WHERE waits_for = 'workflow/w'`); n < 1 {
		t.Error("the ready tick is not parked")
	}
	dispatchtest.Until(t, "another workflow fires", func() bool {
		list := dispatchtest.Get[struct{ Items []history.Tick }](c, 200, "GET", "/v1/workflows/other/schedules/k/ticks", "")
		return len(list.Items) > 0 && list.Items[0].Timestamp.After(other.NextAt.Add(time.Second))
	})
	now := time.Now().Truncate(time.Second).Add(10 * time.Second)
	if e := c.Do("GET", "/v1/workflows/w/schedules/a/explain?at="+url.QueryEscape(now.UTC().Format(time.RFC3339)), ""); !strings.Contains(string(e.Body), `"outcome":"held"`) {
		t.Errorf("got %s", e.Body)
	}

	if w := dispatchtest.Get[schedules.Workflow](c, 200, "POST", releasePath, ""); w.State != "active" {
		t.Errorf("got %+v", w)
	}
	seen := map[string]bool{}
	dispatchtest.Until(t, "what waited is handed out", func() bool {
		for _, one := range h.Lease("w", 100) {
			seen[one.Key] = true
			if one.Key == "ready" && one.TickID != ready.TickID {
				t.Errorf("another tick of the triggered schedule came: %+v", one)
			}
			h.Finish(one)
		}
		return seen["a"] && seen["ready"]
	})
	if seen["paused"] {
		t.Error("a paused schedule fired")
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE held`); n != 0 {
		t.Errorf("%d cohorts are still set aside", n)
	}
	if n := h.Number(`SELECT max(version) FROM schedule WHERE workflow = 'w' AND key <> 'paused'`); n != 1 {
		t.Errorf("the hold made version %d", n)
	}
	for _, one := range dispatchtest.Get[struct{ Items []history.Tick }](c, 200, "GET", "/v1/workflows/w/schedules/a/ticks?limit=1000", "").Items {
		if one.State == "skipped" && one.Reason != "overlap" {
			t.Errorf("a tick was left out: %+v", one)
		}
	}
}

// Retries of ticks that were sent before a hold go on; first attempts wait for the release.
func TestRetriesGoOnWhileAWorkflowIsHeld(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch, func(g *echo.Group) { schedules.Routes(g, h.Schedules) }).Operator()
	catcher := h.Catcher("w", 1, nil)
	catcher.AnswerEach(func(one dispatchtest.Handed, w http.ResponseWriter) {
		if one.Key == "first" && one.Attempt == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	h.Put("w", "first", dispatchtest.Rarely("skip"))
	h.Start(h.Dispatch)
	first := dispatchtest.Get[history.Tick](c, 202, "POST", "/v1/workflows/w/schedules/first/trigger", "")
	dispatchtest.Until(t, "the first attempt fails", func() bool { return h.Number(`SELECT count(*) FROM attempt`) == 1 })
	dispatchtest.Get[schedules.Workflow](c, 200, "POST", holdPath, "")
	h.Put("w", "second", schedules.Params{Spec: dispatchtest.At(15)})
	dispatchtest.Until(t, "the retry succeeds", func() bool {
		return dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+first.TickID, "").State == "succeeded"
	})
	dispatchtest.Until(t, "the second schedule is due", func() bool {
		return h.Number(`SELECT count(*) FROM cohort WHERE held`)+h.Number(`SELECT count(*) FROM delayed WHERE waits_for IS NOT NULL`) > 0
	})
	for _, one := range catcher.Caught() {
		if one.Key != "first" {
			t.Errorf("a held workflow sent %+v", one)
		}
	}
	dispatchtest.Get[schedules.Workflow](c, 200, "POST", releasePath, "")
	dispatchtest.Until(t, "the second tick is sent", func() bool {
		return dispatchtest.KeysOf(catcher.Caught())["second"]
	})
}

// The state of a workflow is also set by its upsert, and stays if that leaves it out.
func TestTheStateOfAWorkflowIsSetByItsUpsert(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch, func(g *echo.Group) { schedules.Routes(g, h.Schedules) }).Operator()
	for i, step := range []struct{ method, body, want string }{
		{"PUT", `{"state": "held"}`, "held"},
		{"PUT", `{"version": "2"}`, "held"},
		{"PATCH", `{"version": "3"}`, "held"},
		{"PATCH", `{"state": "active"}`, "active"},
		{"PATCH", `{"state": "held"}`, "held"},
		{"PUT", `{"state": "active"}`, "active"},
	} {
		status := 200
		if i == 0 {
			status = 201
		}
		if w := dispatchtest.Get[schedules.Workflow](c, status, step.method, "/v1/workflows/w", step.body); w.State != step.want {
			t.Errorf("%s %s: it is %s", step.method, step.body, w.State)
		}
	}
	c.Refused(422, "invalid", "/state", "PUT", "/v1/workflows/w", `{"state": "asleep"}`)
	c.Refused(404, "not_found", "", "POST", "/v1/workflows/none/hold", "")
	audit := fmt.Sprint(string(c.Do("GET", "/v1/workflows/w", "").Body))
	if !strings.Contains(audit, `"state":"active"`) {
		t.Errorf("got %s", audit)
	}
}
