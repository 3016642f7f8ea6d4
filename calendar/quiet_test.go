package calendar

import (
	"fmt"
	"testing"
	"time"
)

// Quiet hours are held to what a clock shows, in steps that no change of a clock is finer than.
func TestQuietHoursAreWhatTheClockShows(t *testing.T) {
	t.Parallel()
	day := func(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) }
	hours := []Quiet{{From: 22 * 3600, To: 7 * 3600}, {From: 2*3600 + 900, To: 2*3600 + 2700}, {From: 3600, To: 2*3600 + 1800}, {From: 2*3600 + 1800, To: 13 * 3600}, {From: 3600, To: 0}, {From: 0, To: 86340}}
	for zone, around := range map[string]time.Time{
		"Europe/Berlin": day(2027, 3, 27), "America/New_York": day(2026, 10, 31), "Australia/Lord_Howe": day(2027, 4, 3),
		"Antarctica/Troll": day(2027, 3, 27), "Africa/Cairo": day(2027, 4, 29), "America/Havana": day(2027, 11, 6),
		"Pacific/Apia": day(2011, 12, 29), "Asia/Tokyo": day(2027, 1, 1), "America/Nuuk": day(2027, 3, 26),
	} {
		for _, q := range hours {
			timing, err := Compile(Spec{Timezone: "@subject", Cron: StringList{"0 12 * * *"}}, Context{SubjectZone: zone, SubjectQuiet: q})
			if err != nil {
				t.Fatal(err)
			}
			const step = 600
			quiet := func(at time.Time) bool {
				local := timing.Local(at)
				sec := local.Hour()*3600 + local.Minute()*60 + local.Second()
				if q.From < q.To {
					return q.From <= sec && sec < q.To
				}
				return sec >= q.From || sec < q.To
			}
			for at := around; at.Before(around.Add(72 * time.Hour)); at = at.Add(step * time.Second) {
				begin, end, ok := timing.QuietHours(at)
				if ok != quiet(at) {
					t.Fatalf("%s %v at %s: quiet is %v", zone, q, timing.Local(at), ok)
				}
				if !ok {
					if !timing.Due(at).Equal(at) {
						t.Fatalf("%s %v at %s: due %s", zone, q, timing.Local(at), timing.Local(timing.Due(at)))
					}
					continue
				}
				if quiet(end) || quiet(begin.Add(-time.Second)) || begin.After(at) || !end.After(at) || !timing.Due(at).Equal(end) {
					t.Fatalf("%s %v at %s: from %s until %s", zone, q, timing.Local(at), timing.Local(begin), timing.Local(end))
				}
				for in := begin; in.Before(end); in = in.Add(step * time.Second) {
					if !quiet(in) {
						t.Fatalf("%s %v at %s: %s is not quiet", zone, q, timing.Local(at), timing.Local(in))
					}
				}
			}
		}
	}
}

