package schedules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// quietTiming is a timing of a key in UTC whose quiet hours are from 22:00 to 07:00.
func quietTiming(t *testing.T, skip bool, cron string) *calendar.Timing {
	t.Helper()
	timing, err := calendar.Compile(calendar.Spec{Timezone: "@key", Cron: calendar.StringList{cron}},
		calendar.Context{KeyZone: "Etc/UTC", KeyQuiet: calendar.Quiet{From: 22 * 3600, To: 7 * 3600, Skip: skip}})
	if err != nil {
		t.Fatal(err)
	}
	return timing
}

func TestRunsInQuietHours(t *testing.T) {
	t.Parallel()
	at := func(day int, clock string) time.Time {
		t.Helper()
		got, err := time.Parse("2006-01-02 15:04:05", fmt.Sprintf("2026-11-%02d %s", day, clock))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	type run struct {
		At, From, Next    time.Time
		Missed            int
		Late, Drop, Quiet bool
	}
	hourly := quietTiming(t, false, "0 * * * *")
	skipping := quietTiming(t, true, "0 * * * *")
	for name, c := range map[string]struct {
		timing *calendar.Timing
		missed string
		next   time.Time
		now    time.Time
		want   run
	}{
		"before": {hourly, "last", at(10, "21:00:00"), at(10, "21:00:00"), run{At: at(10, "21:00:00"), From: at(10, "21:00:00"), Next: at(10, "22:00:00")}},
		"at the end": {hourly, "last", at(10, "22:00:00"), at(11, "07:00:00"),
			run{At: at(11, "06:00:00"), From: at(10, "22:00:00"), Next: at(11, "07:00:00"), Missed: 8}},
		"missed at the end, within a minute": {hourly, "none", at(10, "22:00:00"), at(11, "07:00:59"),
			run{At: at(11, "06:00:00"), From: at(10, "22:00:00"), Next: at(11, "07:00:00"), Missed: 8}},
		"late, nothing after": {hourly, "last", at(10, "22:00:00"), at(11, "07:30:00"),
			run{At: at(11, "06:00:00"), From: at(10, "22:00:00"), Next: at(11, "07:00:00"), Missed: 8, Late: true}},
		"late, one after": {hourly, "last", at(10, "22:00:00"), at(11, "08:30:00"),
			run{At: at(11, "08:00:00"), From: at(10, "22:00:00"), Next: at(11, "09:00:00"), Missed: 10, Late: true}},
		"late, in the next hours": {hourly, "last", at(10, "20:00:00"), at(11, "23:30:00"),
			run{At: at(11, "21:00:00"), From: at(10, "20:00:00"), Next: at(11, "22:00:00"), Missed: 25, Late: true}},
		"all, the quiet ones as one": {hourly, "all", at(10, "22:00:00"), at(11, "08:30:00"),
			run{At: at(11, "06:00:00"), From: at(10, "22:00:00"), Next: at(11, "07:00:00"), Missed: 8, Late: true}},
		"none, late": {hourly, "none", at(10, "22:00:00"), at(11, "07:30:00"),
			run{At: at(11, "06:00:00"), From: at(10, "22:00:00"), Next: at(11, "07:00:00"), Missed: 8, Late: true, Drop: true}},
		"skipped": {skipping, "last", at(10, "22:00:00"), at(10, "22:00:00"),
			run{At: at(10, "22:00:00"), From: at(10, "22:00:00"), Next: at(10, "23:00:00"), Quiet: true}},
		"skipped no more": {skipping, "last", at(11, "07:00:00"), at(11, "07:00:00"),
			run{At: at(11, "07:00:00"), From: at(11, "07:00:00"), Next: at(11, "08:00:00")}},
	} {
		got := cohorts.BeginRun(c.timing, c.next, c.now, c.missed)
		if diff := cmp.Diff(c.want, run{got.At, got.From, got.Next, got.Missed, got.Late, got.Drop, got.Quiet}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		resumed := cohorts.Resume(c.timing, got.At, got.From, got.Missed, got.Drop, c.now)
		if diff := cmp.Diff(got, resumed); diff != "" {
			t.Errorf("%s, resumed: %s", name, diff)
		}
	}
	r := cohorts.BeginRun(hourly, at(10, "22:00:00"), at(11, "07:00:00"), "last")
	if own, ok := r.For(hourly, at(11, "03:30:00"), nil); !ok || own.Missed != 2 || !own.At.Equal(at(11, "06:00:00")) {
		t.Errorf("who joined in quiet hours: got %+v, %v", own, ok)
	}
	if own, ok := r.For(hourly, at(10, "20:00:00"), new(at(11, "01:00:00"))); !ok || own.Missed != 3 || !own.At.Equal(at(11, "01:00:00")) || own.Late || own.Quiet {
		t.Errorf("whose last lies in quiet hours: got %+v, %v", own, ok)
	}
	if _, ok := r.For(hourly, at(11, "06:30:00"), nil); ok {
		t.Error("who joined after the last of them is served it")
	}
}

// around is quiet hours that now lies in, far from both ends.
func around(then string) *subjects.QuietHours {
	now := time.Now().UTC()
	return &subjects.QuietHours{From: now.Add(-10 * time.Hour).Format("15:04"), To: now.Add(10 * time.Hour).Format("15:04"), Then: then}
}

func TestACohortSleepsUntilQuietHoursEnd(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC", QuietHours: around("")})
	made := h.put("k", following("0 * * * *"))
	if wait := one[time.Duration](h, `SELECT due_at - next_at FROM cohort`); wait < 8*time.Hour || wait > 11*time.Hour {
		t.Errorf("it is due %s after its nominal time", wait)
	}
	if got := time.Until(*made.NextAt); got > time.Hour {
		t.Errorf("next_at is not nominal: in %s", got)
	}
	h.back(3 * time.Hour)
	if got := h.get("k"); got.NextAt.After(time.Now()) || len(h.takeHanded()) != 0 {
		t.Errorf("the one that waits is the next: got %s", got.NextAt)
	}
	h.put("k", following("30 * * * *"))
	if handed := h.takeHanded(); len(handed) != 1 || !handed[0].Run.Quiet || handed[0].Missed != 2 {
		t.Errorf("what waited is recorded as skipped: got %+v", handed)
	}
	h.back(3 * time.Hour)
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC"})
	if handed := h.takeHanded(); len(handed) != 1 || handed[0].Run.Quiet || handed[0].Missed != 2 {
		t.Errorf("what waited is handed out when the hours are lifted: got %+v", handed)
	}
	if one[bool](h, `SELECT bool_or(c.due_at <> c.next_at) FROM cohort c JOIN member m ON m.cohort_id = c.id`) {
		t.Error("it sleeps on")
	}
}
