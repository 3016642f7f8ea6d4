package expect_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/events"
	"github.com/carillonhq/carillon/dispatch/expect"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"

	"github.com/prometheus/client_golang/prometheus"
)

// watched is a Carillon with a listener for the events of workflows. Only the test makes the looks.
type watched struct {
	*dispatchtest.Carillon
	watcher *expect.Watcher
	told    func() []events.Event
}

func watch(t *testing.T) watched {
	t.Helper()
	h := dispatchtest.New(t)
	r, secret := h.Listener(tenants.WorkflowLate, tenants.WorkflowSilent, tenants.WorkflowNoWorkers, tenants.WorkflowRecovered)
	h.Reserve(upkeep.LookAtExpectations)
	h.Start(h.Dispatch)
	return watched{h, expect.New(h.Config.Pool, expect.NewMetrics(prometheus.NewRegistry())), func() []events.Event { return h.Told(r, secret) }}
}

func (w watched) expects(workflow string, e policy.Expect) {
	w.T.Helper()
	if _, _, err := w.Schedules.PutWorkflow(w.T.Context(), w.Tenant, workflow, schedules.WorkflowParams{Expect: &e, Defaults: &policy.Defaults{Delivery: &policy.Delivery{Timeout: "30s"}}}); err != nil {
		w.T.Fatal(err)
	}
}

func (w watched) look() {
	w.T.Helper()
	for more := true; more; {
		var err error
		if more, err = w.watcher.Look(w.T.Context()); err != nil {
			w.T.Fatal(err)
		}
	}
}

// minute writes what happened to the ticks of a workflow some seconds ago.
func (w watched) minute(workflow string, ago, bucket, due, fired, succeeded int) {
	w.T.Helper()
	w.Exec(`
		INSERT INTO use_series (tenant_id, step, workflow, endpoint, at, bucket, reason, due, fired, succeeded, failed, cancelled, skipped, retried, missed, first_due)
		SELECT $1, 1, $2, '', date_bin('1 minute', at, '2000-01-01Z'), $4, 0, $5, $6, $7, 0, 0, 0, 0, 0, extract(second FROM at)
		FROM (SELECT clock_timestamp() - $3 * interval '1 second' AS at) one`, w.Tenant, workflow, ago, bucket, due, fired, succeeded)
}

// wants waits until exactly these events were told, as type, cause and a part of their data.
func (w watched) wants(what string, want ...string) {
	w.T.Helper()
	dispatchtest.Until(w.T, what, func() bool { return len(w.told()) >= len(want) })
	for i, e := range w.told() {
		if i >= len(want) || !strings.HasPrefix(want[i], e.Type+" "+e.Cause+" ") || !strings.Contains(string(e.Data), strings.SplitN(want[i], " ", 3)[2]) {
			w.T.Errorf("%s: event %d is %s of %s: %s", what, i, e.Type, e.Cause, e.Data)
		}
	}
}

func TestALateWorkflowIsToldAndRecovers(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.expects("w", policy.Expect{HandedOutWithin: "5s", EndedWithin: "1h"})
	w.minute("w", 20, 12, 50, 50, 1) // at most 20.48 s late
	w.look()
	w.look() // within the hour nothing more is told
	w.wants("late", `workflow.late w "measure":"handed_out"`)
	if got := w.told()[0]; got.Count != 1 || !strings.Contains(string(got.Data), `"limit_ms":5000`) {
		t.Errorf("got %+v %s", got, got.Data)
	}
	overviews := &history.Overviews{
		DB:    w.Config.API,
		Ahead: func(context.Context, tenants.ID) *forecast.Ahead { return nil },
		Uses:  func(context.Context, tenants.ID) (map[string]tenants.Use, error) { return nil, nil },
	}
	overview, err := overviews.Of(t.Context(), w.Tenant)
	if err != nil || len(overview.Unmet) != 1 || overview.Unmet[0].Workflow != "w" || overview.Unmet[0].Event != tenants.WorkflowLate {
		t.Errorf("the overview has %+v, %v", overview.Unmet, err)
	}
	w.Exec(`UPDATE unmet_expectation SET told_at = told_at - interval '61 minutes'`)
	w.Exec(`UPDATE notice SET next_at = clock_timestamp()`)
	w.look()
	dispatchtest.Until(t, "it is told again after an hour", func() bool { return len(w.told()) == 2 })
	w.Exec(`UPDATE use_series SET bucket = 3`)
	w.look()
	dispatchtest.Until(t, "it recovers", func() bool { return len(w.told()) == 3 })
	if e := w.told()[2]; e.Type != tenants.WorkflowRecovered || !strings.Contains(string(e.Data), tenants.WorkflowLate) {
		t.Errorf("got %+v %s", e, e.Data)
	}
	if n := w.Number(`SELECT count(*) FROM unmet_expectation`); n != 0 {
		t.Errorf("%d are not met", n)
	}
}

