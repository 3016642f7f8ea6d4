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
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// The number of workflows has a quota. The quota of schedules also bounds the profiles of keys.
func TestThereAreOnlySoManyWorkflowsAndProfiles(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	if _, err := e.Pool.Exec(t.Context(), `INSERT INTO workflow (tenant_id, name) SELECT $1, 'many-' || n FROM generate_series(1, 19999) n`, e.Acme); err != nil {
		t.Fatal(err)
	}
	e.Quotas.Workflows = 20_000
	e.Want(201, "", "PUT", "/v1/workflows/last", `{}`)
	got := e.Want(403, "quota_exceeded", "PUT", "/v1/workflows/more", `{}`)
	if fmt.Sprint(got.Doc["quota"], got.Doc["limit"], got.Doc["used"]) != "workflows2000020000" {
		t.Errorf("got %s", got.Body)
	}
	e.Want(200, "", "PUT", "/v1/workflows/last", `{"version":"2"}`)
	e.Want(403, "quota_exceeded", "PUT", "/v1/workflows/more/schedules/k", schedulestest.DailyBody)
	e.Want(201, "", "PUT", "/v1/workflows/last/schedules/k", schedulestest.DailyBody)
	lines := `{"workflow":"last","key":"a","spec":{"cron":"0 12 * * *"}}` + "\n" + `{"workflow":"more","key":"b","spec":{"cron":"0 12 * * *"}}` + "\n" + `{"workflow":"many-7","key":"c","spec":{"cron":"0 12 * * *"}}`
	if got := e.Ask("POST", schedulestest.BulkPath, lines, "Content-Type", "application/x-ndjson"); !strings.Contains(got.Body, `"inserted":2`) || !strings.Contains(got.Body, `"errors":1`) || !strings.Contains(got.Body, "quota_exceeded") {
		t.Errorf("got %s", got.Body)
	}

	e.Quotas.Subjects = 2
	for n := range 2 {
		e.Want(201, "", "PUT", fmt.Sprintf("/v1/subjects/k%d", n), `{"timezone":"Europe/Berlin"}`)
	}
	got = e.Want(403, "quota_exceeded", "PUT", "/v1/subjects/more", `{"timezone":"Europe/Berlin"}`)
	if fmt.Sprint(got.Doc["quota"], got.Doc["limit"], got.Doc["used"]) != "subjects22" {
		t.Errorf("got %s", got.Body)
	}
	e.Want(200, "", "PUT", "/v1/subjects/k1", `{"timezone":"Asia/Tokyo"}`)
	e.Want(200, "", "DELETE", "/v1/subjects/k1", "")
	e.Want(201, "", "PUT", "/v1/subjects/more", `{"timezone":"Europe/Berlin"}`)
}

func TestAWorkflowIsPutReadAndDeleted(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Exec(`INSERT INTO endpoint (tenant_id, name, url, secrets) VALUES ($1, 'mailer', 'https://example.com', '{\\x00}')`, h.Acme)
	p := schedules.WorkflowParams{Endpoint: new("mailer"), Version: new("v1"), Defaults: &policy.Defaults{Policy: &policy.Policy{MaxLateness: "1h"}}}
	w, made, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "w", p)
	if err != nil || !made || *w.Endpoint != "mailer" || *w.Version != "v1" || w.Defaults.Policy.MaxLateness != "1h" {
		t.Fatalf("got %+v %t %v", w, made, err)
	}
	got, err := h.Schedules.Workflow(t.Context(), h.Acme, "w")
	if diff := cmp.Diff(w, got); err != nil || diff != "" {
		t.Errorf("%v, put -, read +:\n%s", err, diff)
	}
	if w, made, err = h.Schedules.PutWorkflow(t.Context(), h.Acme, "w", schedules.WorkflowParams{}); err != nil || made || w.Endpoint != nil || w.Version != nil || w.Defaults.Policy != nil {
		t.Errorf("got %+v %t %v", w, made, err)
	}
	if err := h.Schedules.DeleteWorkflow(t.Context(), h.Acme, "w", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	_, err = h.Schedules.Workflow(t.Context(), h.Acme, "w")
	schedulestest.WantFault(t, err, 404, "not_found")
	schedulestest.WantFault(t, h.Schedules.DeleteWorkflow(t.Context(), h.Acme, "w", version.Precondition{}), 404, "not_found")
}

