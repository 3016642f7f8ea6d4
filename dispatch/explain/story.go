package explain

import (
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// story is a schedule over time.
type story struct {
	versions []version // oldest first, each in force until the next
	created  time.Time
	whole    bool // the versions reach back to its creation
	moves    []cohorts.Moved

	status  string      // at present, as are those that follow
	skips   []time.Time // that a client asked for
	seen    *time.Time  // the last nominal time that was recorded
	from    *time.Time  // the first that counts, of a member
	until   *time.Time  // the last that counts
	stopped bool        // the tenant's firing
}

// version is what one version of a schedule says of nominal times after from and up to to.
type version struct {
	from, to    time.Time // to is zero for the present one
	paused      bool
	pausedUntil *time.Time
	timing      *calendar.Timing // nil: it cannot be computed
}

func (v *version) pausedAt(at time.Time) bool {
	return v.paused && (v.pausedUntil == nil || at.Before(*v.pausedUntil))
}

func (v *version) names(at time.Time) bool {
	tick, ok := v.timing.Next(at.Add(-time.Second))
	return ok && tick.At.Equal(at)
}

// version is the one by which a nominal time is decided; nil before the first.
func (s *story) version(at time.Time) *version {
	for i := len(s.versions) - 1; i >= 0; i-- {
		if v := &s.versions[i]; at.After(v.from) {
			return v
		}
	}
	return nil
}

// next is the first nominal time after a moment at which a tick came or is to come.
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

// previous is the last nominal time before a moment at which a tick came or is to come.
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

// goesOn tells whether a coming time is within what the schedule has left.
func (s *story) goesOn(at time.Time) bool {
	return s.live() && (s.until == nil || !at.After(*s.until))
}

// live tells whether the schedule has ticks to come.
func (s *story) live() bool {
	return s.status != schedules.Completed && s.status != schedules.Quarantined && s.from != nil
}

func (s *story) skipped(at time.Time) bool { return slices.ContainsFunc(s.skips, at.Equal) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
