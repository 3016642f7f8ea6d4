package explain

import (
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// story is a schedule over time: its versions, and its state now.
type story struct {
	versions []version // oldest first, each in force until the next
	created  time.Time
	whole    bool // the versions reach back to its creation
	moves    []cohorts.Moved

	// The state now:
	status  string
	skips   []time.Time // nominal times that a client skips
	seen    *time.Time  // the last nominal time that was recorded
	from    *time.Time  // since when the schedule is a member of its cohort; nil: it is not one
	until   *time.Time  // the last nominal time; nil: there is no limit
	stopped bool        // the tenant is halted or suspended
	held    bool        // the workflow is held
}

// version is one version of a schedule. It decides about the nominal times after from, up to and including to.
type version struct {
	from, to    time.Time // to is zero in the present version
	paused      bool
	pausedUntil *time.Time
	timing      *calendar.Timing // nil: it cannot be computed
}

// pausedAt reports whether the schedule is paused at a time.
func (v *version) pausedAt(at time.Time) bool {
	return v.paused && (v.pausedUntil == nil || at.Before(*v.pausedUntil))
}

// names reports whether a time is a nominal time of the version.
func (v *version) names(at time.Time) bool {
	tick, ok := v.timing.Next(at.Add(-time.Second))
	return ok && tick.At.Equal(at)
}

// version returns the version that decides about a nominal time; nil before the first one.
func (s *story) version(at time.Time) *version {
	for i := len(s.versions) - 1; i >= 0; i-- {
		if v := &s.versions[i]; at.After(v.from) {
			return v
		}
	}
	return nil
}

// next returns the first nominal time after a moment at which a tick came or will come; nil if there is none.
func (s *story) next(after, now time.Time) *time.Time {
	for i := range s.versions {
		v := &s.versions[i]
		present := v.to.IsZero()
		if !present && !v.to.After(after) || v.timing == nil || v.paused && v.pausedUntil == nil {
			continue
		}
		start := latest(after, v.from)
		if v.paused {
			start = latest(start, v.pausedUntil.Add(-time.Second))
		}
		if present && s.from != nil && start.After(now) {
			start = latest(start, s.from.Add(-time.Second))
		}
		for tick := range v.timing.All(start) {
			if !present && tick.At.After(v.to) || present && tick.At.After(now) && !s.goesOn(tick.At) {
				break
			}
			if tick.At.After(now) && s.skipped(tick.At) {
				continue
			}
			return &tick.At
		}
	}
	return nil
}

// previous returns the last nominal time before a moment at which a tick came or will come; nil if there is none.
func (s *story) previous(before, now time.Time) *time.Time {
	for i := len(s.versions) - 1; i >= 0; i-- {
		v := &s.versions[i]
		present := v.to.IsZero()
		if !v.from.Before(before) || v.timing == nil || v.paused && v.pausedUntil == nil {
			continue
		}
		end := before
		if !present && v.to.Before(end) {
			end = v.to.Add(time.Second)
		}
		if present && s.until != nil && s.until.Before(end) {
			end = s.until.Add(time.Second)
		}
		if present && !s.live() && now.Before(end) {
			end = now.Add(time.Second)
		}
		for {
			tick, ok := v.timing.Prev(end)
			if !ok || !tick.At.After(v.from) || v.pausedAt(tick.At) {
				break
			}
			if tick.At.After(now) && (s.skipped(tick.At) || !s.goesOn(tick.At)) { // seldom, as end is not far beyond
				end = tick.At
				continue
			}
			return &tick.At
		}
	}
	return nil
}

// goesOn reports whether the schedule still has ticks at a coming time.
func (s *story) goesOn(at time.Time) bool {
	return s.live() && (s.until == nil || !at.After(*s.until))
}

// live reports whether the schedule has ticks to come.
func (s *story) live() bool {
	return s.status != policy.Completed && s.status != policy.Quarantined && s.from != nil
}

// skipped reports whether a client skips a nominal time.
func (s *story) skipped(at time.Time) bool { return slices.ContainsFunc(s.skips, at.Equal) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
