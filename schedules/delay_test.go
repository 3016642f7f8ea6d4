package schedules_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

func delay(every, first string) calendar.Spec {
	return calendar.Spec{Intervals: []calendar.Interval{{Every: every, Mode: "fixed_delay", First: first}}}
}

// tickOut has the sweep have taken the ticks of the workflow's schedules with fixed_delay: nothing has ended them.
func (h *home) tickOut(tenant tenants.ID, w string) {
	h.t.Helper()
	h.exec(`
		UPDATE schedule_state st
		SET delay_at = c.next_at, delay_left = st.delay_left - 1
		FROM schedule s, cohort c, member m
		WHERE s.tenant_id = $1 AND s.workflow = $2 AND c.shard = s.shard AND c.id = s.cohort_id AND c.delay AND c.next_at IS NOT NULL
			AND m.cohort_id = c.id AND m.schedule_id = s.id
			AND st.tenant_id = s.tenant_id AND st.schedule_id = s.id AND COALESCE(st.delay_left, 1) > 0`, tenant, w)
	h.exec(`UPDATE cohort SET next_at = NULL, due_at = NULL WHERE tenant_id = $1 AND workflow = $2 AND delay`, tenant, w)
}

// wantNext holds a schedule's next tick to a distance from when it was armed, less than a minute ago, rounded up to a whole second.
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
	h := newHome(t)
	s := h.put("a", spec(delay("10m", "")))
	wantNext(t, s, 10*time.Minute)
	again := h.put("a", spec(delay("10m", "")))
	if again.Version != s.Version || !again.NextAt.Equal(*s.NextAt) {
		t.Errorf("put again as it is: got %v at %v", again.Version, again.NextAt)
	}
	wantNext(t, h.put("b", spec(delay("10m", "now"))), time.Second)
	if n := one[int](h, `SELECT count(*) FROM cohort`); n != 2 {
		t.Errorf("%d cohorts, want one each", n)
	}
	late := delay("10m", "")
	late.StartAt = new(time.Now().UTC().Add(48 * time.Hour).Format("2006-01-02T15:04:05Z"))
	wantNext(t, h.put("c", spec(late)), 48*time.Hour)
	p, err := h.schedules.Upcoming(t.Context(), h.acme, "w", "a", 10, time.Time{})
	if err != nil || len(p.Ticks) != 1 || p.Exhausted || !p.Ticks[0].Timestamp.Equal(*s.NextAt) {
		t.Errorf("upcoming: got %+v, %v", p, err)
	}
}

func TestFixedDelayHasNoNextTimeWhileATickIsOut(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(delay("10m", "now")))
	h.tickOut(h.acme, "w")
	if s := h.get("a"); s.NextAt != nil || len(s.Upcoming) != 0 || s.Status != "active" {
		t.Errorf("got %s, next %v, upcoming %v", s.Status, s.NextAt, s.Upcoming)
	}
	p, err := h.schedules.Upcoming(t.Context(), h.acme, "w", "a", 10, time.Time{})
	if err != nil || len(p.Ticks) != 0 || p.Exhausted {
		t.Errorf("upcoming: got %+v, %v", p, err)
	}
	// Neither another interval, nor a pause and its end, make a second one.
	if s := h.put("a", spec(delay("20m", "now"))); s.NextAt != nil {
		t.Errorf("another interval: next %s", s.NextAt)
	}
	h.pause("a", schedules.PauseParams{})
	if s := h.resume("a", schedules.ResumeParams{}); s.NextAt != nil || s.Status != "active" {
		t.Errorf("resumed: %s, next %v", s.Status, s.NextAt)
	}
	h.pause("a", schedules.PauseParams{Until: new(time.Now().Add(time.Hour).Truncate(time.Second))})
	if s := h.get("a"); s.NextAt != nil {
		t.Errorf("paused for an hour: next %v", s.NextAt)
	}
	h.put("a", spec(cron("0 12 * * *")))
	if s := h.put("a", spec(delay("20m", "now"))); s.NextAt != nil {
		t.Errorf("by way of a cron: next %s", s.NextAt)
	}
	if n := one[int](h, `SELECT count(*) FROM cohort WHERE delay AND (due_at IS NOT NULL OR empty_at IS NULL) AND NOT EXISTS (SELECT FROM member m WHERE m.cohort_id = cohort.id)`); n != 0 {
		t.Errorf("%d cohorts are left armed, or for good", n)
	}
}

func TestFixedDelayGoesOnFromNow(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(delay("10m", "")))
	h.back(5 * time.Minute)
	wantNext(t, h.get("a"), 5*time.Minute)
	h.pause("a", schedules.PauseParams{})
	p, err := h.schedules.Upcoming(t.Context(), h.acme, "w", "a", 10, time.Time{})
	if err != nil || len(p.Ticks) != 1 {
		t.Errorf("upcoming were it resumed: got %+v, %v", p, err)
	}
	wantNext(t, h.resume("a", schedules.ResumeParams{FireOnce: true}), 10*time.Minute)
	wantNext(t, h.put("a", spec(delay("20m", ""))), 20*time.Minute)
	h.pause("a", schedules.PauseParams{Until: new(time.Now().Add(time.Hour).Truncate(time.Second))})
	wantNext(t, h.get("a"), time.Hour+20*time.Minute)
	if len(h.takeHanded()) > 0 {
		t.Error("something was handed out")
	}
}

func TestDueTickOfFixedDelayIsHandedOutBeforeItIsRetimed(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(delay("10m", "")))
	h.back(11 * time.Minute)
	due := *h.get("a").NextAt
	if s := h.put("a", spec(delay("20m", ""))); s.NextAt != nil {
		t.Errorf("a tick is out, and the next is at %s", s.NextAt)
	}
	handed := h.takeHanded()
	if len(handed) != 1 || !handed[0].Run.At.Equal(due) || !one[time.Time](h, `SELECT delay_at FROM schedule_state`).Equal(due) {
		t.Errorf("handed out %+v, want one at %s", handed, due)
	}
}

func TestFixedDelayCountsItsTicks(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	two := delay("10m", "now")
	two.MaxTicks = new(2)
	h.put("a", spec(two))
	h.tickOut(h.acme, "w")
	h.pause("a", schedules.PauseParams{})
	h.resume("a", schedules.ResumeParams{})
	if left := one[int](h, `SELECT delay_left FROM schedule_state`); left != 1 {
		t.Errorf("%d are left, want 1", left)
	}
	h.exec(`UPDATE schedule_state SET delay_at = NULL, seen_at = now(), delay_left = 0`)
	h.pause("a", schedules.PauseParams{})
	if s := h.resume("a", schedules.ResumeParams{}); s.Status != "completed" {
		t.Errorf("with none left it is %s", s.Status)
	}
}
