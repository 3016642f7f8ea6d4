package calendar

import "math/bits"

func lowBit(mask uint64) int  { return bits.TrailingZeros64(mask) }
func highBit(mask uint64) int { return bits.Len64(mask) - 1 }

// filtered is a set of wall times without blocked days and excluded times. A search alternates between the set and the remaining times:
// each continues at the other's result, until both agree.
type filtered struct {
	set     wallSet
	times   *fields // a superset of the set's times of day
	blocked *dates
	out     *exclusions
}

func (f *filtered) next(w wall) (wall, bool) {
	for {
		at, ok := f.set.next(w)
		if !ok {
			return 0, false
		}
		if w, ok = left(f.times, f.blocked, f.out, at); !ok || w == at {
			return at, ok
		}
	}
}

func (f *filtered) prev(w wall) (wall, bool) {
	for {
		at, ok := f.set.prev(w)
		if !ok {
			return 0, false
		}
		if w, ok = leftBefore(f.times, f.blocked, f.out, at); !ok || w == at {
			return at, ok
		}
	}
}

// left returns the first wall time at or after w that is not excluded. On a day with timed exclusions its time of day is in times.
func left(times *fields, blocked *dates, out *exclusions, w wall) (wall, bool) {
	var buf [maxTimed]*timed
	day, sec := splitWall(w)
	for {
		free, ok := blocked.free(day, maxDay)
		if !ok {
			return 0, false
		}
		if free > day {
			day, sec = free, 0
		}
		active := out.on(day, buf[:0])
		if len(active) == 0 {
			return wall(day)*daySeconds + wall(sec), true
		}
		if t, ok, _ := leftTime(times, active, sec); ok {
			return wall(day)*daySeconds + wall(t), true
		}
		day, sec = day+1, 0
	}
}

// leftBefore is left backwards: it returns the last such wall time at or before w.
func leftBefore(times *fields, blocked *dates, out *exclusions, w wall) (wall, bool) {
	var buf [maxTimed]*timed
	day, sec := splitWall(w)
	for {
		free, ok := blocked.freeBefore(day, maxDay)
		if !ok {
			return 0, false
		}
		if free < day {
			day, sec = free, daySeconds-1
		}
		active := out.on(day, buf[:0])
		if len(active) == 0 {
			return wall(day)*daySeconds + wall(sec), true
		}
		if t, ok := leftTimeBefore(times, active, sec); ok {
			return wall(day)*daySeconds + wall(t), true
		}
		day, sec = day-1, daySeconds-1
	}
}

// filteredInstants is a set of instants without those that the zone's clock shows as an excluded wall time.
type filteredInstants struct {
	set     source
	zone    *zone
	times   *fields
	blocked *dates
	out     *exclusions
}

func (f *filteredInstants) next(from int64) (int64, DSTNote, bool) {
	for {
		at, note, ok := f.set.next(from)
		if !ok {
			return 0, note, false
		}
		i := f.zone.find(at)
		w := at + f.zone.offset(i)
		free, ok := left(f.times, f.blocked, f.out, w)
		if ok && free == w {
			return at, note, true
		}
		from = f.zone.end(i)
		if ok {
			from = min(from, at+free-w)
		}
		if from > maxWall {
			return 0, note, false
		}
	}
}

func (f *filteredInstants) prev(until int64) (int64, DSTNote, bool) {
	for {
		at, note, ok := f.set.prev(until)
		if !ok {
			return 0, note, false
		}
		i := f.zone.find(at)
		w := at + f.zone.offset(i)
		free, ok := leftBefore(f.times, f.blocked, f.out, w)
		if ok && free == w {
			return at, note, true
		}
		until = f.zone.starts[i] - 1
		if ok {
			until = max(until, at-(w-free))
		}
		if until < 0 {
			return 0, note, false
		}
	}
}
