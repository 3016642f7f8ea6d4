package calendar

import "time"

// progression is the set of the instants phase + n × every, for all integers n, from since on.
type progression struct {
	every, phase int64
	since        int64
}

func (p *progression) next(from int64) (int64, DSTNote, bool) {
	from = max(from, p.since)
	at := from + floorMod(p.phase-from, p.every)
	return at, DSTNone, at <= maxWall
}

func (p *progression) prev(until int64) (int64, DSTNote, bool) {
	until = min(until, maxWall)
	at := until - floorMod(until-p.phase, p.every)
	return at, DSTNone, at >= p.since
}

// days is the set of the wall times phase + n × every from since on. every is a multiple of a day.
type days struct {
	every, phase wall
	since        wall
}

func (d *days) next(w wall) (wall, bool) {
	w = max(w, d.since)
	w += floorMod(d.phase-w, d.every)
	return w, w <= maxWall
}

func (d *days) prev(w wall) (wall, bool) {
	w = min(w, maxWall)
	w -= floorMod(w-d.phase, d.every)
	return w, w >= d.since
}

// walls is a set of single wall times, in order.
type walls []wall

func (l walls) next(w wall) (wall, bool) {
	for _, one := range l {
		if one >= w {
			return one, true
		}
	}
	return 0, false
}

func (l walls) prev(w wall) (wall, bool) {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i] <= w {
			return l[i], true
		}
	}
	return 0, false
}

// moments is a set of single instants, in order.
type moments []int64

func (l moments) next(from int64) (int64, DSTNote, bool) {
	at, ok := walls(l).next(from)
	return at, DSTNone, ok
}

func (l moments) prev(until int64) (int64, DSTNote, bool) {
	at, ok := walls(l).prev(until)
	return at, DSTNone, ok
}

// delay is fixed_delay: each tick comes every seconds after the end of the previous one.
type delay struct {
	every int64
	civil bool // whole days on the zone's clock
}

func (d *delay) next(t *Timing, after time.Time) (Tick, bool) {
	from := roundUp(after)
	at, note := from+d.every, DSTNone
	if d.civil {
		w := t.zone.wall(from) + d.every
		r := resolved{set: walls{w}, zone: t.zone, gap: gapShiftForward, overlap: overlapFirst}
		at, note, _ = r.next(from + 1)
	}
	if at < t.start {
		at, note = t.start, DSTNone
	}
	return t.tick(at, note, at <= t.end && at <= maxWall)
}

// roundUp returns a time in Unix seconds, rounded up.
func roundUp(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// firstTick is where a schedule's own ticks begin. The timing does not contain it, because the members of a cohort share the timing.
type firstTick uint8

const (
	firstAfter      firstTick = iota // strictly after creation
	firstNow                         // at creation, rounded up to a second
	firstAnchorless                  // one interval after creation, rounded up to a second
)

// FirstAt returns the earliest possible nominal time of a schedule created at an instant. It depends on the spec, so it is valid only for
// a timing from Compile.
func (t *Timing) FirstAt(created time.Time) time.Time {
	at := created.Unix() + 1
	switch t.first {
	case firstNow:
		at = roundUp(created)
	case firstAnchorless:
		at = roundUp(created) + 1
	}
	return time.Unix(max(at, t.start), 0).UTC()
}

// First returns the first tick of a schedule created at an instant, or false. It is valid only for a timing from Compile.
func (t *Timing) First(created time.Time) (Tick, bool) {
	if t.delay == nil {
		return t.Next(t.FirstAt(created).Add(-time.Second))
	}
	at := roundUp(created)
	switch {
	case t.plan.Start != nil && at <= t.start:
		return t.tick(t.start, DSTNone, t.start <= t.end)
	case t.first == firstNow:
		return t.tick(at, DSTNone, at <= t.end)
	}
	return t.delay.next(t, created)
}

// FixedDelay returns the interval of a fixed_delay spec, which has no other member. Next then returns after + every. FixedDelay returns a
// day as 24 hours, but Next counts days on the zone's clock.
func (t *Timing) FixedDelay() (every time.Duration, ok bool) {
	if t.delay == nil {
		return 0, false
	}
	return time.Duration(t.delay.every) * time.Second, true
}
