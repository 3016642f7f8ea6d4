package calendar_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/calendar"
)

// The changes of the clock are those at which the standard library shows another offset a second before.
func TestClockChangesAreThoseOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	zones := calendar.InForce()
	from, to := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range zones.Names() {
		location := zones.Location(name)
		var want []string
		before := offsetAt(from.Add(-time.Minute), location)
		for at := from; at.Before(to); at = at.Add(time.Hour) {
			if offsetAt(at, location) == before {
				continue
			}
			for minute := at.Add(-59 * time.Minute); !minute.After(at); minute = minute.Add(time.Minute) { // it has changed within the hour
				if after := offsetAt(minute, location); after != before {
					want, before = append(want, fmt.Sprint(minute, before, after)), after
				}
			}
		}
		var got []string
		for _, c := range zones.ClockChanges(name, from, to) {
			got = append(got, fmt.Sprint(c.At, c.Before, c.After))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func offsetAt(at time.Time, location *time.Location) int {
	_, offset := at.In(location).Zone()
	return offset
}

func TestClockEffects(t *testing.T) {
	t.Parallel()
	gap := calendar.ClockChange{At: time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), Before: 3600, After: 7200}
	overlap := calendar.ClockChange{At: time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC), Before: 7200, After: 3600}
	for _, c := range []struct {
		spec calendar.Spec
		at   calendar.ClockChange
		want string
	}{
		{calendar.Spec{Cron: calendar.StringList{"30 2 * * *"}}, gap, "[shifted 02:30]"},
		{calendar.Spec{Cron: calendar.StringList{"30 2 * * *"}}, overlap, "[once_first 02:30]"},
		{calendar.Spec{Cron: calendar.StringList{"30 3 * * *"}}, gap, "[]"},
		{calendar.Spec{Cron: calendar.StringList{"30 2 * * 1"}}, gap, "[]"}, // the change is on a Sunday
		{calendar.Spec{Cron: calendar.StringList{"30 * * * *"}}, gap, "[skipped 02:30]"},
		{calendar.Spec{Cron: calendar.StringList{"30 * * * *"}}, overlap, "[twice 02:30]"},
		{calendar.Spec{Cron: calendar.StringList{"30 * * * *", "15 2 * * *"}}, gap, "[skipped 02:30 shifted 02:15]"},
		{calendar.Spec{Cron: calendar.StringList{"0 2 * * *"}, DST: calendar.DST{Gap: "next_valid", Overlap: "last"}}, gap, "[next_valid 02:00]"},
		{calendar.Spec{Cron: calendar.StringList{"0 2 * * *"}, DST: calendar.DST{Gap: "next_valid", Overlap: "last"}}, overlap, "[once_last 02:00]"},
		{calendar.Spec{Intervals: []calendar.Interval{{Every: "5m"}}}, gap, "[]"},
		{calendar.Spec{At: []string{"2026-03-29T02:10:00"}}, gap, "[shifted 02:10]"},
		{calendar.Spec{At: []string{"2026-03-29T01:10:00Z"}}, gap, "[]"},
		{calendar.Spec{RRule: "DTSTART;TZID=Europe/Berlin:20260101T021500\nRRULE:FREQ=DAILY"}, gap, "[shifted 02:15]"},
		{calendar.Spec{Cron: calendar.StringList{"30 2 * * *"}, Exclude: &calendar.Exclude{Dates: []string{"2026-03-29"}}}, gap, "[]"},
		{calendar.Spec{Cron: calendar.StringList{"30 2 * * *"}, StartAt: new("2026-04-01T00:00:00Z")}, gap, "[]"},
	} {
		c.spec.Timezone = "Europe/Berlin"
		timing, err := calendar.Compile(c.spec, calendar.Context{Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range timing.ClockEffects().Of(c.at) {
			got = append(got, string(e.Effect)+" "+e.Wall.Format("15:04"))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v at %s: got %s, want %s", c.spec, c.at.At, got, c.want)
		}
	}
}

// The effects agree with the notes of the ticks of a daily time: in every zone, at every change, with every policy.
func TestEffectsAgreeWithTheNotesOfTicks(t *testing.T) {
	t.Parallel()
	zones := calendar.InForce()
	names := slices.DeleteFunc(zones.Names(), func(name string) bool {
		return len(zones.ClockChanges(name, time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2037, 1, 1, 0, 0, 0, 0, time.UTC))) == 0
	})
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "zone")
		c := rapid.SampledFrom(zones.ClockChanges(name, time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2037, 1, 1, 0, 0, 0, 0, time.UTC))).Draw(rt, "change")
		dst := calendar.DST{
			Gap:     rapid.SampledFrom([]string{"skip", "next_valid", "shift_forward"}).Draw(rt, "gap"),
			Overlap: rapid.SampledFrom([]string{"first", "last", "both"}).Draw(rt, "overlap"),
		}
		// A time of the day within an hour of the change, by the clock before it.
		wall := c.At.Add(time.Duration(c.Before)*time.Second + time.Duration(rapid.IntRange(-150, 150).Draw(rt, "minutes"))*time.Minute)
		spec := calendar.Spec{Timezone: name, Cron: calendar.StringList{fmt.Sprintf("%d %d * * *", wall.Minute(), wall.Hour())}, DST: dst}
		timing, err := calendar.Compile(spec, calendar.Context{Created: time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)})
		if err != nil {
			rt.Fatal(err)
		}
		notes := map[calendar.DSTNote]bool{}
		for tick := range timing.All(c.At.Add(-25 * time.Hour)) {
			if tick.At.After(c.At.Add(25 * time.Hour)) {
				break
			}
			if near := tick.At.Sub(c.At).Abs(); near <= 24*time.Hour {
				notes[tick.DST] = true
			}
		}
		effects := timing.ClockEffects().Of(c)
		if len(effects) > 1 {
			rt.Fatalf("one time of the day has the effects %v", effects)
		}
		var got calendar.ClockEffect
		if len(effects) > 0 {
			got = effects[0].Effect
		}
		want := map[calendar.ClockEffect][]calendar.DSTNote{
			calendar.EffectNextValid: {calendar.DSTGap}, calendar.EffectShifted: {calendar.DSTGap}, calendar.EffectOnceFirst: {calendar.DSTOverlapFirst},
			calendar.EffectOnceLast: {calendar.DSTOverlapSecond}, calendar.EffectTwice: {calendar.DSTOverlapFirst, calendar.DSTOverlapSecond},
		}[got]
		for _, note := range []calendar.DSTNote{calendar.DSTGap, calendar.DSTOverlapFirst, calendar.DSTOverlapSecond} {
			if notes[note] != slices.Contains(want, note) {
				rt.Errorf("%s at %s: the effect is %q, and the notes are %v", name, c.At, got, notes)
			}
		}
	})
}
