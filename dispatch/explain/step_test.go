package explain_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/explain"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules"
)

// The steps of an explanation are the way of the tick, or end where it is decided that there is none; the last has the words of the
// explanation.
func TestAnExplanationHasTheStepsOfTheWay(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch, func(g *echo.Group) { schedules.Routes(g, h.Schedules) }).Operator()
	h.Catcher("w", 1, nil).AnswerEach(func(one dispatchtest.Handed, w http.ResponseWriter) {
		if one.Attempt == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	made := h.Put("w", "k", dispatchtest.Rarely("skip"))
	h.Start(h.Dispatch)
	ask := func(at time.Time) (e explain.Explanation, way string) {
		t.Helper()
		e = dispatchtest.Get[explain.Explanation](c, 200, "GET", dispatchtest.ExplainPath+"?at="+url.QueryEscape(at.Format(time.RFC3339)), "")
		for _, s := range e.Steps {
			way += " " + s.What + ":" + s.Outcome
		}
		if last := e.Steps[len(e.Steps)-1]; last.Detail != e.Detail || last.Outcome != e.Outcome {
			t.Errorf("the last step is %+v, and the explanation %+v", last, e)
		}
		return e, strings.TrimSpace(way)
	}
	if _, way := ask(*made.NextAt); way != "version:in_force tick:will_fire" {
		t.Errorf("a coming tick goes %s", way)
	}
	if _, way := ask(made.NextAt.Add(time.Hour)); way != "version:in_force timing:not_due" {
		t.Errorf("a time that the spec does not name goes %s", way)
	}
	if _, way := ask(made.CreatedAt.Add(-time.Hour)); way != "schedule:before_created" {
		t.Errorf("a time before the schedule goes %s", way)
	}
	tick := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	dispatchtest.Until(t, "the second attempt succeeds", func() bool {
		return dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+tick.TickID, "").State == "succeeded"
	})
	e, way := ask(tick.Timestamp)
	if want := "handed_out:on_time attempt:failed attempt:succeeded tick:fired"; !strings.HasSuffix(way, want) {
		t.Errorf("a tick goes %s, want %s", way, want)
	}
	last := e.Steps[len(e.Steps)-1]
	if last.Link != "/v1/ticks/"+tick.TickID || len(e.Tick.Attempts) != 2 {
		t.Errorf("got %+v, %+v", last, e.Tick)
	}
	for _, s := range e.Steps {
		if strings.HasPrefix(s.Link, "/v1/") && c.Do("GET", s.Link, "").Status != 200 {
			t.Errorf("the link %s leads nowhere", s.Link)
		}
	}
	h.Exec(`UPDATE schedule SET status = 'paused', paused_at = created_at, cohort_id = NULL`)
	if _, way := ask(made.NextAt.Add(0)); way != "version:in_force schedule:paused" {
		t.Errorf("a paused schedule goes %s", way)
	}
}
