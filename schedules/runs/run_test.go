package runs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/runs"
)

func compiled(t interface {
	Helper()
	Fatal(...any)
}, spec calendar.Spec,
) *calendar.Timing {
	t.Helper()
	timing, err := calendar.Compile(spec, calendar.Context{Created: time.Unix(1_700_000_000, 0).UTC(), Identity: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return timing
}

// shown compares what runs show.
var shown = cmpopts.IgnoreUnexported(runs.Run{})

var (
	minutely = calendar.Spec{Cron: calendar.StringList{"* * * * *"}}
	secondly = calendar.Spec{Cron: calendar.StringList{"* * * * * *"}}
	noon     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func TestARunServesWhatItsPolicySays(t *testing.T) {
	t.Parallel()
	second := time.Second
	for name, c := range map[string]struct {
		spec   calendar.Spec
		now    time.Duration // after noon, the next nominal time
		missed string
		want   runs.Run
	}{
		"on time": {minutely, 0, "last", runs.Run{At: noon, From: noon, Next: noon.Add(time.Minute)}},
		"59.9 s late": {
			minutely, 59900 * time.Millisecond, "none",
			runs.Run{At: noon, From: noon, Next: noon.Add(time.Minute)},
		},
		"last serves the latest": {
			minutely, 5*time.Minute + 30*second, "last",
			runs.Run{At: noon.Add(5 * time.Minute), From: noon, Missed: 5, Late: true, Next: noon.Add(6 * time.Minute)},
		},
		"all begins with the first": {
			minutely, 5*time.Minute + 30*second, "all",
			runs.Run{At: noon, From: noon, Late: true, Next: noon.Add(time.Minute)},
		},
		"all keeps a thousand": {
			minutely, 1000*time.Minute + 30*second, "all",
			runs.Run{At: noon, From: noon, Late: true, Drop: true, Next: noon.Add(time.Minute)},
		},
		"all drops what is before the newest thousand": {
			minutely, 1004*time.Minute + 30*second, "all",
			runs.Run{At: noon.Add(4 * time.Minute), From: noon, Missed: 4, Late: true, Drop: true, Next: noon.Add(5 * time.Minute)},
		},
		"none drops what is late and leaves what is not": {
			minutely, 5*time.Minute + 30*second, "none",
			runs.Run{At: noon.Add(4 * time.Minute), From: noon, Missed: 4, Late: true, Drop: true, Next: noon.Add(5 * time.Minute)},
		},
		"none, a little late": {
			secondly, 10 * second, "none",
			runs.Run{At: noon.Add(10 * second), From: noon, Missed: 10, Late: true, Next: noon.Add(11 * second)},
		},
		"none, exactly a minute late": {
			calendar.Spec{Cron: calendar.StringList{"0 12 * * *"}}, 60 * second, "none",
			runs.Run{At: noon, From: noon, Next: noon.AddDate(0, 0, 1)},
		},
		"none, more than a minute late": {
			calendar.Spec{Cron: calendar.StringList{"0 12 * * *"}}, 60*second + 1, "none",
			runs.Run{At: noon, From: noon, Late: true, Drop: true, Next: noon.AddDate(0, 0, 1)},
		},
		"last, more than a minute late": {
			calendar.Spec{Cron: calendar.StringList{"0 12 * * *"}}, 60*second + 1, "last",
			runs.Run{At: noon, From: noon, Late: true, Next: noon.AddDate(0, 0, 1)},
		},
		"the end": {
			calendar.Spec{At: []string{"2026-11-21T12:00:00Z"}}, second, "last",
			runs.Run{At: noon, From: noon},
		},
		"promised, and retimed since": {
			calendar.Spec{Cron: calendar.StringList{"0 13 * * *"}}, second, "last",
			runs.Run{At: noon, From: noon, Next: noon.Add(time.Hour)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runs.Begin(compiled(t, c.spec), noon, noon.Add(c.now), c.missed)
			if diff := cmp.Diff(c.want, got, shown); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestARunSaysWhatItsTimeIsToTheClock(t *testing.T) {
	t.Parallel()
	berlin := compiled(t, calendar.Spec{Timezone: "Europe/Berlin", Cron: calendar.StringList{"30 2 * * *"}})
	gap := time.Date(2027, 3, 28, 1, 30, 0, 0, time.UTC)
	if got := runs.Begin(berlin, gap, gap, "last"); got.DST != calendar.DSTGap {
		t.Errorf("got %s, want gap", got.DST)
	}
	if got := runs.Resume(berlin, gap, gap, 0, false, gap.Add(time.Second)); got.DST != calendar.DSTGap || got.Late {
		t.Errorf("got %+v, want gap and on time", got)
	}
}

func TestAResumedRunIsTheOneThatBegan(t *testing.T) {
	t.Parallel()
	timing := compiled(t, minutely)
	now := noon.Add(7*time.Minute + time.Second)
	for _, missed := range []string{"last", "all", "none"} {
		began := runs.Begin(timing, noon, now, missed)
		resumed := runs.Resume(timing, began.At, began.From, began.Missed, began.Drop, now.Add(time.Hour))
		if diff := cmp.Diff(began, resumed, shown); diff != "" {
			t.Errorf("%s: began -, resumed +:\n%s", missed, diff)
		}
	}
}

// A sweep may reach the members of a run with jitter in two parts, at the same moment: it begins the run for some and resumes it for
// others. All of them get the same run.
func TestARunWithJitterIsResumedAsItBegan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := calendar.Spec{
			Cron:   calendar.StringList{rapid.SampledFrom([]string{"*/5 * * * *", "45 * * * *", "30 1 * * *"}).Draw(t, "cron")},
			Jitter: rapid.SampledFrom([]string{"30s", "5m", "20m"}).Draw(t, "jitter"),
		}
		timing := compiled(t, spec)
		first, _ := timing.Next(noon)
		now := first.At.Add(time.Duration(rapid.IntRange(0, 7200).Draw(t, "late, s")) * time.Second)
		began := runs.Begin(timing, first.At, now, rapid.SampledFrom([]string{"last", "all", "none"}).Draw(t, "missed"))
		resumed := runs.Resume(timing, began.At, began.From, began.Missed, began.Drop, now)
		if diff := cmp.Diff(began, resumed, shown); diff != "" {
			t.Errorf("began -, resumed +:\n%s", diff)
		}
	})
}

// specs are timings of every kind, of which runs are drawn.
var specs = []calendar.Spec{
	minutely, secondly,
	{Cron: calendar.StringList{"*/7 9-17 * * 1-5", "3 3 * * *"}, Timezone: "America/New_York"},
	{Cron: calendar.StringList{"30 1,2 * * *"}, Timezone: "Europe/Berlin", DST: calendar.DST{Overlap: "both"}},
	{Intervals: []calendar.Interval{{Every: "90s"}}},
	{Intervals: []calendar.Interval{{Every: "1d", Offset: "2h"}}, Timezone: "Australia/Lord_Howe"},
	{Cron: calendar.StringList{"*/5 * * * *"}, Exclude: &calendar.Exclude{Dates: []string{"2026-11-22"}}},
}

// A run whose ticks are dropped as missed came too late, also after it was resumed within the time that jitter allows.
func TestAResumedRunThatIsDroppedIsLate(t *testing.T) {
	t.Parallel()
	timing := compiled(t, calendar.Spec{Cron: calendar.StringList{"15 * * * *"}, Jitter: "30s"})
	at := noon.Add(15 * time.Minute)
	now := at.Add(time.Minute + 500*time.Millisecond)
	began := runs.Begin(timing, at, now, "none")
	resumed := runs.Resume(timing, began.At, began.From, began.Missed, began.Drop, now)
	if !began.Drop || !began.Late || !resumed.Late {
		t.Errorf("began %+v, resumed %+v", began, resumed)
	}
}

// A schedule that joined a cohort after the times that a run stands for catches up only if the run itself is late.
func TestAMemberThatMissedNothingIsNotLate(t *testing.T) {
	t.Parallel()
	timing := compiled(t, minutely)
	for _, c := range []struct {
		now, joined time.Duration // after noon, the first time of the run
		want        bool
	}{
		{7*time.Minute + time.Second, 7 * time.Minute, false},
		{7*time.Minute + time.Second, 6 * time.Minute, true},
		{7*time.Minute + time.Second, 0, true},
		{time.Second, 0, false},
	} {
		run := runs.Begin(timing, noon, noon.Add(c.now), "last")
		resumed := runs.Resume(timing, run.At, run.From, run.Missed, run.Drop, noon.Add(c.now))
		for _, r := range []runs.Run{run, resumed} {
			own, counts := r.For(timing, noon.Add(c.joined), nil)
			if !counts || own.Late != c.want || own.Late != (own.Missed > 0) {
				t.Errorf("joined after %s, at %s: %+v", c.joined, c.now, own)
			}
		}
	}
	run := runs.Begin(timing, noon, noon.Add(7*time.Minute+time.Second), "last")
	resumed := runs.Resume(timing, run.At, run.From, run.Missed, run.Drop, noon.Add(time.Hour))
	if own, counts := resumed.For(timing, noon.Add(7*time.Minute), nil); !counts || !own.Late || own.Missed != 0 {
		t.Errorf("resumed after an hour: %+v", own)
	}
}

// TestRunsMeetANaiveModel lists all nominal times that are due, and compares each run with a model. It begins runs until no time is due:
// each time is served, or stood for by a run, exactly once.
func TestRunsMeetANaiveModel(t *testing.T) {
	t.Parallel()
	var timings []*calendar.Timing
	for _, spec := range specs {
		timings = append(timings, compiled(t, spec))
	}
	rapid.Check(t, func(t *rapid.T) {
		timing := rapid.SampledFrom(timings).Draw(t, "timing")
		policy := rapid.SampledFrom([]string{"last", "all", "none"}).Draw(t, "missed")
		begin := noon.Add(time.Duration(rapid.IntRange(0, 400*86400).Draw(t, "begin")) * time.Second)
		first, _ := timing.Next(begin)
		late := rapid.OneOf(rapid.IntRange(0, 70_000), rapid.IntRange(0, 3_000_000)).Draw(t, "late, ms")
		now := first.At.Add(time.Duration(late) * time.Millisecond)
		var due []time.Time
		for tick := range timing.All(begin) {
			if tick.At.After(now) {
				break
			}
			due = append(due, tick.At)
		}
		for next := 0; next < len(due); {
			got := runs.Begin(timing, due[next], now, policy)
			served, drop := model(due[next:], now, policy)
			want := runs.Run{
				At: due[next+served], From: due[next], Missed: served, Drop: drop,
				Late: len(due)-next > 1 || now.Sub(due[next]) > time.Minute, DST: got.DST, Next: got.Next,
			}
			if diff := cmp.Diff(want, got, shown); diff != "" {
				t.Fatalf("%d due, %s: want -, got +:\n%s", len(due)-next, policy, diff)
			}
			from := begin.Add(time.Duration(rapid.IntRange(-10, 4000).Draw(t, "from")) * time.Second)
			if joined, want := got.MissedSince(timing, from), count(due[next:next+served], from); joined != want {
				t.Fatalf("since %s got %d, want %d of %d", from, joined, want, served)
			}
			next += served + 1
			if next < len(due) && !got.Next.Equal(due[next]) || next == len(due) && !got.Next.After(now) {
				t.Fatalf("next is %s", got.Next)
			}
			if len(due)-next > 20 && policy == "all" {
				next = len(due) - 20 // they are alike
			}
		}
	})
}

// model is which of the due times a run serves, and whether it drops it.
func model(due []time.Time, now time.Time, policy string) (served int, drop bool) {
	newest := len(due) - 1
	switch {
	case policy == "last":
		return newest, false
	case policy == "all" && len(due) > 1000:
		return len(due) - 1001, true
	case policy == "all":
		return 0, false
	case now.Sub(due[0]) <= time.Minute:
		return newest, false
	}
	for newest > 0 && now.Sub(due[newest]) <= time.Minute {
		newest--
	}
	return newest, true
}

func count(times []time.Time, from time.Time) int {
	n := 0
	for _, at := range times {
		if !at.Before(from) {
			n++
		}
	}
	return n
}

// quietTiming is a timing of a key in UTC whose quiet hours are from 22:00 to 07:00.
func quietTiming(t *testing.T, skip bool, cron string) *calendar.Timing {
	t.Helper()
	timing, err := calendar.Compile(calendar.Spec{Timezone: "@subject", Cron: calendar.StringList{cron}},
		calendar.Context{SubjectZone: "Etc/UTC", SubjectQuiet: calendar.Quiet{{From: 22 * 3600, To: 7 * 3600, Skip: skip}}})
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
		got := runs.Begin(c.timing, c.next, c.now, c.missed)
		if diff := cmp.Diff(c.want, run{got.At, got.From, got.Next, got.Missed, got.Late, got.Drop, got.Quiet}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		resumed := runs.Resume(c.timing, got.At, got.From, got.Missed, got.Drop, c.now)
		if diff := cmp.Diff(got, resumed, shown); diff != "" {
			t.Errorf("%s, resumed: %s", name, diff)
		}
	}
	r := runs.Begin(hourly, at(10, "22:00:00"), at(11, "07:00:00"), "last")
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
