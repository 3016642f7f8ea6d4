package main

import (
	"slices"
	"time"
	_ "time/tzdata" // a machine without zones is no reason to know nothing of them
)

// The oracle knows nothing of carillon's calendar. It walks real time minute by minute, reads the clock on the wall at
// each, and asks whether the rule names that minute. Two rulings are added where the rule names a fixed time of day: a
// minute that the wall shows twice counts the first time, and one that it never shows is read with the offset before
// the gap. A rule that fires every hour takes the walls as they come.

// rule says which minutes of the wall clock a cron names.
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
	// A day beyond the last one, since a minute in a gap is noted where the gap ends, and fires after it.
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

// wall is what the clock on the wall shows at t, written as if it were UTC.
func wall(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}
