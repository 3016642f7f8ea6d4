package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/subjects"
)

func timeOfDay(at time.Time) string { return at.UTC().Format("15:04") }

// following is a spec that names times, of the key's zone.
func following(times ...time.Time) schedules.Params {
	s := calendar.Spec{Timezone: "@subject"}
	for _, at := range times {
		s.At = append(s.At, at.UTC().Format(time.RFC3339))
	}
	return schedules.Params{Spec: s}
}

func TestTicksInQuietHoursAreSkipped(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	now := time.Now()
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Etc/UTC", QuietHours: subjects.QuietWindows{{From: timeOfDay(now.Add(-time.Hour)), To: timeOfDay(now.Add(time.Hour)), Then: "skip"}}})
	p := dispatchtest.EverySecond()
	p.Spec.Timezone = "@subject"
	h.Put("w", "k", p)
	dispatchtest.Until(t, "ticks are recorded", func() bool { return len(h.History("w", "k")) > 1 })
	for _, tick := range h.History("w", "k") {
		want := "schedule"
		if tick.MissedCount > 0 { // the sweep may be late
			want = "catch_up"
		}
		if tick.State != "skipped" || tick.Reason != "quiet_hours" || tick.Cause != want {
			t.Errorf("got %+v", tick)
		}
	}
	if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", "k", control.TriggerParams{}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "the manual tick runs", func() bool {
		return h.Number(`SELECT count(*)::int FROM tick WHERE cause = 1 AND state = 1`) == 1
	})
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Etc/UTC"})
	dispatchtest.Until(t, "ticks are handed out again, though the manual one runs still", func() bool {
		return h.Number(`SELECT count(*)::int FROM tick WHERE cause = 0 AND reason = 1`) > 0
	})
}

func TestTheLastTickInQuietHoursComesAtTheirEnd(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	now := time.Now().UTC().Truncate(time.Minute)
	end := now.Add(-10 * time.Minute)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Etc/UTC", QuietHours: subjects.QuietWindows{{From: timeOfDay(end.Add(-4 * time.Hour)), To: timeOfDay(end)}}})
	first, second, third := end.Add(-3*time.Hour), end.Add(-2*time.Hour), end.Add(-time.Hour)
	h.Put("w", "k", following(first, second, third, now.Add(48*time.Hour)))
	// As if the sweep had slept since before the first.
	h.Exec(`UPDATE member SET from_at = $1`, first.Add(-time.Hour))
	h.Exec(`UPDATE cohort SET next_at = $1, due_at = $2`, first, end)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "a tick is recorded", func() bool { return len(h.History("w", "k")) > 0 })
	ticks := h.History("w", "k")
	if len(ticks) != 1 || !ticks[0].Timestamp.Equal(third) || ticks[0].MissedCount != 2 || ticks[0].State != "running" {
		t.Errorf("got %+v", ticks)
	}
	if h.Number(`SELECT count(*)::int FROM cohort WHERE next_at = $1 AND due_at >= next_at`, now.Add(48*time.Hour)) != 1 {
		t.Error("the cohort does not wait for its next time")
	}
}

func TestACohortThatIsWokenInQuietHoursSleepsOn(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	now := time.Now().UTC().Truncate(time.Minute)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Etc/UTC", QuietHours: subjects.QuietWindows{{From: timeOfDay(now.Add(-4 * time.Hour)), To: timeOfDay(now.Add(2 * time.Hour))}}})
	h.Put("w", "k", following(now.Add(-time.Hour), now.Add(time.Hour)))
	h.Exec(`UPDATE member SET from_at = $1`, now.Add(-2*time.Hour))
	h.Exec(`UPDATE cohort SET next_at = $1, due_at = $1`, now.Add(-time.Hour))
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "it sleeps until the hours end", func() bool {
		return h.Number(`SELECT count(*)::int FROM cohort WHERE due_at = $1 AND next_at = $2`, now.Add(2*time.Hour), now.Add(-time.Hour)) == 1
	})
	if ticks := h.History("w", "k"); len(ticks) != 0 {
		t.Errorf("got %+v", ticks)
	}
	// Another spec: what waited is recorded, and does not come.
	h.Put("w", "k", following(now.Add(time.Hour), now.Add(3*time.Hour)))
	dispatchtest.Until(t, "what waited is recorded", func() bool { return len(h.History("w", "k")) == 1 })
	if tick := h.History("w", "k")[0]; tick.State != "skipped" || tick.Reason != "quiet_hours" || !tick.Timestamp.Equal(now.Add(-time.Hour)) {
		t.Errorf("got %+v", tick)
	}
}

func TestADailyTickThatComesTooSoonAfterAFlightIsSuperseded(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	at := time.Now().UTC().Add(15 * time.Second).Truncate(time.Second) // after both subjects have moved
	p := schedules.Params{Spec: calendar.Spec{Timezone: "@subject", Cron: calendar.StringList{fmt.Sprintf("%d %d %d * * *", at.Second(), at.Minute(), at.Hour())}}}
	cases := []struct {
		key  string
		ago  time.Duration
		want string
	}{{"soon", 19 * time.Hour, "superseded"}, {"late", 21 * time.Hour, ""}}
	for _, c := range cases {
		h.PutSubject(c.key, subjects.SubjectParams{Timezone: "Asia/Tokyo"})
		h.Put("w", c.key, p)
		h.Exec(`UPDATE schedule_state st SET last_at = $1, seen_at = $1 FROM schedule s WHERE s.id = st.schedule_id AND s.key = $2`, at.Add(-c.ago), c.key)
		h.PutSubject(c.key, subjects.SubjectParams{Timezone: "Etc/UTC"})
	}
	for _, c := range cases {
		dispatchtest.Until(t, "the tick is recorded", func() bool { return len(h.History("w", c.key)) > 0 })
		if tick := h.History("w", c.key)[0]; tick.Reason != c.want || (tick.State == "skipped") != (c.want != "") || !tick.Timestamp.Equal(at) {
			t.Errorf("%s: got %+v", c.key, tick)
		}
	}
}

func TestARenamedSubjectKeepsItsHistory(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.EverySecond())
	dispatchtest.Until(t, "a tick runs", func() bool { return len(h.History("w", "k")) > 0 })
	before := h.History("w", "k")
	if _, _, err := h.Subjects.Rename(t.Context(), h.Tenant, "k", subjects.RenameParams{To: "n"}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	after := h.History("w", "k")
	if after[0].TickID != before[0].TickID || after[0].Key != "k" || after[0].Subject != "n" {
		t.Errorf("got %+v", after[0])
	}
	dispatchtest.Until(t, "it goes on", func() bool { return len(h.History("w", "k")) > len(before) })
}
