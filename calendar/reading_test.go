package calendar

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReading(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Timezone: "America/New_York", Cron: StringList{"0 9 * * 1-5"}}, "at 09:00 on weekdays in New York"},
		{Spec{Cron: StringList{"* * * * *"}}, "every minute in UTC"},
		{Spec{Cron: StringList{"*/15 * * * *"}}, "every 15 minutes in UTC"},
		{Spec{Cron: StringList{"0 * * * *"}}, "every hour in UTC"},
		{Spec{Cron: StringList{"5 * * * *"}}, "at 5 minutes past every hour in UTC"},
		{Spec{Cron: StringList{"*/10 9-17 * * *"}}, "every 10 minutes from 09:00 to 17:59 every day in UTC"},
		{Spec{Cron: StringList{"0 0 1,15 * *"}}, "at 00:00 on the 1st and the 15th of the month in UTC"},
		{Spec{Cron: StringList{"0 0 L * *"}}, "at 00:00 on the last day of the month in UTC"},
		{Spec{Cron: StringList{"0 0 * * FRI#2"}}, "at 00:00 on the 2nd Friday in UTC"},
		{Spec{Cron: StringList{"0 0 * * 5L"}}, "at 00:00 on the last Friday in UTC"},
		{Spec{Cron: StringList{"0 0 13 * FRI"}}, "at 00:00 on the 13th of the month and on Fridays in UTC"},
		{Spec{Cron: StringList{"0 0 13 * FRI"}, DayMatch: "and"}, "at 00:00 on the 13th of the month where it is one of Fridays in UTC"},
		{Spec{Cron: StringList{"0 8 25 12 *"}}, "at 08:00 on the 25th of December in UTC"},
		{Spec{Cron: StringList{"30 0 9 * * *"}}, "at 09:00:30 every day in UTC"},
		{Spec{Intervals: []Interval{{Every: "5m"}}}, "every 5 minutes"},
		{Spec{Intervals: []Interval{{Every: "10m", Mode: "fixed_delay"}}}, "10 minutes after each run ends"},
		{Spec{At: []string{"2026-12-24T18:00:00"}}, "at 2026-12-24 18:00:00 in UTC"},
		{Spec{Timezone: "Europe/Berlin", Relative: []Relative{{To: "2026-12-24T18:00:00", Offset: "-1d"}, {To: "2026-11-20T15:00:00Z", Days: new(3), At: "10:00"}}},
			"24 hours before 2026-12-24 18:00:00, and at 10:00, 3 days after 2026-11-20 in Berlin"},
		{Spec{Relative: []Relative{{To: "2026-12-24T18:00:00", Offset: "90m"}}}, "90 minutes after 2026-12-24 18:00:00 in UTC"},
		{Spec{Relative: []Relative{{To: "2026-12-24T18:00:00", Offset: "0s"}}}, "at 2026-12-24 18:00:00 in UTC"},
		{Spec{Relative: []Relative{{To: "2026-12-24T18:00:00", Days: new(0), At: "09:00:30"}}}, "at 09:00:30 on 2026-12-24 in UTC"},
		{Spec{Relative: []Relative{{To: "2026-12-24T18:00:00", Days: new(-1), At: "09:00"}}}, "at 09:00, 1 day before 2026-12-24 in UTC"},
		{Spec{Cron: StringList{"0 9 * * *"}, Exclude: &Exclude{Dates: []string{"2027-01-01"}}}, "at 09:00 every day in UTC, except on 2027-01-01"},
		{Spec{RRule: "DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO"}, "at 09:00 on Mondays from 2026-01-05 in UTC"},
		{Spec{RRule: "DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO"}, "at 09:00 on Mondays every 2 weeks from 2026-01-05 in UTC"},
	} {
		if got := mustCompile(t, c.spec).Reading(); got != c.want {
			t.Errorf("%+v\ngot  %s\nwant %s", c.spec, got, c.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		spec Spec
		want []string
	}{
		{Spec{Cron: StringList{"17 9 * * *"}}, nil},
		{Spec{Cron: StringList{"0 9 * * *"}}, []string{"round_minute"}},
		{Spec{Cron: StringList{"0 9 * * *"}, Jitter: "5m"}, nil},
		{Spec{Timezone: "America/New_York", Cron: StringList{"30 2 * * *"}}, []string{"dst_gap"}},
		{Spec{Timezone: "America/New_York", Cron: StringList{"30 1 * * *"}}, []string{"dst_overlap"}},
		{Spec{Cron: StringList{"1 0 30 2 *"}}, []string{"never_fires", "short_months"}},
		{Spec{Cron: StringList{"1 0 29 2 *"}}, []string{"leap_years_only"}},
		{Spec{Cron: StringList{"1 0 31 * *"}}, []string{"short_months"}},
		{Spec{Cron: StringList{"1 0 13 * 5"}}, []string{"day_or_day"}},
		{Spec{Cron: StringList{"1 0 */2 * 1"}}, []string{"dialect"}},
		{Spec{Cron: StringList{"0 1 0 * * *"}}, []string{"dialect"}},
		{Spec{Cron: StringList{"H H * * *"}}, []string{"hashed"}},
		{Spec{Intervals: []Interval{{Every: "5m", Mode: "fixed_delay"}}}, []string{"depends_on_run"}},
	} {
		var got []string
		for _, w := range mustCompile(t, c.spec).Warnings(now) {
			got = append(got, w.Code)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v %v: got %v, want %v", c.spec.Timezone, c.spec.Cron, got, c.want)
		}
	}
	list := mustCompile(t, Spec{Timezone: "America/New_York", Cron: StringList{"*/15 * * * *"}}).Warnings(now)
	if want := "on 2027-03-14 the clock skips from 02:00 to 03:00: the ticks from 02:00 on are left out"; !strings.HasPrefix(list[0].Detail, want) {
		t.Errorf("got %q, want it to begin with %q", list[0].Detail, want)
	}
	if want := "on 2027-11-07 the clock shows 01:00 to 02:00 twice: the ticks from 01:00 on come both times"; !strings.HasPrefix(list[1].Detail, want) {
		t.Errorf("got %q, want it to begin with %q", list[1].Detail, want)
	}
	list = mustCompile(t, Spec{Timezone: "America/New_York", Cron: StringList{"30 2 * * *"}}).Warnings(now)
	if want := "on 2027-03-14 the clock skips from 02:00 to 03:00: the tick at 02:30 comes at 03:30"; !strings.HasPrefix(list[0].Detail, want) {
		t.Errorf("got %q, want it to begin with %q", list[0].Detail, want)
	}
}
