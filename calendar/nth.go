package calendar

import "time"

// Nth returns the n-th nominal time at or after an instant; 1 is the first. It returns the last one if there are fewer, and false if
// there is none. If Count is arithmetic, Nth uses bisection; otherwise it lists the times.
func (t *Timing) Nth(from time.Time, n int) (Tick, bool) {
	tick, ok := t.Next(from.Add(-time.Nanosecond).Truncate(time.Second))
	if !ok || n <= 1 {
		return tick, ok
	}
	if !t.counts() {
		for range n - 1 {
			next, ok := t.Next(tick.At)
			if !ok {
				break
			}
			tick = next
		}
		return tick, true
	}
	first := tick.At
	step := 24 * time.Hour
	for t.Count(first, first.Add(step)) < n {
		if first.Add(step).Unix() > maxWall {
			return t.Prev(time.Unix(maxWall+1, 0))
		}
		step *= 2
	}
	low, high := time.Duration(0), step // the count up to first+low is less than n; up to first+high it is not
	for high-low > time.Second {
		mid := ((low + high) / 2).Truncate(time.Second)
		if t.Count(first, first.Add(mid)) < n {
			low = mid
		} else {
			high = mid
		}
	}
	return t.Prev(first.Add(high))
}

// counts reports whether Count is arithmetic.
func (t *Timing) counts() bool {
	if len(t.sources) != 1 {
		return false
	}
	switch s := t.sources[0].(type) {
	case *progression:
		return true
	case *resolved:
		_, ok := s.set.(counter)
		return ok
	}
	return false
}