func TestAWorkflowIsRegisteredByItsFirstScheduleOnly(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 12 * * *"))
	if _, made, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "w", schedules.WorkflowParams{Version: new("2")}); err != nil || made {
		t.Fatal(made, err)
	}
	h.Put("b", schedulestest.ByCron("0 12 * * *"))
	if w, err := h.Schedules.Workflow(t.Context(), h.Acme, "w"); err != nil || *w.Version != "2" {
		t.Errorf("got %+v %v", w, err)
	}
}

func TestDefaultsAreInheritedLive(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	before := h.Put("a", schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Policy: &policy.Policy{OnExpired: "deliver"}})
	defaults := &policy.Defaults{Policy: &policy.Policy{MaxLateness: "1h", OnExpired: "skip"}, Delivery: &policy.Delivery{Priority: new(1)}}
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "w", schedules.WorkflowParams{Defaults: defaults}); err != nil {
		t.Fatal(err)
	}
	s := h.Get("a")
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
	if err := h.Schedules.DeleteWorkflow(t.Context(), h.Acme, "w", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	if s = h.Get("a"); s.Policy.MaxLateness != "24h" {
		t.Errorf("without its workflow got %+v", s.Policy)
	}
}

func TestAWorkflowRefusesAllThatCannotBe(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	p := schedules.WorkflowParams{
		Endpoint: new("a b"), Version: new(""), MaxRunning: new(int32(0)),
		Defaults: &policy.Defaults{Policy: &policy.Policy{Missed: "all", Overlap: "queue"}, Delivery: &policy.Delivery{Timeout: "x"}},
	}
	_, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, strings.Repeat("w", 129), p)
	var got []string
	for _, f := range schedulestest.WantFault(t, err, 422, "invalid").Fields {
		got = append(got, f.Pointer)
	}
	want := []string{"/workflow", "/defaults/policy/overlap", "/defaults/delivery/timeout", "/max_running", "/version", "/endpoint"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	h.Exec(`INSERT INTO endpoint (tenant_id, name, url, secrets) VALUES ($1, 'theirs', 'https://example.com', '{\\x00}')`, h.Other)
	for _, name := range []string{"none", "theirs"} {
		_, _, err = h.Schedules.PutWorkflow(t.Context(), h.Acme, "w", schedules.WorkflowParams{Endpoint: &name})
		schedulestest.WantFault(t, err, 422, "no_endpoint")
	}
}

