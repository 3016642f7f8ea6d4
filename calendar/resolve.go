package calendar

// Resolving finds the instants that show a wall time. Mostly there is one. In an overlap there are two, and the overlap policy chooses.
// In a gap there is none, and the gap policy chooses. The ticks are the union over all nominal wall times. next and prev search it
// segment by segment of the zone, so the result never depends on earlier ticks, and next(t) > t always holds.

// DSTNote describes how a tick's wall time was resolved.
type DSTNote uint8

// The notes of a tick.
const (
	DSTNone          DSTNote = iota // one instant shows the wall time
	DSTGap                          // no instant shows it: dst.gap moved it
	DSTOverlapFirst                 // the first of two instants
	DSTOverlapSecond                // the second of two instants
)

// String returns the note as the API writes it.
func (n DSTNote) String() string {
	return [...]string{"none", "gap", "overlap_first", "overlap_second"}[n]
}

// MarshalText returns the note as the API writes it.
func (n DSTNote) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

type gapPolicy uint8

const (
	gapSkip gapPolicy = iota
	gapNextValid
	gapShiftForward
)

type overlapPolicy uint8

const (
	overlapFirst overlapPolicy = iota
	overlapLast
	overlapBoth
)

// source is a set of instants, in Unix seconds.
type source interface {
	next(from int64) (int64, DSTNote, bool)  // the first at or after from
	prev(until int64) (int64, DSTNote, bool) // the last at or before until
}

// resolved is the set of the instants of wall times in a zone.
type resolved struct {
	set     wallSet
	zone    *zone
	gap     gapPolicy
	overlap overlapPolicy
}

func (r *resolved) next(from int64) (int64, DSTNote, bool) {
	z := r.zone
	i := z.find(from)
	var w wall // the first wall time of the set at or after asked
	var ok bool
	asked := wall(1 << 62)
	for {
		begin, end, off := z.starts[i], z.end(i), z.offset(i)
		low := max(from, begin) + off
		shown := wall(-1 << 62) // the previous segment shows the wall times before this one
		if i > 0 {
			shown = begin + z.offset(i-1)
			if r.overlap == overlapFirst && low < shown {
				low = shown
			}
		}
		again := wall(1 << 62) // the next segment shows the wall times from this one on again
		if i+1 < len(z.starts) {
			again = end + z.offset(i+1)
		}
		var at int64
		note, found := DSTNone, false
		if gap := begin + off - shown; r.gap != gapSkip && i > 0 && gap > 0 && from < begin+gap && (r.gap == gapShiftForward || from <= begin) {
			first := shown + max(0, from-begin)
			if first < asked || first > w {
				w, ok = r.set.next(first)
				asked = first
			}
			if ok && w < begin+off {
				at, note, found = begin, DSTGap, true
				if r.gap == gapShiftForward {
					at += w - shown
				}
			}
		}
		if low < asked || low > w {
			w, ok = r.set.next(low)
			asked = low
		}
		if native := w - off; ok && w < end+off && !(r.overlap == overlapLast && w >= again) && (!found || native <= at) {
			at, note, found = native, DSTNone, true
			if w >= again {
				note = DSTOverlapFirst
			} else if w < shown {
				note = DSTOverlapSecond
			}
		}
		if found {
			return at, note, true
		}
		var more bool
		if i, more = r.following(i, w, ok); !more {
			return 0, 0, false
		}
	}
}

// following returns the segment to search after segment i, which has no tick. If ok, w is the first wall time of the set that segment i
// did not return.
func (r *resolved) following(i int, w wall, ok bool) (segment int, more bool) {
	z := r.zone
	if i+1 >= len(z.starts) {
		return 0, false
	}
	if z.offset(i+1) < z.offset(i) && r.overlap != overlapFirst {
		return i + 1, true // it shows wall times before w again
	}
	if !ok {
		return 0, false
	}
	return max(i+1, z.find(w-int64(z.max))), true
}

func (r *resolved) prev(until int64) (int64, DSTNote, bool) {
	z := r.zone
	i := z.find(until)
	var w wall // the last wall time of the set at or before asked
	var ok bool
	asked := wall(-1 << 62)
	for {
		begin, end, off := z.starts[i], z.end(i), z.offset(i)
		high := min(until, end-1) + off
		again := wall(1 << 62)
		if i+1 < len(z.starts) {
			again = end + z.offset(i+1)
			if r.overlap == overlapLast && high >= again {
				high = again - 1
			}
		}
		shown := wall(-1 << 62)
		if i > 0 {
			shown = begin + z.offset(i-1)
		}
		if high > asked || high < w {
			w, ok = r.set.prev(high)
			asked = high
		}
		var at int64
		note, found := DSTNone, false
		if ok && w >= begin+off && !(r.overlap == overlapFirst && w < shown) {
			at, found = w-off, true
			if w >= again {
				note = DSTOverlapFirst
			} else if w < shown {
				note = DSTOverlapSecond
			}
		}
		if r.gap != gapSkip && i > 0 && begin+off > shown && ok && w >= shown {
			if g, ok := r.prevGap(until, begin, shown, begin+off); ok && (!found || g > at) {
				return g, DSTGap, true
			}
		}
		if found {
			return at, note, true
		}
		var more bool
		if i, more = r.preceding(i, w, ok); !more {
			return 0, 0, false
		}
	}
}

// preceding returns the segment to search before segment i, which has no tick. If ok, w is the last wall time of the set that segment i
// did not return.
func (r *resolved) preceding(i int, w wall, ok bool) (segment int, more bool) {
	z := r.zone
	if i == 0 {
		return 0, false
	}
	if z.offset(i-1) > z.offset(i) && r.overlap != overlapLast {
		return i - 1, true // it shows wall times after w for the first time
	}
	if !ok {
		return 0, false
	}
	return min(i-1, z.find(w-int64(z.min))), true
}

// prevGap returns the last instant at or before until to which the gap policy moves a wall time. The gap is at the instant begin, and
// skips the wall times [low, high).
func (r *resolved) prevGap(until, begin int64, low, high wall) (int64, bool) {
	if until < begin {
		return 0, false
	}
	last := high - 1
	if r.gap == gapShiftForward {
		last = min(last, low+until-begin)
	}
	w, ok := r.set.prev(last)
	if !ok || w < low {
		return 0, false
	}
	if r.gap == gapNextValid {
		return begin, true
	}
	return begin + (w - low), true
}
