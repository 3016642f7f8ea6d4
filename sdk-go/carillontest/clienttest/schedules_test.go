package clienttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

var daily = carillon.Spec{Cron: []string{"0 8 * * *"}}

func TestPutTwiceIsPutOnce(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	p := carillon.Params{Spec: daily, Payload: map[string]int{"n": 1}, Note: ptr("why")}
	for _, want := range []int64{1, 1} {
		s, err := c.Schedules.Put(t.Context(), "w", "k", p)
		if err != nil || s.Version != want || s.Note != "why" || string(s.Payload) != `{"n":1}` {
			t.Errorf("got %+v, %v, want version %d", s, err, want)
		}
	}
	p.Payload = nil
	if s, err := c.Schedules.Put(t.Context(), "w", "k", p); err != nil || s.Version != 2 || string(s.Payload) != "null" {
		t.Errorf("got %+v, %v, want version 2 without a payload", s, err)
	}
}

// A call without a key is about the key "global".
func TestAKeyThatIsLeftOutIsGlobal(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	if s, err := c.Schedules.Put(t.Context(), "w", "", carillon.Params{Spec: daily}); err != nil || s.Key != "global" {
		t.Fatalf("put: got %+v, %v", s, err)
	}
	if s, err := c.Schedules.Pause(t.Context(), "w", "", carillon.PauseParams{}); err != nil || s.Key != "global" {
		t.Errorf("pause: got %+v, %v", s, err)
	}
	if s, err := c.Schedules.Get(t.Context(), "w", "global"); err != nil || s.Status != "paused" {
		t.Errorf("get: got %+v, %v", s, err)
	}
	if tick, err := c.Schedules.Trigger(t.Context(), "w", "", carillon.TriggerParams{}); err != nil || tick.Key != "global" {
		t.Errorf("trigger: got %+v, %v", tick, err)
	}
	if err := c.Schedules.Delete(t.Context(), "w", "", carillon.DeleteParams{}); err != nil {
		t.Errorf("delete: got %v", err)
	}
	if _, err := c.Schedules.Get(t.Context(), "w", ""); !errors.Is(err, carillon.ErrNotFound) {
		t.Errorf("after the delete: got %v", err)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	s, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: daily, IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: daily, IfAbsent: true}); !errors.Is(err, carillon.ErrPrecondition) {
		t.Errorf("IfAbsent on one that is there: got %v", err)
	}
	if _, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: daily, IfMatch: s.Version}); err != nil {
		t.Errorf("IfMatch of its version: got %v", err)
	}
	if err := c.Schedules.Delete(t.Context(), "w", "k", carillon.DeleteParams{IfMatch: 7}); !errors.Is(err, carillon.ErrPrecondition) {
		t.Errorf("IfMatch of another version: got %v", err)
	}
	if err := c.Schedules.Delete(t.Context(), "w", "k", carillon.DeleteParams{IfMatch: s.Version}); err != nil {
		t.Errorf("IfMatch of its version: got %v", err)
	}
	if _, err := c.Schedules.Get(t.Context(), "w", "k"); !errors.Is(err, carillon.ErrNotFound) {
		t.Errorf("got %v after a delete", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	c := server.Client()
	if _, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: daily}); err != nil {
		t.Fatal(err)
	}
	until := server.Now().AddDate(0, 1, 0)
	s, err := c.Schedules.Pause(t.Context(), "w", "k", carillon.PauseParams{Until: &until, Note: "holidays"})
	if err != nil || s.Status != "paused" || !s.NextAt.Equal(until.Add(8*time.Hour)) || s.StatusNote != "holidays" || !s.PausedUntil.Equal(until) {
		t.Errorf("got %+v, %v", s, err)
	}
	server.AdvanceBy(48 * time.Hour)
	s, err = c.Schedules.Resume(t.Context(), "w", "k", carillon.ResumeParams{})
	if err != nil || s.Status != "active" || s.Stats.Fired != 0 || !s.NextAt.Equal(server.Now().Add(8*time.Hour)) {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestTriggerWithOneKeyFiresOnce(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	if _, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: daily}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, key := range []string{"a", "a", ""} {
		r, err := c.Schedules.Trigger(t.Context(), "w", "k", carillon.TriggerParams{IdempotencyKey: key})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.TickID)
	}
	if ids[0] != ids[1] || ids[1] == ids[2] {
		t.Errorf("got ticks %v, want the first two to be one", ids)
	}
}

