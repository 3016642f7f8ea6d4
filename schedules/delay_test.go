package schedules_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

func delay(every, first string) calendar.Spec {
	return calendar.Spec{Intervals: []calendar.Interval{{Every: every, Mode: "fixed_delay", First: first}}}
}

// wantNext fails the test unless the next tick comes a given time after the schedule was armed, which was less than a minute ago. The
// time is rounded up to a whole second.
func wantNext(t *testing.T, s schedules.Schedule, after time.Duration) {
	t.Helper()
	if s.NextAt == nil || len(s.Upcoming) != 1 {
		t.Fatalf("next %v, upcoming %v", s.NextAt, s.Upcoming)
	}
	if left := time.Until(*s.NextAt); left > after+time.Second || left < after-time.Minute || s.NextAt.Nanosecond() != 0 {
		t.Errorf("it comes at %s, in %s, want in %s", s.NextAt, left, after)
	}
}

func TestFixedDelayIsArmedOnce(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	s := h.Put("a", schedulestest.Spec(delay("10m", "")))
	wantNext(t, s, 10*time.Minute)
	again := h.Put("a", schedulestest.Spec(delay("10m", "")))
	if again.Version != s.Version || !again.NextAt.Equal(*s.NextAt) {
		t.Errorf("put again as it is: got %v at %v", again.Version, again.NextAt)
	}
	wantNext(t, h.Put("b", schedulestest.Spec(delay("10m", "now"))), time.Second)
	if n := schedulestest.One[int](h, `SELECT count(*) FROM cohort`); n != 2 {
		t.Errorf("%d cohorts, want one each", n)
	}
	late := delay("10m", "")
	late.StartAt = new(time.Now().UTC().Add(48 * time.Hour).Format("2006-01-02T15:04:05Z"))
	wantNext(t, h.Put("c", schedulestest.Spec(late)), 48*time.Hour)
	p, err := h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 10, time.Time{})
	if err != nil || len(p.Ticks) != 1 || p.Exhausted || !p.Ticks[0].Timestamp.Equal(*s.NextAt) {
		t.Errorf("upcoming: got %+v, %v", p, err)
	}
}

func TestFixedDelayHasNoNextTimeWhileATickIsOut(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.Spec(delay("10m", "now")))
	h.SweepDelays(h.Acme, "w")
	if s := h.Get("a"); s.NextAt != nil || len(s.Upcoming) != 0 || s.Status != "active" {
		t.Errorf("got %s, next %v, upcoming %v", s.Status, s.NextAt, s.Upcoming)
	}
	p, err := h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 10, time.Time{})
	if err != nil || len(p.Ticks) != 0 || p.Exhausted {
		t.Errorf("upcoming: got %+v, %v", p, err)
	}
	// Neither another interval nor a pause and its end make a second tick.
	if s := h.Put("a", schedulestest.Spec(delay("20m", "now"))); s.NextAt != nil {
		t.Errorf("another interval: next %s", s.NextAt)
	}
	h.Pause("a", schedules.PauseParams{})
	if s := h.Resume("a", schedules.ResumeParams{}); s.NextAt != nil || s.Status != "active" {
		t.Errorf("resumed: %s, next %v", s.Status, s.NextAt)
	}
	h.Pause("a", schedules.PauseParams{Until: new(time.Now().Add(time.Hour).Truncate(time.Second))})
	if s := h.Get("a"); s.NextAt != nil {
		t.Errorf("paused for an hour: next %v", s.NextAt)
	}
	h.Put("a", schedulestest.ByCron("0 12 * * *"))
	if s := h.Put("a", schedulestest.Spec(delay("20m", "now"))); s.NextAt != nil {
		t.Errorf("by way of a cron: next %s", s.NextAt)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM cohort WHERE delay AND (due_at IS NOT NULL OR empty_at IS NULL) AND NOT EXISTS (SELECT FROM member m WHERE m.cohort_id = cohort.id)`); n != 0 {
		t.Errorf("%d cohorts are left armed, or for good", n)
	}
}

func TestFixedDelayGoesOnFromNow(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.Spec(delay("10m", "")))
	h.Backdate(5 * time.Minute)
	wantNext(t, h.Get("a"), 5*time.Minute)
	h.Pause("a", schedules.PauseParams{})
	p, err := h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 10, time.Time{})
	if err != nil || len(p.Ticks) != 1 {
		t.Errorf("upcoming were it resumed: got %+v, %v", p, err)
	}
	wantNext(t, h.Resume("a", schedules.ResumeParams{FireOnce: true}), 10*time.Minute)
	wantNext(t, h.Put("a", schedulestest.Spec(delay("20m", ""))), 20*time.Minute)
	h.Pause("a", schedules.PauseParams{Until: new(time.Now().Add(time.Hour).Truncate(time.Second))})
	wantNext(t, h.Get("a"), time.Hour+20*time.Minute)
	if len(h.TakeHanded()) > 0 {
		t.Error("something was handed out")
	}
}

func TestDueTickOfFixedDelayIsHandedOutBeforeItIsRetimed(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.Spec(delay("10m", "")))
	h.Backdate(11 * time.Minute)
	due := *h.Get("a").NextAt
	if s := h.Put("a", schedulestest.Spec(delay("20m", ""))); s.NextAt != nil {
		t.Errorf("a tick is out, and the next is at %s", s.NextAt)
	}
	handed := h.TakeHanded()
	if len(handed) != 1 || !handed[0].Run.At.Equal(due) || !schedulestest.One[time.Time](h, `SELECT delay_at FROM schedule_state`).Equal(due) {
		t.Errorf("handed out %+v, want one at %s", handed, due)
	}
}

func TestFixedDelayCountsItsTicks(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	two := delay("10m", "now")
	two.MaxTicks = new(2)
	h.Put("a", schedulestest.Spec(two))
	h.SweepDelays(h.Acme, "w")
	h.Pause("a", schedules.PauseParams{})
	h.Resume("a", schedules.ResumeParams{})
	if left := schedulestest.One[int](h, `SELECT delay_left FROM schedule_state`); left != 1 {
		t.Errorf("%d are left, want 1", left)
	}
	h.Exec(`UPDATE schedule_state SET delay_at = NULL, seen_at = now(), delay_left = 0`)
	h.Pause("a", schedules.PauseParams{})
	if s := h.Resume("a", schedules.ResumeParams{}); s.Status != "completed" {
		t.Errorf("with none left it is %s", s.Status)
	}
}
