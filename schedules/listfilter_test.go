package schedules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// Each filter picks exactly its schedules, in the order of workflow and key, on pages of any size.
func TestFiltersOfLists(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutSubject("ann", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "b", schedules.WorkflowParams{Fallback: new("Africa/Cairo")}); err != nil {
		t.Fatal(err)
	}
	h.PutCalendar("off", "2030-01-01")
	for _, one := range []struct{ workflow, key, subject, zone string }{
		{"a", "ann", "", "@subject"}, {"a", "ann-2", "ann", "@subject"}, {"a", "bob", "", "Europe/Berlin"}, {"a", "rob", "ann", ""},
		{"b", "ann", "bob", "@subject"}, {"b", "bob", "", "@subject"}, {"b", "x-ann-x", "", "UTC"}, {"c", "ann", "", "Asia/Tokyo"},
	} {
		p := schedulestest.Spec(calendar.Spec{Timezone: one.zone, Cron: calendar.StringList{"0 8 * * *"}})
		p.Subject = one.subject
		if one.key == "bob" {
			p.Spec.Exclude = &calendar.Exclude{Named: []string{"off"}}
		}
		if _, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: one.workflow, Key: one.key}, p, "ann", version.Precondition{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := h.Schedules.Pause(t.Context(), h.Acme, "b", "ann", schedules.PauseParams{}, schedules.Changer{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.SetFailures(2, `s.key IN ('bob', 'x-ann-x')`)
	for _, c := range []struct {
		f    schedules.Filter
		want string
	}{
		{schedules.Filter{Key: "ann"}, "a/ann b/ann c/ann"},
		{schedules.Filter{Key: "ann", Workflow: "b"}, "b/ann"},
		{schedules.Filter{Key: "ann", Status: policy.Paused}, "b/ann"},
		{schedules.Filter{Key: "an"}, ""},
		{schedules.Filter{KeyContains: "ann"}, "a/ann a/ann-2 b/ann b/x-ann-x c/ann"},
		{schedules.Filter{KeyContains: "-", Workflow: "a"}, "a/ann-2"},
		{schedules.Filter{KeyContains: "%"}, ""},
		{schedules.Filter{KeyContains: "ann", Status: policy.Active}, "a/ann a/ann-2 b/x-ann-x c/ann"},
		{schedules.Filter{Subject: "ann"}, "a/ann a/ann-2 a/rob c/ann"},
		{schedules.Filter{Subject: "ann", Workflow: "c"}, "c/ann"},
		{schedules.Filter{Subject: "bob"}, "a/bob b/ann b/bob"},
		{schedules.Filter{Subject: "bob", Status: policy.Active}, "a/bob b/bob"},
		{schedules.Filter{Subject: "bob", Status: policy.Paused}, "b/ann"},
		{schedules.Filter{Subject: "rob"}, ""},
		{schedules.Filter{Timezone: "Asia/Tokyo"}, "a/ann a/ann-2 c/ann"},
		{schedules.Filter{Timezone: "Africa/Cairo"}, "b/ann b/bob"},
		{schedules.Filter{Timezone: "UTC"}, "a/rob b/x-ann-x"},
		{schedules.Filter{Timezone: "Europe/Berlin", Workflow: "a"}, "a/bob"},
		{schedules.Filter{Calendar: "off"}, "a/bob b/bob"},
		{schedules.Filter{Calendar: "off", Workflow: "b"}, "b/bob"},
		{schedules.Filter{Calendar: "bob"}, ""},
		{schedules.Filter{Failing: true}, "a/bob b/bob b/x-ann-x"},
		{schedules.Filter{Failing: true, Workflow: "b"}, "b/bob b/x-ann-x"},
	} {
		for _, limit := range []int{1, 2, 100} {
			var got []string
			for cursor := ""; ; {
				page, next, err := h.Schedules.List(t.Context(), h.Acme, c.f, limit, cursor)
				if err != nil {
					t.Fatalf("%+v: %v", c.f, err)
				}
				for _, s := range page {
					got = append(got, s.Workflow+"/"+s.Key)
				}
				if next == nil {
					break
				}
				cursor = *next
			}
			if want := strings.Fields(c.want); !slices.Equal(got, want) {
				t.Errorf("%+v, pages of %d: got %q, want %q", c.f, limit, got, want)
			}
		}
	}
	// A schedule that is deleted leaves the list of failing ones too.
	h.SetFailures(0, `s.key = 'x-ann-x'`)
	if err := h.Schedules.Delete(t.Context(), h.Acme, "b", "bob", schedules.Changer{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	page, _, err := h.Schedules.List(t.Context(), h.Acme, schedules.Filter{Failing: true}, 100, "")
	if err != nil || len(page) != 1 || page[0].Workflow != "a" || page[0].Key != "bob" {
		t.Errorf("got %+v, %v", page, err)
	}
	var n int
	if err := h.Pool.QueryRow(t.Context(), `SELECT count(*) FROM failing`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d schedules fail, want 1: %v", n, err)
	}
}

// A list of summaries has the same schedules, without payloads and notes.
func TestAListOfSummaries(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for i := range 3 {
		e.Want(201, "", "PUT", fmt.Sprintf("/v1/workflows/w/schedules/k%d", i), `{"spec": {"cron": "0 8 * * *"}, "payload": {"secret": 1}, "note": "of ann"}`)
	}
	full, short := e.Want(200, "", "GET", "/v1/schedules", ""), e.Want(200, "", "GET", "/v1/schedules?fields=summary", "")
	if strings.Contains(short.Body, "secret") || strings.Contains(short.Body, "of ann") || !strings.Contains(full.Body, "secret") {
		t.Errorf("got %s", short.Body)
	}
	items := short.Doc["items"].([]any)
	if len(items) != 3 {
		t.Fatalf("got %s", short.Body)
	}
	if one := items[0].(map[string]any); one["key"] != "k0" || one["overdue"] != false || one["last_outcome"] != nil {
		t.Errorf("got %v", one)
	}
	if same := e.Want(200, "", "GET", "/v1/schedules?fields=full", ""); same.Body != full.Body {
		t.Errorf("got %s, want %s", same.Body, full.Body)
	}
	page := e.Want(200, "", "GET", "/v1/schedules?fields=summary&key_contains=k&limit=2", "")
	if page.Doc["next_cursor"] == nil {
		t.Errorf("got %s", page.Body)
	}
	for query, code := range map[string]string{
		"fields=none": "invalid", "fields=": "invalid", "failing=false": "invalid", "timezone=CET%2FX": "unknown_timezone", "key=a&subject=b": "invalid",
		"failing=true&due_before=2099-01-01T00:00:00Z": "invalid",
	} {
		e.Want(422, code, "GET", "/v1/schedules?"+query, "")
	}
	if got := e.Want(200, "", "GET", "/v1/schedules?subject=k1", "", "Authorization", "Bearer "+e.Token("other", tenants.SchedulesRead)); len(got.Doc["items"].([]any)) != 0 {
		t.Errorf("another tenant sees %s", got.Body)
	}
}