func TestGetManyIsInTheOrderOfTheKeys(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	for _, key := range []string{"a", "b"} {
		if _, err := c.Schedules.Put(t.Context(), "w", key, carillon.Params{Spec: daily}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Schedules.GetMany(t.Context(), "w", []string{"b", "none", "a"})
	if err != nil || len(got) != 2 || got[0].Key != "b" || got[1].Key != "a" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestListInDueOrder(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	c := server.Client()
	for key, cron := range map[string]string{"a": "0 9 * * *", "b": "0 8 * * *", "c": "0 10 * * *"} {
		if _, err := c.Schedules.Put(t.Context(), "w", key, carillon.Params{Spec: carillon.Spec{Cron: carillon.Strings{cron}}}); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for s, err := range c.Schedules.List(t.Context(), carillon.Filter{DueBefore: server.Now().Add(10 * time.Hour)}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, s.Key)
	}
	if !slices.Equal(keys, []string{"b", "a"}) {
		t.Errorf("got %v", keys)
	}
}

func TestListOfManyPages(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	for i := range 25 {
		if _, err := c.Schedules.Put(t.Context(), "w", fmt.Sprintf("k%02d", i), carillon.Params{Spec: daily}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for s, err := range c.Schedules.List(t.Context(), carillon.Filter{Workflow: "w", PageSize: 10}) {
		if err != nil || s.Key != fmt.Sprintf("k%02d", n) {
			t.Fatalf("got %s, %v as number %d", s.Key, err, n)
		}
		n++
	}
	if n != 25 {
		t.Errorf("got %d schedules, want 25", n)
	}
}

func TestUpcomingAndPreviewAgree(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	c := server.Client()
	spec := carillon.Spec{Timezone: "Asia/Kolkata", Cron: []string{"15 7 * * 1,3"}}
	if _, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	p := carillon.UpcomingParams{Count: 3, From: server.Now().AddDate(0, 0, 7)}
	stored, err := c.Schedules.Upcoming(t.Context(), "w", "k", p)
	if err != nil {
		t.Fatal(err)
	}
	unsaved, err := c.Schedules.Preview(t.Context(), spec, carillon.PreviewParams{Count: p.Count, From: &p.From})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"2026-01-12T07:15:00+05:30", "2026-01-14T07:15:00+05:30", "2026-01-19T07:15:00+05:30"}
	for _, u := range []carillon.Upcoming{stored, unsaved} {
		var got []string
		for _, tick := range u.Ticks {
			got = append(got, tick.LocalTime.Format(time.RFC3339))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestTicksAreFiltered(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	c := server.Client()
	if _, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: daily, Policy: carillon.Policy{Overlap: "allow_all"}}); err != nil {
		t.Fatal(err)
	}
	server.AdvanceBy(5 * 24 * time.Hour)
	filter := carillon.TickFilter{State: "running", From: time.Date(2026, 1, 6, 8, 0, 0, 0, time.UTC), To: time.Date(2026, 1, 8, 8, 0, 0, 0, time.UTC)}
	var got []int
	for r, err := range c.Schedules.Ticks(t.Context(), "w", "k", filter) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Timestamp.Day())
	}
	if !slices.Equal(got, []int{7, 6}) {
		t.Errorf("got days %v, want 7 and 6, newest first", got)
	}
}

func TestScheduleReadsWhatTheContractWrites(t *testing.T) {
	t.Parallel()
	text := `{"id":"sch_1","workflow":"w","key":"k","version":3,"status":"paused","spec":{"cron":"0 8 * * *","start_at":null,"max_ticks":null},
		"policy":{"overlap":"skip","pause_after_failures":0},"delivery":{"priority":2,"retention":{"failed":"30d"}},"payload":{"n":1e400},"labels":{},
		"note":null,"status_note":null,"next_at":null,"upcoming":[],"last_at":null,"last_tick_id":null,"stats":{"fired":1,"succeeded":1,"failed":0,"skipped":0,"missed":0},
		"inherited":["/policy/overlap"],"warnings":[{"code":"c","detail":"d"}],"tzdata":"2026f","created_at":"2026-01-05T00:00:00.5Z",
		"updated_at":"2026-01-05T00:00:00Z","updated_by":"ada"}`
	var s carillon.Schedule
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Spec.Cron, []string{"0 8 * * *"}) || string(s.Payload) != `{"n":1e400}` || s.NextAt != nil || s.Inherited[0] != "/policy/overlap" {
		t.Errorf("got %+v", s)
	}
}
