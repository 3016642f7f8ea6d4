package schedules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestAWorkflowIsPutReadAndDeleted(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.exec(`INSERT INTO endpoint (tenant_id, name, url, secrets) VALUES ($1, 'mailer', 'https://example.com', '{\\x00}')`, h.acme)
	p := schedules.WorkflowParams{Endpoint: new("mailer"), Version: new("v1"), Defaults: &policy.Defaults{Policy: &policy.Policy{MaxLateness: "1h"}}}
	w, made, err := h.schedules.PutWorkflow(t.Context(), h.acme, "w", p)
	if err != nil || !made || *w.Endpoint != "mailer" || *w.Version != "v1" || w.Defaults.Policy.MaxLateness != "1h" {
		t.Fatalf("got %+v %t %v", w, made, err)
	}
	got, err := h.schedules.Workflow(t.Context(), h.acme, "w")
	if diff := cmp.Diff(w, got); err != nil || diff != "" {
		t.Errorf("%v, put -, read +:\n%s", err, diff)
	}
	if w, made, err = h.schedules.PutWorkflow(t.Context(), h.acme, "w", schedules.WorkflowParams{}); err != nil || made || w.Endpoint != nil || w.Version != nil || w.Defaults.Policy != nil {
		t.Errorf("got %+v %t %v", w, made, err)
	}
	if err := h.schedules.DeleteWorkflow(t.Context(), h.acme, "w", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	_, err = h.schedules.Workflow(t.Context(), h.acme, "w")
	faulty(t, err, 404, "not_found")
	faulty(t, h.schedules.DeleteWorkflow(t.Context(), h.acme, "w", version.Precondition{}), 404, "not_found")
}

func TestAWorkflowIsRegisteredByItsFirstScheduleOnly(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 12 * * *")))
	if _, made, err := h.schedules.PutWorkflow(t.Context(), h.acme, "w", schedules.WorkflowParams{Version: new("2")}); err != nil || made {
		t.Fatal(made, err)
	}
	h.put("b", spec(cron("0 12 * * *")))
	if w, err := h.schedules.Workflow(t.Context(), h.acme, "w"); err != nil || *w.Version != "2" {
		t.Errorf("got %+v %v", w, err)
	}
}

func TestDefaultsAreInheritedLive(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	before := h.put("a", schedules.Params{Spec: cron("0 12 * * *"), Policy: &policy.Policy{OnExpired: "deliver"}})
	defaults := &policy.Defaults{Policy: &policy.Policy{MaxLateness: "1h", OnExpired: "skip"}, Delivery: &policy.Delivery{Priority: new(1)}}
	if _, _, err := h.schedules.PutWorkflow(t.Context(), h.acme, "w", schedules.WorkflowParams{Defaults: defaults}); err != nil {
		t.Fatal(err)
	}
	s := h.get("a")
	if s.Policy.MaxLateness != "1h" || s.Policy.OnExpired != "deliver" || *s.Delivery.Priority != 1 || s.Version != before.Version {
		t.Errorf("got %+v %+v", s.Policy, s.Delivery)
	}
	want := []string{
		"/policy/overlap", "/policy/missed", "/policy/max_lateness", "/policy/pause_after_failures", "/delivery/queue", "/delivery/priority",
		"/delivery/timeout", "/delivery/max_attempts", "/delivery/retention/succeeded", "/delivery/retention/failed",
	}
	if diff := cmp.Diff(want, s.Inherited); diff != "" {
		t.Errorf("inherited: want -, got +:\n%s", diff)
	}
	if err := h.schedules.DeleteWorkflow(t.Context(), h.acme, "w", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	if s = h.get("a"); s.Policy.MaxLateness != "24h" {
		t.Errorf("without its workflow got %+v", s.Policy)
	}
}

func TestAWorkflowRefusesAllThatCannotBe(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	p := schedules.WorkflowParams{
		Endpoint: new("a b"), Version: new(""), MaxRunning: new(int32(0)),
		Defaults: &policy.Defaults{Policy: &policy.Policy{Missed: "all", Overlap: "queue"}, Delivery: &policy.Delivery{Timeout: "x"}},
	}
	_, _, err := h.schedules.PutWorkflow(t.Context(), h.acme, strings.Repeat("w", 129), p)
	var got []string
	for _, f := range faulty(t, err, 422, "invalid").Fields {
		got = append(got, f.Pointer)
	}
	want := []string{"/workflow", "/defaults/policy/overlap", "/defaults/delivery/timeout", "/max_running", "/version", "/endpoint"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	h.exec(`INSERT INTO endpoint (tenant_id, name, url, secrets) VALUES ($1, 'theirs', 'https://example.com', '{\\x00}')`, h.other)
	for _, name := range []string{"none", "theirs"} {
		_, _, err = h.schedules.PutWorkflow(t.Context(), h.acme, "w", schedules.WorkflowParams{Endpoint: &name})
		faulty(t, err, 422, "no_endpoint")
	}
}

func TestPagesOfWorkflowsAreTheWhole(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var want []string
	for i := range 7 {
		want = append(want, fmt.Sprint("w", i))
		if _, _, err := h.schedules.PutWorkflow(t.Context(), h.acme, want[i], schedules.WorkflowParams{}); err != nil {
			t.Fatal(err)
		}
	}
	for limit := 1; limit < 9; limit++ {
		var got []string
		for cursor := ""; ; {
			page, next, err := h.schedules.Workflows(t.Context(), h.acme, limit, cursor)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range page {
				got = append(got, w.Name)
			}
			if next == nil {
				break
			}
			cursor = *next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d: want -, got +:\n%s", limit, diff)
		}
	}
}

// The missed policy is part of a cohort's identity: a new default moves who inherits it, by an operation.
func TestADefaultThatMovesSchedules(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	own := h.put("own", schedules.Params{Spec: cron("0 12 * * *"), Policy: &policy.Policy{Missed: "last"}})
	inherits := h.put("inherits", spec(cron("0 12 * * *")))
	h.put("paused", spec(cron("0 12 * * *")))
	h.pause("paused", schedules.PauseParams{})
	if _, _, err := h.schedules.Put(h.theirs(), policy.Name{Tenant: h.other, Workflow: "w", Key: "inherits"}, spec(cron("0 12 * * *")), "eve", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	change := func(p *policy.Policy) operations.Answer {
		t.Helper()
		if _, _, err := h.schedules.PutWorkflow(t.Context(), h.acme, "w", schedules.WorkflowParams{Defaults: &policy.Defaults{Policy: p}}); err != nil {
			t.Fatal(err)
		}
		page, _, err := h.schedules.Operations.List(t.Context(), h.acme, "pending", 10, "")
		if err != nil || len(page) != 1 || page[0].Kind != "defaults" {
			t.Fatalf("got %+v, %v", page, err)
		}
		return page[0]
	}
	const cohorts = `
		SELECT string_agg(concat_ws(' ', t.name, s.key, c.missed), ', ' ORDER BY t.name, s.key)
		FROM schedule s JOIN tenant t ON t.id = s.tenant_id JOIN cohort c ON c.id = s.cohort_id JOIN member m ON m.cohort_id = c.id AND m.schedule_id = s.id`
	begun := change(&policy.Policy{Missed: "all"})
	h.put("new", spec(cron("0 12 * * *")))
	if got := one[string](h, cohorts); got != "acme inherits last, acme new all, acme own last, other inherits last" {
		t.Errorf("before the operation: %s", got)
	}
	if got := h.operate(begun.ID); got.State != operations.Succeeded || got.Counts["retimed"] != 1 {
		t.Errorf("got %+v", got)
	}
	if got := one[string](h, cohorts); got != "acme inherits all, acme new all, acme own last, other inherits last" {
		t.Errorf("after the operation: %s", got)
	}
	if got := h.get("inherits"); got.Version != inherits.Version || got.Policy.Missed != "all" || !got.NextAt.Equal(*inherits.NextAt) || h.get("own").Version != own.Version {
		t.Errorf("got %+v", got)
	}
	if got := h.resume("paused", schedules.ResumeParams{}); got.Policy.Missed != "all" {
		t.Errorf("got %+v", got)
	}
	if _, _, err := h.schedules.PutWorkflow(t.Context(), h.acme, "w", schedules.WorkflowParams{Version: new("2"), Defaults: &policy.Defaults{Policy: &policy.Policy{Missed: "all", MaxLateness: "1h"}}}); err != nil {
		t.Fatal(err)
	}
	h.operate(change(nil).ID) // and not one more
	if err := h.schedules.DeleteWorkflow(t.Context(), h.acme, "w", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	if got := one[string](h, cohorts); got != "acme inherits last, acme new last, acme own last, acme paused last, other inherits last" {
		t.Errorf("at the end: %s", got)
	}
}

// What was due when the default changed follows the policy that was in force.
func TestADefaultThatMovesHandsOutWhatIsDue(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 * * * *")))
	h.back(24 * time.Hour)
	if _, _, err := h.schedules.PutWorkflow(t.Context(), h.acme, "w", schedules.WorkflowParams{Defaults: &policy.Defaults{Policy: &policy.Policy{Missed: "none"}}}); err != nil {
		t.Fatal(err)
	}
	page, _, err := h.schedules.Operations.List(t.Context(), h.acme, "", 10, "")
	if err != nil {
		t.Fatal(err)
	}
	h.operate(page[0].ID)
	if handed := h.takeHanded(); len(handed) != 1 || handed[0].Run.Drop || handed[0].Missed == 0 {
		t.Errorf("got %+v", handed)
	}
}
