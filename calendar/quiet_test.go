package calendar

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Quiet hours agree with what a clock shows, in steps that are at least as fine as any change of a clock.
func TestQuietHoursAreWhatTheClockShows(t *testing.T) {
	t.Parallel()
	day := func(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) }
	hours := []Window{{From: 22 * 3600, To: 7 * 3600}, {From: 2*3600 + 900, To: 2*3600 + 2700}, {From: 3600, To: 2*3600 + 1800}, {From: 2*3600 + 1800, To: 13 * 3600}, {From: 3600, To: 0}, {From: 0, To: 86340}}
	for zone, around := range map[string]time.Time{
		"Europe/Berlin": day(2027, 3, 27), "America/New_York": day(2026, 10, 31), "Australia/Lord_Howe": day(2027, 4, 3),
		"Antarctica/Troll": day(2027, 3, 27), "Africa/Cairo": day(2027, 4, 29), "America/Havana": day(2027, 11, 6),
		"Pacific/Apia": day(2011, 12, 29), "Asia/Tokyo": day(2027, 1, 1), "America/Nuuk": day(2027, 3, 26),
	} {
		for _, q := range hours {
			timing, err := Compile(Spec{Timezone: "@subject", Cron: StringList{"0 12 * * *"}}, Context{SubjectZone: zone, SubjectQuiet: Quiet{q}})
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
	night := Window{From: 22 * 3600, To: 7 * 3600}
	compile := func(zone string, c Context) *Timing {
		t.Helper()
		timing, err := Compile(Spec{Timezone: zone, Cron: StringList{"0 23 * * *"}}, c)
		if err != nil {
			t.Fatal(err)
		}
		return timing
	}
	named := compile("Asia/Tokyo", Context{SubjectZone: "Asia/Tokyo", SubjectQuiet: Quiet{night}})
	plain := compile("@subject", Context{SubjectZone: "Asia/Tokyo"})
	quiet := compile("@subject", Context{SubjectZone: "Asia/Tokyo", SubjectQuiet: Quiet{night}})
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
	skip := compile("@subject", Context{SubjectZone: "Asia/Tokyo", SubjectQuiet: Quiet{night}})
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

// A subject whose schedule fires daily at 08:00 travels from any zone to any other, at any hour. A tick less than 20 hours after the last
// one is left out. The gap between two ticks is then 20 to 48 hours; clock changes on the way can only add to the 48.
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
		var alike string // zones with the same ticks at all moments are tested once
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

// Several windows by weekday agree with a clock, minute by minute, around changes of clocks.
func TestQuietWindowsAreWhatTheClockShows(t *testing.T) {
	t.Parallel()
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "Pacific/Apia", "Asia/Tokyo", "Antarctica/Troll"}
	window := rapid.Custom(func(t *rapid.T) Window {
		w := Window{From: rapid.IntRange(0, 95).Draw(t, "from") * 900, To: rapid.IntRange(1, 96).Draw(t, "to") * 900, Skip: rapid.Bool().Draw(t, "skip"), Days: rapid.Uint8Range(0, 127).Draw(t, "days")}
		if w.From == w.To {
			w.To = w.From%daySeconds + 900
		}
		return w
	})
	rapid.Check(t, func(t *rapid.T) {
		q := Quiet(rapid.SliceOfN(window, 1, 4).Draw(t, "windows"))
		if q.LeavesNothing() {
			return
		}
		timing, err := Compile(Spec{Timezone: "@subject", Cron: StringList{"0 12 * * *"}}, Context{SubjectZone: rapid.SampledFrom(zones).Draw(t, "zone"), SubjectQuiet: q})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ReadQuiet(q.String()); err != nil || again.String() != q.String() {
			t.Fatalf("%q is read as %q, %v", q, again, err)
		}
		in := func(at time.Time) (quiet, skip bool) {
			local := timing.Local(at)
			sec := local.Hour()*3600 + local.Minute()*60 + local.Second()
			on := func(w Window, day time.Weekday) bool { return w.Days == 0 || w.Days&(1<<day) != 0 }
			for _, w := range q {
				today, yesterday := on(w, local.Weekday()), on(w, (local.Weekday()+6)%7)
				var has bool
				if w.From < w.To {
					has = today && w.From <= sec && sec < w.To
				} else {
					has = today && sec >= w.From || yesterday && sec < w.To
				}
				quiet, skip = quiet || has, skip || has && w.Skip
			}
			return quiet, skip
		}
		from := rapid.SampledFrom([]time.Time{
			time.Date(2027, 3, 12, 0, 0, 0, 0, time.UTC), time.Date(2027, 3, 26, 0, 0, 0, 0, time.UTC), time.Date(2027, 4, 1, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 10, 30, 0, 0, 0, 0, time.UTC), time.Date(2011, 12, 28, 0, 0, 0, 0, time.UTC),
		}).Draw(t, "around")
		at := from.Add(time.Duration(rapid.IntRange(0, 6*24*4).Draw(t, "quarter")) * 15 * time.Minute)
		quiet, skip := in(at)
		begin, end, ok := timing.QuietHours(at)
		if ok != quiet || timing.LeavesOut(at) != skip || timing.Waits(at) != (quiet && !skip) {
			t.Fatalf("%q at %s: quiet %v, left out %v, waits %v", q, timing.Local(at), ok, timing.LeavesOut(at), timing.Waits(at))
		}
		if !quiet {
			return
		}
		for in15 := at; ; in15 = in15.Add(15 * time.Minute) {
			if still, _ := in(in15); !still {
				if in15.Sub(end) >= 15*time.Minute || end.After(in15) {
					t.Fatalf("%q at %s: ends at %s, and the clock is quiet until %s", q, timing.Local(at), timing.Local(end), timing.Local(in15))
				}
				break
			}
		}
		if still, _ := in(end); still {
			t.Fatalf("%q at %s: the end %s is quiet", q, timing.Local(at), timing.Local(end))
		}
		if before, _ := in(begin.Add(-time.Second)); before || begin.After(at) {
			t.Fatalf("%q at %s: does not begin at %s", q, timing.Local(at), timing.Local(begin))
		}
		if !skip && !timing.Due(at).Equal(end) {
			t.Fatalf("%q at %s: due %s, want %s", q, timing.Local(at), timing.Local(timing.Due(at)), timing.Local(end))
		}
	})
}

func TestWeekdaysOfAWindow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint8{"1-5": 0b0111110, "0": 1, "7": 1, "sat,sun": 0b1000001, "*": 0, "fri-mon": 0b1100011} {
		if got, err := ReadWeekdays(text); err != nil || got != want {
			t.Errorf("%q: got %b, %v, want %b", text, got, err, want)
		}
	}
	for _, text := range []string{"", "8", "1#2", "1L", "H", "daily", "1,,2"} {
		if got, err := ReadWeekdays(text); err == nil {
			t.Errorf("%q: got %b", text, got)
		}
	}
	night := Quiet{{From: 22 * 3600, To: 7 * 3600}}
	if night.LeavesNothing() || !append(night, Window{From: 7 * 3600, To: 22 * 3600}).LeavesNothing() {
		t.Error("night and day leave nothing of the week")
	}
}
