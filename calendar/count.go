package calendar

import (
	"math/bits"
	"time"
)

// counter is a set that can count its wall times without listing them.
type counter interface {
	count(from, to wall) int // in [from, to)
}

// Count returns the number of nominal times in [from, to). For one cron, calendar or interval without exclusions it is arithmetic; for
// other timings it lists the times. It returns 0 for fixed_delay.
func (t *Timing) Count(from, to time.Time) int {
	low, high := max(roundUp(from), t.start), min(roundUp(to), t.end+1)
	if low >= high {
		return 0
	}
	if len(t.sources) == 1 {
		switch s := t.sources[0].(type) {
		case *progression:
			return s.count(low, high) + t.moveCount(low, high)
		case *resolved:
			if c, ok := s.set.(counter); ok {
				return s.count(c, low, high) + t.moveCount(low, high)
			}
		}
	}
	return list(t.next, low, high)
}

// list counts the times in [from, to) by finding each of them.
func list(next func(int64) (int64, DSTNote, bool), from, to int64) int {
	for n := 0; ; n++ {
		at, _, ok := next(from)
		if !ok || at >= to {
			return n
		}
		from = at + 1
	}
}

// count counts the instants of each segment of the zone. It lists only the instants to which a gap can move wall times, because these
// may coincide with others.
func (r *resolved) count(set counter, from, to int64) int {
	z, n := r.zone, 0
	for i := z.find(from); i < len(z.starts) && z.starts[i] < to; i++ {
		begin, off := z.starts[i], z.offset(i)
		low, high := max(from, begin), min(to, z.end(i))
		if i > 0 && r.gap != gapSkip && off > z.offset(i-1) {
			if shadow := min(begin+off-z.offset(i-1), high); low < shadow {
				n += list(r.next, low, shadow)
				low = shadow
			}
		}
		if i > 0 && r.overlap == overlapFirst {
			low = max(low, begin+z.offset(i-1)-off)
		}
		if i+1 < len(z.starts) && r.overlap == overlapLast {
			high = min(high, z.end(i)+z.offset(i+1)-off)
		}
		if low < high {
			n += set.count(low+off, high+off)
		}
	}
	return n
}

func (p *progression) count(from, to int64) int {
	from, to = max(from, p.since), min(to, maxWall+1)
	if from >= to {
		return 0
	}
	return int(floorDiv(to-1-p.phase, p.every) - floorDiv(from-1-p.phase, p.every))
}

func (d *days) count(from, to wall) int {
	p := progression{every: d.every, phase: d.phase, since: d.since}
	return p.count(from, to)
}

func (s *fieldSet) count(from, to wall) int {
	from, to = max(from, minWall), min(to, maxWall+1)
	if from >= to || s.rule == noDay {
		return 0
	}
	first, low := splitWall(from)
	last, high := splitWall(to)
	n := s.countDays(first, last) * s.times()
	if s.onDay(first) {
		n -= s.countTimes(low)
	}
	if s.onDay(last) {
		n += s.countTimes(high)
	}
	return n
}

// countDays returns how many days in [from, to) match.
func (s *fieldSet) countDays(from, to int) int {
	n := 0
	for day := from; day < to; {
		y, m, d := civil(day)
		length := daysIn(y, m)
		end := min(d+to-day, length+1)
		n += bits.OnesCount32(s.monthDays(y, m) >> d << d & uint32(uint64(1)<<end-1))
		day += length - d + 1
	}
	return n
}

// countTimes returns how many times of a day before sec match.
func (s *fieldSet) countTimes(sec int) int {
	h, m := sec/3600, sec/60%60
	minutes, seconds := bits.OnesCount64(s.Minutes), bits.OnesCount64(s.Seconds)
	n := bits.OnesCount32(s.Hours&(1<<h-1)) * minutes * seconds
	if s.Hours>>h&1 == 0 {
		return n
	}
	n += bits.OnesCount64(s.Minutes&(1<<m-1)) * seconds
	if s.Minutes>>m&1 != 0 {
		n += bits.OnesCount64(s.Seconds & (1<<(sec%60) - 1))
	}
	return n
}

// MinGap returns the smallest distance between two successive ticks, ignoring changes of the clock. For one cron, calendar or interval
// it is computed, and never too large. For other timings it is the smallest distance among the thousand ticks after from. It returns 0
// if there are fewer than two ticks.
func (t *Timing) MinGap(from time.Time) time.Duration {
	if t.delay != nil {
		return time.Duration(t.delay.every) * time.Second
	}
	least := int64(0)
	if len(t.sources) == 1 {
		switch s := t.sources[0].(type) {
		case *progression:
			return time.Duration(s.every) * time.Second
		case *resolved:
			switch set := s.set.(type) {
			case *days:
				return time.Duration(set.every) * time.Second
			case *fieldSet:
				return time.Duration(set.minGap()) * time.Second
			}
		}
	}
	at, found := from.Unix(), false
	for range 1000 {
		next, note, ok := t.next(at + 1)
		if !ok {
			break
		}
		if gap := next - at; found && note != DSTGap && (least == 0 || gap < least) {
			least = gap
		}
		at, found = next, true
	}
	return time.Duration(least) * time.Second
}

// minGap returns the smallest distance between two times of day, including the last time of a day and the first of the next.
func (f *fields) minGap() int {
	least := daySeconds
	spread := 0 // from the first to the last value, summed over the units so far
	for _, u := range []struct {
		mask uint64
		unit int
	}{{f.Seconds, 1}, {f.Minutes, 60}, {uint64(f.Hours), 3600}} {
		low := bits.TrailingZeros64(u.mask)
		before := low
		for rest := u.mask & (u.mask - 1); rest != 0; rest &= rest - 1 {
			at := bits.TrailingZeros64(rest)
			least = min(least, (at-before)*u.unit-spread)
			before = at
		}
		spread += (before - low) * u.unit
	}
	return min(least, daySeconds-spread)
}
