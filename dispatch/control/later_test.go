package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules"
)

const laterSchedule = "/v1/workflows/w/schedules/k"

func TestATriggerForLaterFiresOnceAtItsTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Put("w", "k", dispatchtest.Rarely("skip"))
	made := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, `{"in": "20s", "payload": {"n": 1e400}}`)
	if made.State != "scheduled" || made.DueAt == nil || !made.DueAt.Equal(made.Timestamp) || made.Cause != "manual" || made.EndedAt != nil {
		t.Fatalf("got %+v", made)
	}
	if list := c.Do("GET", "/v1/ticks?state=scheduled", ""); !strings.Contains(string(list.Body), made.TickID) || !strings.Contains(string(list.Body), `"due_at"`) {
		t.Errorf("got %s", list.Body)
	}
	if list := c.Do("GET", laterSchedule+"/ticks", ""); !strings.Contains(string(list.Body), made.TickID) {
		t.Errorf("got %s", list.Body)
	}
	if told := c.Do("GET", laterSchedule+"/explain?at="+made.Timestamp.Format(time.RFC3339), ""); !strings.Contains(string(told.Body), `"will_fire"`) {
		t.Errorf("got %s", told.Body)
	}
	// It is ignored by overlap until its time.
	h.Start(h.Dispatch)
	now := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	if now.State != "running" {
		t.Errorf("got %+v", now)
	}
	h.Finish(c.LeaseAll(1)[0])
	got := c.LeaseAll(1)[0]
	if got.TickID != made.TickID {
		t.Errorf("got %+v, want %s", got, made.TickID)
	}
	h.Finish(got)
	ended := dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+made.TickID, "")
	if ended.State != "succeeded" || ended.DueAt != nil || ended.FiredAt.Before(ended.Timestamp) || ended.Attempt != 1 {
		t.Errorf("got %+v", ended)
	}
	h.Idle()
	if got := stats(h, "w", "k"); got.Fired != 2 || got.Succeeded != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestATriggerForLaterIsDecidedAtItsTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.Rarely("buffer_all"))
	later := func(body string) string {
		t.Helper()
		return "/v1/ticks/" + dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, body).TickID
	}
	state := func(path, want, reason string) {
		t.Helper()
		dispatchtest.Until(t, path+" is "+want, func() bool {
			got := dispatchtest.Get[history.Tick](c, 200, "GET", path, "")
			return got.State == want && got.Reason == reason
		})
	}
	// Overlap: it waits for the one before it.
	dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	running := c.LeaseAll(1)[0]
	buffered := later(`{"in": "1s"}`)
	dispatchtest.Until(t, "it is buffered", func() bool {
		got := dispatchtest.Get[history.Tick](c, 200, "GET", buffered, "")
		return got.State == "scheduled" && got.DueAt == nil
	})
	h.Finish(running)
	h.Finish(c.LeaseAll(1)[0])
	state(buffered, "succeeded", "")

	// Cancelled by its client, before its time.
	cancelled := later(`{"in": "366d"}`)
	if got := dispatchtest.Get[history.Tick](c, 200, "POST", cancelled+"/cancel", ""); got.State != "cancelled" || got.Reason != "requested" {
		t.Errorf("got %+v", got)
	}
	c.Refused(409, "tick_ended", "", "POST", cancelled+"/cancel", "")

	// Paused at its time.
	paused := later(`{"in": "15s"}`)
	if _, _, err := h.Schedules.Pause(t.Context(), h.Tenant, "w", "k", schedules.PauseParams{}, schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	state(paused, "skipped", "paused")
	if _, _, err := h.Schedules.Resume(t.Context(), h.Tenant, "w", "k", schedules.ResumeParams{}, schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}

	// Halted at its time.
	halted := later(`{"in": "15s"}`)
	c.Do("POST", "/v1/admin/halt", "")
	state(halted, "skipped", "paused")
	c.Do("POST", "/v1/admin/continue", "")

	h.Idle()

	// Its schedule is deleted.
	deleted := later(`{"at": "` + time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339) + `"}`)
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	state(deleted, "cancelled", "")
	if n := h.Number(`SELECT count(*)::int FROM delayed`); n != 0 {
		t.Errorf("%d ticks are delayed", n)
	}
}

func TestATriggerForLaterIsChecked(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	p := dispatchtest.Rarely("skip")
	p.Spec.Timezone = "America/New_York"
	h.Put("w", "k", p)
	for _, body := range []string{
		`{"in": "1h", "at": "2090-01-01T00:00:00Z"}`, `{"in": "soon"}`, `{"in": "367d"}`, `{"in": "-1h"}`, `{"at": "noon"}`,
		`{"at": "2020-01-01T00:00:00"}`, `{"at": "2149-01-01T00:00:00Z"}`, `{"at": "2090-01-01T00:00:00.5Z"}`,
	} {
		pointer := "/at"
		if strings.HasPrefix(body, `{"in"`) {
			pointer = "/in"
		}
		c.Refused(422, "invalid", pointer, "POST", dispatchtest.Trigger, body)
	}
	day := time.Now().AddDate(0, 0, 30)
	ny, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	want := time.Date(day.Year(), day.Month(), day.Day(), 9, 30, 0, 0, ny)
	made := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, fmt.Sprintf(`{"at": %q}`, want.Format("2006-01-02T15:04:05")))
	if !made.Timestamp.Equal(want) {
		t.Errorf("got %s, want %s", made.Timestamp, want)
	}
	for range 99 {
		dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, `{"in": "1d"}`)
	}
	c.Refused(403, "quota_exceeded", "", "POST", dispatchtest.Trigger, `{"in": "1d"}`)
	dispatchtest.Get[history.Tick](c, 200, "POST", "/v1/ticks/"+made.TickID+"/cancel", "")
	dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, `{"in": "1d"}`)
}