func TestASilentWorkflowIsToldAndRecovers(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.expects("w", policy.Expect{EndedWithin: "1h"})
	w.Exec(`INSERT INTO workflow (tenant_id, name) VALUES ($1, 'indifferent')`, w.Tenant)
	w.minute("indifferent", 100, 1, 5, 5, 0)
	w.minute("w", 20, 1, 5, 5, 0) // within their timeout
	w.look()
	if n := w.Number(`SELECT count(*) FROM unmet_expectation`); n != 0 {
		t.Fatalf("%d are not met while ticks are within their timeout", n)
	}
	w.minute("w", 100, 1, 7, 7, 0)
	w.look()
	w.wants("silent", `workflow.silent w "due"`)
	w.look()
	w.Exec(`UPDATE use_series SET succeeded = 1`)
	w.look()
	w.wants("silent, and recovered", `workflow.silent w "due"`, `workflow.recovered w workflow.silent`)
}

// None is told while the workflow is held, its tenant is halted or all of its schedules are paused. What expects nothing any more is
// forgotten.
func TestNoneIsToldWhileNothingIsHandedOut(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.expects("w", policy.Expect{HandedOutWithin: "5s"})
	w.Fire("w", 2, 2)
	dispatchtest.Until(t, "ticks wait for a worker", func() bool { return w.Number(`SELECT COALESCE(sum(ticks), 0) FROM ready`) == 2 })
	op := w.Open(w.Dispatch).Operator()
	unmet := func() int { return w.Number(`SELECT count(*) FROM unmet_expectation WHERE workflow = 'w'`) }
	begin := map[string]func(){
		"held":   w.hold,
		"halted": func() { op.Do("POST", "/v1/admin/halt", `{"note": "stop"}`) },
		"paused": func() { w.act("pause", 2) },
	}
	end := map[string]func(){
		"held":   w.release,
		"halted": func() { op.Do("POST", "/v1/admin/continue", `{}`) },
		"paused": func() { w.act("resume", 0) },
	}
	w.minute("w", 100, 12, 50, 50, 0)
	w.minute("w", 10, 12, 50, 50, 0)
	for state, stop := range begin {
		stop()
		w.Exec(`DELETE FROM unmet_expectation`)
		w.look()
		if n := unmet(); n != 0 {
			t.Errorf("%d are not met while it is %s", n, state)
		}
		end[state]()
		w.look()
		if n := unmet(); n != 3 {
			t.Errorf("%d are not met, want 3, when it is not %s any more", n, state)
		}
	}
	if _, _, err := w.Schedules.PutWorkflow(t.Context(), w.Tenant, "w", schedules.WorkflowParams{}); err != nil {
		t.Fatal(err)
	}
	w.look()
	if n := w.Number(`SELECT count(*) FROM unmet_expectation WHERE event <> $1`, tenants.WorkflowNoWorkers); n != 0 {
		t.Errorf("%d are not met without an expectation", n)
	}
}