func TestQuietHoursAreOfTheKeyAndOfTheCohort(t *testing.T) {
	t.Parallel()
	night := Quiet{From: 22 * 3600, To: 7 * 3600}
	compile := func(zone string, c Context) *Timing {
		t.Helper()
		timing, err := Compile(Spec{Timezone: zone, Cron: StringList{"0 23 * * *"}}, c)
		if err != nil {
			t.Fatal(err)
		}
		return timing
	}
	named := compile("Asia/Tokyo", Context{SubjectZone: "Asia/Tokyo", SubjectQuiet: night})
	plain := compile("@subject", Context{SubjectZone: "Asia/Tokyo"})
	quiet := compile("@subject", Context{SubjectZone: "Asia/Tokyo", SubjectQuiet: night})
	if named.Hash() != plain.Hash() || plain.Hash() == quiet.Hash() {
		t.Error("a cohort is one of a zone and its quiet hours")
	}
	read, err := FromCanonical(quiet.Canonical(), Context{})
	if err != nil {
		t.Fatal(err)
	}
	at, _ := read.Next(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	if got := read.Due(at.At).Sub(at.At); got != 8*time.Hour || !read.Waits(at.At) || read.LeavesOut(at.At) {
		t.Errorf("waits %s", got)
	}
	night.Skip = true
	skip := compile("@subject", Context{SubjectZone: "Asia/Tokyo", SubjectQuiet: night})
	if skip.Hash() == quiet.Hash() || !skip.Due(at.At).Equal(at.At) || !skip.LeavesOut(at.At) || skip.Waits(at.At) {
		t.Error("what is skipped does not wait")
	}
	if _, err := Compile(Spec{Timezone: "@subject", Cron: StringList{"0 23 * * *"}}, Context{}); err.(Faults)[0].Code != "no_subject_zone" {
		t.Errorf("got %v", err)
	}
}

func TestOnceADay(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		spec Spec
		want bool
	}{
		{Spec{Cron: StringList{"0 8 * * *"}}, true},
		{Spec{Cron: StringList{"0 8,20 * * *"}}, false},
		{Spec{Cron: StringList{"0 9 * * 1", "0 8 * * 2"}}, true},
		{Spec{Cron: StringList{"0 9 * * 1", "0 8 * * 1-5"}}, false},
		{Spec{Intervals: []Interval{{Every: "1d"}}}, true},
		{Spec{Intervals: []Interval{{Every: "12h"}}}, false},
		{Spec{At: []string{"2026-12-24T18:00:00", "2026-12-25T18:00:00"}}, true},
		{Spec{At: []string{"2026-12-24T18:00:00", "2026-12-24T19:00:00"}}, false},
		{Spec{RRule: "DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE"}, true},
		{Spec{Cron: StringList{"0 8 * * *"}, Exclude: &Exclude{Dates: []string{"2026-12-25"}, Then: "next"}}, true}, // the two are one
		{Spec{Intervals: []Interval{{Every: "1h", Mode: "fixed_delay"}}}, false},
	} {
		c.spec.Timezone = "Europe/Berlin"
		timing, err := Compile(c.spec, Context{Created: from})
		if err != nil {
			t.Fatal(err)
		}
		if got := timing.OnceADay(from); got != c.want {
			t.Errorf("%s: got %v", encode(c.spec), got)
		}
	}
}

// Whoever fires daily at 08:00 and flies from any zone to any other at any hour has a gap of 20 to 48 hours, where a tick less
// than 20 hours after the last one is left out. What clocks change by on the way is added to the longer end.
func TestADailyTicksGapOverAllPairsOfZones(t *testing.T) {
	t.Parallel()
	var timings []*Timing
	seen := map[string]bool{}
	moments := []time.Time{
		time.Date(2026, 1, 14, 7, 59, 59, 0, time.UTC), time.Date(2026, 1, 14, 8, 0, 0, 0, time.UTC), time.Date(2026, 7, 15, 19, 30, 0, 0, time.UTC),
		time.Date(2026, 7, 15, 0, 0, 1, 0, time.UTC), time.Date(2027, 3, 28, 1, 30, 0, 0, time.UTC), time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC),
	}
	for _, name := range InForce().Names() {
		timing, err := Compile(Spec{Timezone: "@subject", Cron: StringList{"0 8 * * *"}}, Context{SubjectZone: name})
		if err != nil {
			t.Fatal(err)
		}
		var alike string // zones that show the same at all moments are one
		for _, m := range moments {
			last, _ := timing.Prev(m.Add(time.Second))
			next, _ := timing.Next(m)
			after, _ := timing.Next(next.At)
			alike += fmt.Sprint(last.At.Unix(), next.At.Unix(), after.At.Unix(), " ")
		}
		if !seen[alike] {
			seen[alike] = true
			timings = append(timings, timing)
		}
	}
	if len(timings) < 40 {
		t.Fatalf("only %d zones differ", len(timings))
	}
	shortest, longest := 1000*time.Hour, time.Duration(0)
	for _, m := range moments {
		for _, from := range timings {
			last, _ := from.Prev(m.Add(time.Second))
			ownNext, _ := from.Next(m)
			for _, to := range timings {
				next, _ := to.Next(m)
				if next.At.Sub(last.At) < 20*time.Hour {
					next, _ = to.Next(next.At)
				}
				gap := next.At.Sub(last.At)
				slack := max(0, ownNext.At.Sub(last.At)-24*time.Hour)
				before, _ := to.Prev(next.At)
				slack += max(0, next.At.Sub(before.At)-24*time.Hour)
				if gap < 20*time.Hour || gap > 48*time.Hour+slack {
					t.Errorf("%s from %s to %s: %s", m, from.Zone(), to.Zone(), gap)
				}
				shortest, longest = min(shortest, gap), max(longest, gap)
			}
		}
	}
	t.Logf("%d zones that differ: gaps of %s to %s", len(timings), shortest, longest)
}