func TestPagesOfWorkflowsAreTheWhole(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	var want []string
	for i := range 7 {
		want = append(want, fmt.Sprint("w", i))
		if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, want[i], schedules.WorkflowParams{}); err != nil {
			t.Fatal(err)
		}
	}
	for limit := 1; limit < 9; limit++ {
		var got []string
		for cursor := ""; ; {
			page, next, err := h.Schedules.Workflows(t.Context(), h.Acme, limit, cursor)
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

// The missed policy is part of a cohort's identity. So an operation moves the schedules that inherit a new default.
func TestADefaultThatMovesSchedules(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	own := h.Put("own", schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Policy: &policy.Policy{Missed: "last"}})
	inherits := h.Put("inherits", schedulestest.ByCron("0 12 * * *"))
	h.Put("paused", schedulestest.ByCron("0 12 * * *"))
	h.Pause("paused", schedules.PauseParams{})
	if _, _, err := h.Schedules.Put(h.Theirs(), policy.Name{Tenant: h.Other, Workflow: "w", Key: "inherits"}, schedulestest.ByCron("0 12 * * *"), "eve", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	change := func(p *policy.Policy) operations.Answer {
		t.Helper()
		if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "w", schedules.WorkflowParams{Defaults: &policy.Defaults{Policy: p}}); err != nil {
			t.Fatal(err)
		}
		page, _, err := h.Schedules.Operations.List(t.Context(), h.Acme, "pending", 10, "")
		if err != nil || len(page) != 1 || page[0].Kind != "defaults" {
			t.Fatalf("got %+v, %v", page, err)
		}
		return page[0]
	}
	const cohorts = `
		SELECT string_agg(concat_ws(' ', t.name, s.key, c.missed), ', ' ORDER BY t.name, s.key)
		FROM schedule s JOIN tenant t ON t.id = s.tenant_id JOIN cohort c ON c.id = s.cohort_id JOIN member m ON m.cohort_id = c.id AND m.schedule_id = s.id`
	begun := change(&policy.Policy{Missed: "all"})
	h.Put("new", schedulestest.ByCron("0 12 * * *"))
	if got := schedulestest.One[string](h, cohorts); got != "acme inherits last, acme new all, acme own last, other inherits last" {
		t.Errorf("before the operation: %s", got)
	}
	if got := h.Operate(begun.ID); got.State != operations.Succeeded || got.Counts["retimed"] != 1 {
		t.Errorf("got %+v", got)
	}
	if got := schedulestest.One[string](h, cohorts); got != "acme inherits all, acme new all, acme own last, other inherits last" {
		t.Errorf("after the operation: %s", got)
	}
	if got := h.Get("inherits"); got.Version != inherits.Version || got.Policy.Missed != "all" || !got.NextAt.Equal(*inherits.NextAt) || h.Get("own").Version != own.Version {
		t.Errorf("got %+v", got)
	}
	if got := h.Resume("paused", schedules.ResumeParams{}); got.Policy.Missed != "all" {
		t.Errorf("got %+v", got)
	}
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "w", schedules.WorkflowParams{Version: new("2"), Defaults: &policy.Defaults{Policy: &policy.Policy{Missed: "all", MaxLateness: "1h"}}}); err != nil {
		t.Fatal(err)
	}
	h.Operate(change(nil).ID) // and not one more
	if err := h.Schedules.DeleteWorkflow(t.Context(), h.Acme, "w", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	if got := schedulestest.One[string](h, cohorts); got != "acme inherits last, acme new last, acme own last, acme paused last, other inherits last" {
		t.Errorf("at the end: %s", got)
	}
}

// Ticks that were due when the default changed follow the old default.
func TestADefaultThatMovesHandsOutWhatIsDue(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 * * * *"))
	h.Backdate(24 * time.Hour)
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "w", schedules.WorkflowParams{Defaults: &policy.Defaults{Policy: &policy.Policy{Missed: "none"}}}); err != nil {
		t.Fatal(err)
	}
	page, _, err := h.Schedules.Operations.List(t.Context(), h.Acme, "", 10, "")
	if err != nil {
		t.Fatal(err)
	}
	h.Operate(page[0].ID)
	if handed := h.TakeHanded(); len(handed) != 1 || handed[0].Run.Drop || handed[0].Missed == 0 {
		t.Errorf("got %+v", handed)
	}
}

// A rate and expectations are stored, patched, taken away, and checked member by member.
func TestRatesAndExpectationsOfAWorkflow(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const path = "/v1/workflows/w"
	e.Want(201, "", "PUT", path, `{"rate": {"per_second": 50, "ramp": "90s"}, "expect": {"handed_out_within": "60s"}}`)
	got := e.Want(200, "", "GET", path, "")
	if fmt.Sprint(got.Doc["rate"], got.Doc["expect"]) != "map[per_second:50 ramp:1m30s] map[handed_out_within:1m]" {
		t.Errorf("got %s", got.Body)
	}
	got = e.Want(200, "", "PATCH", path, `{"rate": {"ramp": null}, "expect": {"ended_within": "1h"}}`, "Content-Type", "application/merge-patch+json")
	if fmt.Sprint(got.Doc["rate"], got.Doc["expect"]) != "map[per_second:50] map[ended_within:1h handed_out_within:1m]" {
		t.Errorf("got %s", got.Body)
	}
	got = e.Want(200, "", "PATCH", path, `{"rate": null, "expect": null}`, "Content-Type", "application/merge-patch+json")
	if got.Doc["rate"] != nil || got.Doc["expect"] != nil {
		t.Errorf("got %s", got.Body)
	}
	for body, pointer := range map[string]string{
		`{"rate": {"per_second": 0}}`:                 "/rate/per_second",
		`{"rate": {"per_second": 100001}}`:            "/rate/per_second",
		`{"rate": {"per_second": 5, "ramp": "2d"}}`:   "/rate/ramp",
		`{"rate": {"per_second": 5, "ramp": "soon"}}`: "/rate/ramp",
		`{"expect": {}}`:                              "/expect",
		`{"expect": {"ended_within": "8d"}}`:          "/expect/ended_within",
		`{"expect": {"handed_out_within": "0s"}}`:     "/expect/handed_out_within",
		`{"rate": {"per_second": 5, "burst": 3}}`:     "/rate/burst",
	} {
		if got := e.Ask("PUT", path, body); got.Status != 422 && got.Status != 400 || !strings.Contains(got.Body, `"`+pointer+`"`) {
			t.Errorf("%s: got %d %s", body, got.Status, got.Body)
		}
	}
}
