package schedules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func TestRevisionsTellWhoChangedWhat(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	p := spec(cron("0 12 * * *"))
	first := h.put("a", p)
	p.Policy, p.Labels, p.Payload = &policy.Policy{MaxLateness: "2h"}, map[string]string{"plan": "pro"}, []byte(`{"n": 1}`)
	h.put("a", p)
	h.put("a", p) // changes nothing, and so is no version
	p.Spec = cron("30 12 * * *")
	third := h.put("a", p)
	h.pause("a", schedules.PauseParams{Note: new("leave")})
	h.resume("a", schedules.ResumeParams{})
	h.delete("a")

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
		page, next, err := h.schedules.Revisions(t.Context(), h.acme, "w", "a", 2, cursor)
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
	_, _, err := h.schedules.Revisions(h.theirs(), h.other, "w", "a", 2, "")
	faulty(t, err, 404, "not_found")

	h.put("a", spec(cron("0 12 * * *"))) // a new schedule, with a history of its own
	page, _, err := h.schedules.Revisions(t.Context(), h.acme, "w", "a", 10, "")
	if err != nil || len(page) != 1 || page[0].Version != 1 || page[0].DeletedAt != nil {
		t.Errorf("got %+v, %v", page, err)
	}
	_, _, err = h.schedules.Revisions(t.Context(), h.acme, "w", "a", 2, cursor)
	faulty(t, err, 422, "invalid_cursor")
}

func TestRevisionsOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for n := range 3 {
		e.want(200+min(1, max(0, 1-n)), "", "PUT", aPath, fmt.Sprintf(`{"spec":{"cron":"%d 12 * * *"},"payload":[%d , 1e999]}`, n, n))
	}
	page := e.want(200, "", "GET", aPath+"/revisions?limit=2", "")
	if items := page.doc["items"].([]any); len(items) != 2 || items[0].(map[string]any)["changed_by"] != "ann" {
		t.Errorf("got %s", page.body)
	}
	cursor := page.doc["next_cursor"].(string)
	if page = e.want(200, "", "GET", aPath+"/revisions?cursor="+cursor, ""); len(page.doc["items"].([]any)) != 1 || page.doc["next_cursor"] != nil {
		t.Errorf("got %s", page.body)
	}
	e.want(404, "not_found", "GET", "/v1/workflows/w/schedules/none/revisions", "")
	e.want(400, "unknown_parameter", "GET", aPath+"/revisions?x=1", "")
	e.want(422, "invalid", "GET", aPath+"/revisions?limit=0", "")
	e.want(422, "invalid", "GET", aPath+"/revisions?cursor=", "")
	e.want(422, "invalid_cursor", "GET", aPath+"/revisions?cursor=x", "")
	e.want(403, "insufficient_scope", "GET", aPath+"/revisions", "", "Authorization", "Bearer "+e.token("acme", tenants.SchedulesWrite))
}
