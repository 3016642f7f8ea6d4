package schedules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

func TestSkippedTimesAreNotShownAsComing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	was := h.put("a", spec(cron("0 12 * * *")))
	skip := func(p schedules.SkipParams) schedules.Schedule {
		t.Helper()
		if _, _, err := h.schedules.Skip(t.Context(), h.acme, "w", "a", p, schedules.Changer{By: "bob"}); err != nil {
			t.Fatal(err)
		}
		return h.get("a")
	}
	want := func(got schedules.Schedule, upcoming ...time.Time) {
		t.Helper()
		if diff := cmp.Diff(upcoming, got.Upcoming[:len(upcoming)]); diff != "" || !got.NextAt.Equal(upcoming[0]) || got.Version != 1 {
			t.Errorf("version %d, want -, got +:\n%s", got.Version, diff)
		}
	}
	u := was.Upcoming
	want(skip(schedules.SkipParams{Count: new(1)}), u[1], u[2], u[3], u[4])
	want(skip(schedules.SkipParams{At: []time.Time{u[3], u[0]}}), u[1], u[2], u[4])
	want(skip(schedules.SkipParams{Count: new(2)}), u[4])
	up, err := h.schedules.Upcoming(t.Context(), h.acme, "w", "a", 1, time.Time{})
	if err != nil || !up.Ticks[0].Timestamp.Equal(u[4]) {
		t.Errorf("got %+v, %v", up, err)
	}
	if _, _, err := h.schedules.Unskip(t.Context(), h.acme, "w", "a", schedules.Changer{By: "bob"}); err != nil {
		t.Fatal(err)
	}
	want(h.get("a"), u...)
	h.exec(`UPDATE schedule_state SET seen_at = $1, skips = ARRAY[$1::timestamptz]`, u[0].AddDate(0, 0, -3))
	want(skip(schedules.SkipParams{Count: new(1)}), u[1])
	if kept := one[int](h, `SELECT cardinality(skips) FROM schedule_state`); kept != 1 {
		t.Errorf("%d are kept", kept)
	}
}

func TestSkipOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	made := e.want(201, "", "PUT", aPath, daily)
	next := made.doc["upcoming"].([]any)
	for range 2 { // the second is the first
		got := e.want(200, "", "POST", aPath+"/skip", `{"count":1}`, "Idempotency-Key", "k", "If-Match", `"1"`)
		if got.doc["next_at"] != next[1] || got.header.Get("ETag") != `"1"` {
			t.Errorf("got %s", got.body)
		}
	}
	e.want(200, "", "POST", aPath+"/skip", fmt.Sprintf(`{"at":[%q]}`, next[1]))
	if got := e.want(200, "", "GET", aPath, ""); got.doc["next_at"] != next[2] {
		t.Errorf("got %s", got.body)
	}
	if got := e.want(200, "", "DELETE", aPath+"/skip", ""); got.doc["next_at"] != next[0] {
		t.Errorf("got %s", got.body)
	}
	for _, c := range []struct {
		status     int
		code, body string
	}{
		{422, "invalid", `{}`},
		{422, "invalid", `{"count":1,"at":["2090-01-01T12:00:00Z"]}`},
		{422, "invalid", `{"at":["2090-01-01T12:00:01Z"]}`},
		{422, "invalid", `{"at":["2020-01-01T12:00:00Z"]}`},
		{422, "out_of_range", `{"count":0}`},
		{422, "out_of_range", `{"count":1001}`},
		{400, "unknown_field", `{"counts":1}`},
	} {
		e.want(c.status, c.code, "POST", aPath+"/skip", c.body)
	}
	e.want(200, "", "POST", aPath+"/skip", `{"count":1000}`)
	e.want(422, "invalid", "POST", aPath+"/skip", `{"count":1}`)
	e.want(412, "version_mismatch", "DELETE", aPath+"/skip", "", "If-Match", `"9"`)
	e.want(404, "not_found", "DELETE", "/v1/workflows/w/schedules/none/skip", "")
	e.want(403, "insufficient_scope", "POST", aPath+"/skip", `{"count":1}`, "Authorization", "Bearer "+e.token("acme", tenants.SchedulesRead))
	e.want(200, "", "POST", aPath+"/pause", "")
	e.want(409, "not_active", "POST", aPath+"/skip", `{"count":1}`)
}
