package cohorts

import (
	"time"
	"weak"

	"github.com/carillonhq/carillon/calendar"
)

// Weekly returns how many ticks a timing has in seven days from the beginning of now's day in UTC. For a timing that fires more than once
// a minute it multiplies the ticks of the first day by seven.
func (ts *Timings) Weekly(t *calendar.Timing, now time.Time) int {
	day := now.Unix() / secondsPerDay
	if known, ok := ts.weeks.Get(weak.Make(t)); ok && known.day == day {
		return known.ticks
	}
	from := time.Unix(day*secondsPerDay, 0).UTC()
	const week = 7 * 24 * time.Hour
	ticks := 0
	if every, ok := t.FixedDelay(); ok {
		ticks = int(week / every)
	} else if gap := t.MinGap(from); gap == 0 || gap >= time.Minute {
		ticks = t.Count(from, from.Add(week))
	} else {
		ticks = 7 * t.Count(from, from.Add(week/7)) // Count may list the ticks, and a week has too many of them
	}
	ts.weeks.Add(weak.Make(t), week7{day, ticks})
	return ticks
}

// week7 is how many ticks a timing has in the week that begins with a day.
type week7 struct {
	day   int64
	ticks int
}
