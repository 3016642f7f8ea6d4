package schedules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

func TestSkippedTimesAreNotShownAsComing(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	was := h.Put("a", schedulestest.ByCron("0 12 * * *"))
	skip := func(p schedules.SkipParams) schedules.Schedule {
		t.Helper()
		if _, _, err := h.Schedules.Skip(t.Context(), h.Acme, "w", "a", p, schedules.Changer{By: "bob"}); err != nil {
			t.Fatal(err)
		}
		return h.Get("a")
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
	up, err := h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 1, time.Time{})
	if err != nil || !up.Ticks[0].Timestamp.Equal(u[4]) {
		t.Errorf("got %+v, %v", up, err)
	}
	if _, _, err := h.Schedules.Unskip(t.Context(), h.Acme, "w", "a", schedules.Changer{By: "bob"}); err != nil {
		t.Fatal(err)
	}
	want(h.Get("a"), u...)
	h.Exec(`UPDATE schedule_state SET seen_at = $1, skips = ARRAY[$1::timestamptz]`, u[0].AddDate(0, 0, -3))
	want(skip(schedules.SkipParams{Count: new(1)}), u[1])
	if kept := schedulestest.One[int](h, `SELECT cardinality(skips) FROM schedule_state`); kept != 1 {
		t.Errorf("%d are kept", kept)
	}
}

func TestSkipOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	made := e.Want(201, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody)
	next := made.Doc["upcoming"].([]any)
	for range 2 { // the second is the first
		got := e.Want(200, "", "POST", schedulestest.SchedulePath+"/skip", `{"count":1}`, "Idempotency-Key", "k", "If-Match", `"1"`)
		if got.Doc["next_at"] != next[1] || got.Header.Get("ETag") != `"1"` {
			t.Errorf("got %s", got.Body)
		}
	}
	e.Want(200, "", "POST", schedulestest.SchedulePath+"/skip", fmt.Sprintf(`{"at":[%q]}`, next[1]))
	if got := e.Want(200, "", "GET", schedulestest.SchedulePath, ""); got.Doc["next_at"] != next[2] {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(200, "", "DELETE", schedulestest.SchedulePath+"/skip", ""); got.Doc["next_at"] != next[0] {
		t.Errorf("got %s", got.Body)
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
		e.Want(c.status, c.code, "POST", schedulestest.SchedulePath+"/skip", c.body)
	}
	e.Want(200, "", "POST", schedulestest.SchedulePath+"/skip", `{"count":1000}`)
	e.Want(422, "invalid", "POST", schedulestest.SchedulePath+"/skip", `{"count":1}`)
	e.Want(412, "version_mismatch", "DELETE", schedulestest.SchedulePath+"/skip", "", "If-Match", `"9"`)
	e.Want(404, "not_found", "DELETE", "/v1/workflows/w/schedules/none/skip", "")
	e.Want(403, "insufficient_scope", "POST", schedulestest.SchedulePath+"/skip", `{"count":1}`, "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
	e.Want(200, "", "POST", schedulestest.SchedulePath+"/pause", "")
	e.Want(409, "not_active", "POST", schedulestest.SchedulePath+"/skip", `{"count":1}`)
}
