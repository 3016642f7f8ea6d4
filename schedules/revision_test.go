package schedules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

func TestRevisionsTellWhoChangedWhat(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	p := schedulestest.ByCron("0 12 * * *")
	first := h.Put("a", p)
	p.Policy, p.Labels, p.Payload = &policy.Policy{MaxLateness: "2h"}, map[string]string{"plan": "pro"}, []byte(`{"n": 1}`)
	h.Put("a", p)
	h.Put("a", p) // changes nothing, and so is no version
	p.Spec = schedulestest.Cron("30 12 * * *")
	third := h.Put("a", p)
	h.Pause("a", schedules.PauseParams{Note: new("leave")})
	h.Resume("a", schedules.ResumeParams{})
	h.Delete("a")

	type change struct {
		Version       int32
		Status, By    string
		Before, After *time.Time
		Policy        policy.Policy
		Payload       string
	}
	twelve, half, own := first.NextAt, third.NextAt, policy.Policy{MaxLateness: "2h"}
	want := []change{
		{5, "active", "bob", nil, half, own, `{"n": 1}`},
		{4, "paused", "bob", half, nil, own, `{"n": 1}`},
		{3, "active", "ann", twelve, half, own, `{"n": 1}`},
		{2, "active", "ann", twelve, twelve, own, `{"n": 1}`},
		{1, "active", "ann", nil, twelve, policy.Policy{}, ""},
	}
	var got []change
	cursor := ""
	for {
		page, next, err := h.Schedules.Revisions(t.Context(), h.Acme, "w", "a", 2, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			got = append(got, change{r.Version, r.Status, r.ChangedBy, r.NextBefore, r.NextAfter, r.Policy, string(r.Payload)})
			if deleted := r.DeletedAt != nil && *r.DeletedBy == "bob"; deleted != (r.Version == 5) {
				t.Errorf("version %d: deleted %v", r.Version, r.DeletedAt)
			}
			if (r.StatusNote != nil) != (r.Version == 4) || (r.Labels["plan"] == "pro") != (r.Version > 1) {
				t.Errorf("got %+v", r)
			}
		}
		if next == nil {
			break
		}
		cursor = *next
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	_, _, err := h.Schedules.Revisions(h.Theirs(), h.Other, "w", "a", 2, "")
	schedulestest.WantFault(t, err, 404, "not_found")

	h.Put("a", schedulestest.ByCron("0 12 * * *")) // a new schedule, with a history of its own
	page, _, err := h.Schedules.Revisions(t.Context(), h.Acme, "w", "a", 10, "")
	if err != nil || len(page) != 1 || page[0].Version != 1 || page[0].DeletedAt != nil {
		t.Errorf("got %+v, %v", page, err)
	}
	_, _, err = h.Schedules.Revisions(t.Context(), h.Acme, "w", "a", 2, cursor)
	schedulestest.WantFault(t, err, 422, "invalid_cursor")
}

func TestRevisionsOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for n := range 3 {
		e.Want(200+min(1, max(0, 1-n)), "", "PUT", schedulestest.SchedulePath, fmt.Sprintf(`{"spec":{"cron":"%d 12 * * *"},"payload":[%d , 1e999]}`, n, n))
	}
	page := e.Want(200, "", "GET", schedulestest.SchedulePath+"/revisions?limit=2", "")
	if items := page.Doc["items"].([]any); len(items) != 2 || items[0].(map[string]any)["changed_by"] != "ann" {
		t.Errorf("got %s", page.Body)
	}
	cursor := page.Doc["next_cursor"].(string)
	if page = e.Want(200, "", "GET", schedulestest.SchedulePath+"/revisions?cursor="+cursor, ""); len(page.Doc["items"].([]any)) != 1 || page.Doc["next_cursor"] != nil {
		t.Errorf("got %s", page.Body)
	}
	e.Want(404, "not_found", "GET", "/v1/workflows/w/schedules/none/revisions", "")
	e.Want(400, "unknown_parameter", "GET", schedulestest.SchedulePath+"/revisions?x=1", "")
	e.Want(422, "invalid", "GET", schedulestest.SchedulePath+"/revisions?limit=0", "")
	e.Want(422, "invalid", "GET", schedulestest.SchedulePath+"/revisions?cursor=", "")
	e.Want(422, "invalid_cursor", "GET", schedulestest.SchedulePath+"/revisions?cursor=x", "")
	e.Want(403, "insufficient_scope", "GET", schedulestest.SchedulePath+"/revisions", "", "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesWrite))
}