func (w watched) hold() {
	w.T.Helper()
	if _, err := w.Schedules.Hold(w.T.Context(), w.Tenant, "w", version.Precondition{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w watched) release() {
	w.T.Helper()
	if _, err := w.Schedules.Release(w.T.Context(), w.Tenant, "w", version.Precondition{}); err != nil {
		w.T.Fatal(err)
	}
}

// act pauses or resumes all schedules, and waits until that is counted.
func (w watched) act(action string, paused int) {
	w.T.Helper()
	op, _, err := w.Actions.Act(w.T.Context(), w.Tenant, schedules.ActionParams{Action: action, Filter: &schedules.ActionFilter{All: true}}, schedules.Changer{By: "ann"})
	if err != nil {
		w.T.Fatal(err)
	}
	w.Ended(op.ID)
	dispatchtest.Until(w.T, "it is counted", func() bool {
		return w.Number(`SELECT COALESCE(sum(n), 0) FROM inactive WHERE state = 'paused'`) == paused &&
			w.Number(`SELECT COALESCE(sum(n), 0) FROM tally WHERE cohort_id > 0`) == 2-paused
	})
}

// A workflow that is released is not silent while the ticks that waited are within their timeout.
func TestTicksThatWaitedHaveTheirTimeoutFromTheirRelease(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.expects("w", policy.Expect{EndedWithin: "1h"})
	w.Exec(`UPDATE workflow SET defaults = jsonb_set(defaults, '{delivery,timeout}', '"3s"')`)
	w.hold()
	w.Put("w", "k", dispatchtest.EverySecond())
	dispatchtest.Until(t, "it is held back for a while", func() bool {
		return w.Number(`SELECT count(*) FROM cohort WHERE held AND next_at < clock_timestamp() - interval '5 seconds'`) == 1
	})
	released := time.Now()
	w.release()
	silent := func() bool {
		if err := w.Dispatch.FoldUse(t.Context()); err != nil { // a look reads what is folded
			t.Fatal(err)
		}
		w.look()
		return w.Number(`SELECT count(*) FROM unmet_expectation WHERE event = $1`, tenants.WorkflowSilent) == 1
	}
	dispatchtest.Until(t, "it is silent", silent)
	found, fired := time.Now(), w.History("w", "k")[0].FiredAt
	if fired.Before(released) || found.Sub(*fired) < 3*time.Second {
		t.Errorf("it was released at %s, fired at %s, and is silent at %s, before the timeout of its ticks", released, fired, found)
	}
}

// Two processes that look at the same time tell the tenant once. Each condition of a workflow that ends is told at once, also within the
// hour after another one has ended.
func TestTwoProcessesTellOnce(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.expects("w", policy.Expect{HandedOutWithin: "5s", EndedWithin: "1h"})
	w.minute("w", 100, 12, 50, 50, 0)
	w.minute("w", 20, 12, 50, 50, 0)
	watchers := []watched{w, w, w}
	for i := range watchers {
		watchers[i].watcher = expect.New(w.Config.Pool, expect.NewMetrics(prometheus.NewRegistry()))
	}
	together := func() {
		var all sync.WaitGroup
		for range 3 {
			for _, one := range watchers {
				all.Go(one.look)
			}
			all.Wait()
		}
	}
	told := func(event string) (n int, of []string) {
		for _, e := range w.told() {
			if e.Type == event {
				n += int(e.Count)
				of = append(of, e.Cause+" "+string(e.Data))
			}
		}
		return n, of
	}
	together()
	dispatchtest.Until(t, "both are told", func() bool {
		silent, _ := told(tenants.WorkflowSilent)
		late, _ := told(tenants.WorkflowLate)
		return silent > 0 && late > 0
	})
	w.Exec(`UPDATE use_series SET succeeded = 1`)
	together()
	dispatchtest.Until(t, "it is silent no more", func() bool { n, _ := told(tenants.WorkflowRecovered); return n == 1 })
	w.Exec(`UPDATE use_series SET bucket = 3`)
	together()
	dispatchtest.Until(t, "it is late no more", func() bool { n, _ := told(tenants.WorkflowRecovered); return n >= 2 })
	if n, of := told(tenants.WorkflowRecovered); n != 2 || len(of) != 2 || !strings.HasPrefix(of[0], "w ") || !strings.Contains(of[0], tenants.WorkflowSilent) || !strings.Contains(of[1], tenants.WorkflowLate) {
		t.Errorf("its recovery is told %d times: %q", n, of)
	}
	for _, event := range []string{tenants.WorkflowSilent, tenants.WorkflowLate} {
		if n, of := told(event); n != 1 || len(of) != 1 || w.Number(`SELECT COALESCE(sum(n), 0) FROM notice`) != 0 {
			t.Errorf("%s is told %d times: %q", event, n, of)
		}
	}
}

// A running process tells of a late, a silent and a workerless workflow within a minute, and again when the latter two recover.
func TestAProcessTellsWithinAMinute(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r, secret := h.Listener(tenants.WorkflowLate, tenants.WorkflowSilent, tenants.WorkflowNoWorkers, tenants.WorkflowRecovered)
	var works atomic.Bool
	h.Catcher("silent", 1, func(_ int, w http.ResponseWriter) {
		if !works.Load() {
			w.WriteHeader(500)
		}
	})
	h.Catcher("late", 1, nil)
	for name, p := range map[string]schedules.WorkflowParams{
		"silent": {Endpoint: new("silent"), Expect: &policy.Expect{EndedWithin: "1h"}, Defaults: &policy.Defaults{Delivery: &policy.Delivery{Timeout: "1s"}}},
		"late":   {Endpoint: new("late"), Expect: &policy.Expect{HandedOutWithin: "2s"}, Rate: &policy.Rate{PerSecond: 1}},
	} {
		if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Tenant, name, p); err != nil {
			t.Fatal(err)
		}
	}
	h.Start(h.Dispatch)
	often := dispatchtest.EverySecond()
	often.Policy = &policy.Policy{Overlap: "allow_all", Missed: "all"}
	h.Put("silent", "k", often)
	h.Put("idle", "k", often)
	for i := range 5 {
		h.Put("late", fmt.Sprint(i), often)
	}
	begin := time.Now()
	told := func(event, cause, says string) func() bool {
		return func() bool {
			return slices.ContainsFunc(h.Told(r, secret), func(e events.Event) bool {
				return e.Type == event && e.Cause == cause && strings.Contains(string(e.Data), says)
			})
		}
	}
	for event, workflow := range map[string]string{tenants.WorkflowLate: "late", tenants.WorkflowSilent: "silent", tenants.WorkflowNoWorkers: "idle"} {
		dispatchtest.Until(t, event+" is told", told(event, workflow, `"`+workflow+`"`))
		if after := time.Since(begin); after > time.Minute {
			t.Errorf("%s is told after %v", event, after)
		}
	}
	works.Store(true)
	h.Lease("idle", 1)
	dispatchtest.Until(t, "the silent one recovers", told(tenants.WorkflowRecovered, "silent", tenants.WorkflowSilent))
	dispatchtest.Until(t, "the one without workers recovers", told(tenants.WorkflowRecovered, "idle", tenants.WorkflowNoWorkers))
	if all := h.Told(r, secret); len(all) != 5 {
		t.Errorf("%d events, want 5: %+v", len(all), all)
	}
}

// A pulled workflow has no workers once ticks wait and nobody has polled for a minute; a poll ends that.
func TestAWorkflowWithoutWorkersIsTold(t *testing.T) {
	t.Parallel()
	w := watch(t)
	c := w.Catcher("pushed", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(500) })
	defer c.Close()
	w.Put("w", "k", dispatchtest.Rarely("allow_all"))
	w.Put("pushed", "k", dispatchtest.Rarely("allow_all"))
	w.Fire("w", 2, 2)
	w.Fire("pushed", 1, 2)
	dispatchtest.Until(t, "ticks wait", func() bool { return w.Number(`SELECT COALESCE(sum(ticks), 0) FROM ready`) == 2 })
	w.look()
	if n := len(w.told()); n != 0 {
		t.Errorf("%d events at once", n)
	}
	w.Exec(`UPDATE unmet_expectation SET since = since - interval '30 seconds'`)
	w.look()
	w.wants("no workers", `workflow.no_workers w "ready"`)
	var data struct{ Ready int }
	if err := json.Unmarshal(w.told()[0].Data, &data); err != nil || data.Ready != 2 {
		t.Errorf("got %s, %v", w.told()[0].Data, err)
	}
	w.Lease("w", 1)
	if err := w.Dispatch.Polls.WritePolls(t.Context()); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "the poll is written, here or by the process", func() bool { return w.Number(`SELECT count(*) FROM workflow_poll WHERE workflow = 'w'`) == 1 })
	w.look()
	w.wants("a worker polls again", `workflow.no_workers w "ready"`, `workflow.recovered w workflow.no_workers`)
}
