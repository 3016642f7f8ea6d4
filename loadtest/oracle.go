package main

import (
	"slices"
	"time"
	_ "time/tzdata" // the machine may have no zones
)

// The oracle does not use carillon's calendar. It walks through time minute by minute, reads the wall time of each minute, and checks
// whether the rule names it. For a rule at a fixed time of day, a wall time that is shown twice counts the first time, and a skipped one is
// read with the offset before the gap. A rule that fires every hour fires at each named wall time.

// rule is a cron, as a function that reports whether it names a wall minute.
type rule struct {
	cron      string
	named     func(wall time.Time) bool
	everyHour bool
}

// next returns the first n instants strictly after the given one that the rule names in the zone.
func (r rule) next(zone *time.Location, after time.Time, n int) []time.Time {
	from := after.Truncate(time.Minute).Add(-24 * time.Hour)
	latest := wall(from.Add(-time.Minute), zone)
	var found []time.Time
	note := func(t time.Time) {
		if t.After(after) && !slices.ContainsFunc(found, t.Equal) {
			found = append(found, t)
		}
	}
	// The search goes on for a day after it has found n instants. A skipped minute is noted when its gap ends, with the later instant at
	// which it fires, so the next minutes can still add earlier instants.
	var enough time.Time
	for t := from; enough.IsZero() || t.Before(enough); t = t.Add(time.Minute) {
		w := wall(t, zone)
		if r.everyHour {
			if r.named(w) {
				note(t)
			}
		} else {
			for skipped := latest.Add(time.Minute); skipped.Before(w); skipped = skipped.Add(time.Minute) {
				if r.named(skipped) {
					note(t.Add(skipped.Sub(latest) - time.Minute))
				}
			}
			if w.After(latest) && r.named(w) {
				note(t)
			}
		}
		if w.After(latest) {
			latest = w
		}
		if len(found) >= n && enough.IsZero() {
			enough = t.Add(24 * time.Hour)
		}
	}
	slices.SortFunc(found, time.Time.Compare)
	return found[:n]
}

// wall returns the wall time at t, as if it were UTC.
func wall(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}
