package calendar

import (
	"slices"
	"testing"
	"time"
)

func ticksAfter(t *testing.T, timing *Timing, after string, n int) []string {
	t.Helper()
	at, err := time.Parse(time.RFC3339, after)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for tick := range timing.All(at) {
		if len(out) == n {
			break
		}
		out = append(out, timing.Local(tick.At).Format("2006-01-02T15:04:05-07:00"))
	}
	return out
}

func TestCivilDaysKeepTheirTimeOfDay(t *testing.T) {
	t.Parallel()
	timing := mustCompile(t, Spec{Timezone: "America/New_York", Intervals: []Interval{{Every: "2d", Mode: "fixed_rate"}}, StartAt: new("2026-10-30T09:00:00")})
	want := []string{"2026-10-30T09:00:00-04:00", "2026-11-01T09:00:00-05:00", "2026-11-03T09:00:00-05:00"}
	if got := ticksAfter(t, timing, "2026-01-01T00:00:00Z", 3); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	timing = mustCompile(t, Spec{Timezone: "America/New_York", Intervals: []Interval{{Every: "48h", Mode: "fixed_rate"}}, StartAt: new("2026-10-30T09:00:00")})
	want = []string{"2026-10-30T09:00:00-04:00", "2026-11-01T08:00:00-05:00", "2026-11-03T08:00:00-05:00"}
	if got := ticksAfter(t, timing, "2026-01-01T00:00:00Z", 3); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	timing = mustCompile(t, Spec{Timezone: "Europe/Berlin", Intervals: []Interval{{Every: "1w", Offset: "4d"}}})
	want = []string{"2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"} // Mondays
	if got := ticksAfter(t, timing, "2026-03-20T00:00:00Z", 2); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFirstTick(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 11, 21, 8, 59, 59, 500_000_000, time.UTC)
	rate := func(first string) []Interval { return []Interval{{Every: "7m", Mode: "fixed_rate", First: first}} }
	for _, c := range []struct {
		name string
		spec Spec
		want string
	}{
		{"cron", Spec{Cron: StringList{"0 9 * * *"}}, "2026-11-21T09:00:00Z"},
		{"rate after", Spec{Intervals: rate("")}, "2026-11-21T09:07:00Z"},
		{"rate now", Spec{Intervals: rate("now")}, "2026-11-21T09:00:00Z"},
		{"rate from a start", Spec{Intervals: rate(""), StartAt: new("2026-11-22T00:00:00Z")}, "2026-11-22T00:00:00Z"},
		{"rate from a past start", Spec{Intervals: rate(""), StartAt: new("2026-11-21T08:00:00Z")}, "2026-11-21T09:03:00Z"},
		{"rate after beside a cron", Spec{Intervals: rate(""), Cron: StringList{"0 9 * * *"}}, "2026-11-21T09:00:00Z"},
		{"rate now beside a cron", Spec{Intervals: rate("now"), Cron: StringList{"5 9 * * *"}}, "2026-11-21T09:00:00Z"},
		{"@every", Spec{Cron: StringList{"@every 1h30m"}}, "2026-11-21T10:30:00Z"},
		{"delay after", Spec{Intervals: []Interval{{Every: "10m", Mode: "fixed_delay"}}}, "2026-11-21T09:10:00Z"},
		{"delay now", Spec{Intervals: []Interval{{Every: "10m", Mode: "fixed_delay", First: "now"}}}, "2026-11-21T09:00:00Z"},
		{"delay from a start", Spec{Intervals: []Interval{{Every: "10m", Mode: "fixed_delay"}}, StartAt: new("2026-11-22T00:00:00Z")}, "2026-11-22T00:00:00Z"},
		{"aligned", Spec{Intervals: []Interval{{Every: "5m", Offset: "30s"}}}, "2026-11-21T09:00:30Z"},
		{"at", Spec{At: []string{"2026-11-21T10:00:00+01:00", "2026-11-21T08:59:59Z"}}, "2026-11-21T09:00:00Z"},
	} {
		timing, err := Compile(c.spec, Context{Created: created})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, ok := timing.First(created); !ok || got.At.Format(time.RFC3339) != c.want {
			t.Errorf("%s: got %v %v, want %s", c.name, got.At, ok, c.want)
		}
	}
}

func TestFixedDelayFollowsTheRun(t *testing.T) {
	t.Parallel()
	timing := mustCompile(t, Spec{Timezone: "America/New_York", Intervals: []Interval{{Every: "1d", Mode: "fixed_delay"}}, EndAt: new("2026-03-10T00:00:00Z")})
	if every, ok := timing.FixedDelay(); !ok || every != 24*time.Hour {
		t.Errorf("every %s %v", every, ok)
	}
	got, ok := timing.Next(time.Date(2026, 3, 7, 17, 0, 0, 1, time.UTC)) // 12:00:01 rounded up, and the clock goes forward at night
	if !ok || !got.At.Equal(time.Date(2026, 3, 8, 16, 0, 1, 0, time.UTC)) {
		t.Errorf("got %v %v", got.At, ok)
	}
	if got, ok := timing.Next(time.Date(2026, 3, 9, 17, 0, 0, 0, time.UTC)); ok {
		t.Errorf("a tick after the end: %v", got.At)
	}
	if _, ok := timing.Prev(time.Date(2026, 3, 9, 17, 0, 0, 0, time.UTC)); ok {
		t.Error("fixed_delay has a past")
	}
}

func TestStartAndEndAreIncluded(t *testing.T) {
	t.Parallel()
	timing := mustCompile(t, Spec{Cron: StringList{"0 9 * * *"}, StartAt: new("2026-01-02T09:00:00Z"), EndAt: new("2026-01-04T09:00:00Z")})
	want := []string{"2026-01-02T09:00:00+00:00", "2026-01-03T09:00:00+00:00", "2026-01-04T09:00:00+00:00"}
	if got := ticksAfter(t, timing, "2020-01-01T00:00:00Z", 9); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := timing.Count(time.Unix(0, 0), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)); n != 3 {
		t.Errorf("count %d", n)
	}
}

func TestMinGap(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for cron, want := range map[string]time.Duration{
		"* * * * *": time.Minute, "*/15 * * * *": 15 * time.Minute, "0 9 * * *": 24 * time.Hour, "0,59 * * * *": time.Minute,
		"0 9,17 * * *": 8 * time.Hour, "* * * * * *": time.Second, "30 */5 * * * *": 5 * time.Minute, "0 0 29 2 *": 24 * time.Hour, "0,50 23,0 * * *": 10 * time.Minute,
	} {
		if got := mustCompile(t, Spec{Cron: StringList{cron}}).MinGap(from); got != want {
			t.Errorf("%s: got %s, want %s", cron, got, want)
		}
	}
	if got := mustCompile(t, Spec{Cron: StringList{"0 9 * * *", "1 9 * * *"}}).MinGap(from); got != time.Minute {
		t.Errorf("two crons: got %s", got)
	}
}
