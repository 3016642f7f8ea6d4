package chaos

import (
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the machine may have no zones
)

// timing is a spec in the checker's own form: for any second it can decide whether the spec names it. It shares no code with the product's
// calendar, and has only kinds that need a few lines. It uses only Location.Zone, because time.Date has its own rules for overlaps and gaps.
type timing struct {
	kind    kind
	zone    *time.Location
	every   int64     // seconds: aligned, anchored; minutes: minutely, ruled
	offset  int64     // seconds: aligned
	anchor  time.Time // anchored, ruled
	seconds []int     // of the minute: secondly, ruled
	hour    int       // daily
	minute  int       // daily
	at      []time.Time
	start   time.Time // inclusive; zero: none
	end     time.Time // inclusive; zero: none
	most    int       // max_ticks; 0: none
	out     exclusion
}

// exclusion is the excluded part of a spec.
type exclusion struct {
	dates   string // whole local days, each with a space after it
	below   int    // the seconds of each minute below this one; 0: none
	named   bool   // it excludes the days of the tenant's calendar
	holiday string // the days of the calendar, as dates
}

// names reports whether it excludes a moment with this wall time.
func (e *exclusion) names(wall time.Time) bool {
	if wall.Second() < e.below {
		return true
	}
	if e.dates == "" && e.holiday == "" {
		return false
	}
	day := wall.Format(time.DateOnly) + " "
	return strings.Contains(e.dates, day) || e.named && strings.Contains(e.holiday, day)
}

// kind is a way to name times.
type kind string

const (
	aligned  kind = "aligned"  // an interval from the epoch on
	anchored kind = "anchored" // an interval from start_at on
	secondly kind = "secondly" // a cron with seconds: those of every minute
	minutely kind = "minutely" // a cron: every so many minutes of the local hour
	daily    kind = "daily"    // a cron: once a day, at a wall time
	ruled    kind = "ruled"    // an RRULE by the minute, with seconds
	once     kind = "once"     // moments
	delayed  kind = "delayed"  // an interval after the end of the tick before: checked by its ticks alone
)

// names reports whether the timing names a moment within its bounds, without regard to max_ticks.
func (t *timing) names(at time.Time) bool {
	if at.Nanosecond() != 0 || !t.start.IsZero() && at.Before(t.start) || !t.end.IsZero() && at.After(t.end) {
		return false
	}
	return t.marks(at) && !t.out.names(t.wall(at))
}

// marks is like names, but ignores exclusions.
func (t *timing) marks(at time.Time) bool {
	switch t.kind {
	case delayed:
		return true
	case aligned:
		return modulo(at.Unix()-t.offset, t.every) == 0
	case anchored:
		return !at.Before(t.anchor) && modulo(at.Unix()-t.anchor.Unix(), t.every) == 0
	case secondly:
		return slices.Contains(t.seconds, t.wall(at).Second())
	case minutely:
		w := t.wall(at)
		return w.Second() == 0 && int64(w.Minute())%t.every == 0
	case daily:
		return t.namesDaily(at)
	case ruled:
		w, from := t.wall(at), t.wall(t.anchor)
		minutes := w.Truncate(time.Minute).Sub(from.Truncate(time.Minute)) / time.Minute
		return !at.Before(t.anchor) && int64(minutes)%t.every == 0 && slices.Contains(t.seconds, w.Second())
	case once:
		return slices.ContainsFunc(t.at, at.Equal)
	}
	return false
}

// namesDaily reports whether a daily timing names a moment. A wall time that is shown twice counts the first time; a skipped one is read with
// the offset before the gap.
func (t *timing) namesDaily(at time.Time) bool {
	if at.Second() != 0 {
		return false
	}
	for _, days := range []time.Duration{-1, 0, 1} {
		d := t.wall(at).Truncate(24 * time.Hour).Add(days * 24 * time.Hour)
		if t.onDay(d).Equal(at) {
			return true
		}
	}
	return false
}

// onDay returns the instant of the daily time on a local day.
func (t *timing) onDay(day time.Time) time.Time {
	w := day.Add(time.Duration(t.hour)*time.Hour + time.Duration(t.minute)*time.Minute)
	before, after := t.shift(w.Add(-26*time.Hour)), t.shift(w.Add(26*time.Hour))
	early, late := w.Add(-before), w.Add(-after)
	if late.Before(early) {
		early, late = late, early
	}
	for _, candidate := range []time.Time{early, late} {
		if t.wall(candidate).Equal(w) {
			return candidate
		}
	}
	return w.Add(-before)
}

// shift returns the offset of the zone from UTC at a moment.
func (t *timing) shift(at time.Time) time.Duration {
	_, offset := at.In(t.zone).Zone()
	return time.Duration(offset) * time.Second
}

// wall returns the wall time of the zone, as if it were UTC.
func (t *timing) wall(at time.Time) time.Time { return at.UTC().Add(t.shift(at)) }

// next returns the first n named moments after one, none later than the limit, without regard to max_ticks.
func (t *timing) next(after time.Time, n int, limit time.Time) (all []time.Time) {
	for at := after.UTC().Truncate(time.Second).Add(time.Second); len(all) < n && !at.After(limit); at = at.Add(t.stride(at)) {
		if t.names(at) {
			all = append(all, at)
		}
	}
	return all
}

// stride returns the time from a moment to the next one that the timing could name: to the next second, or to the next whole minute.
func (t *timing) stride(at time.Time) time.Duration {
	if t.kind == minutely || t.kind == daily {
		return at.Truncate(time.Minute).Add(time.Minute).Sub(at)
	}
	return time.Second
}

// between returns the named moments after one and up to another.
func (t *timing) between(after, upto time.Time) []time.Time { return t.next(after, 1<<30, upto) }

// same reports whether two timings are equal, so that a change from one to the other retimes nothing.
func (t *timing) same(o *timing) bool {
	return t.kind == o.kind && t.zone.String() == o.zone.String() && t.every == o.every && t.offset == o.offset && t.anchor.Equal(o.anchor) &&
		slices.Equal(t.seconds, o.seconds) && t.hour == o.hour && t.minute == o.minute && slices.EqualFunc(t.at, o.at, time.Time.Equal) &&
		t.start.Equal(o.start) && t.end.Equal(o.end) && t.most == o.most && t.out == o.out
}

func modulo(a, b int64) int64 { return (a%b + b) % b }
