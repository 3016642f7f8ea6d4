package runs

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"

	"github.com/carillonhq/carillon/calendar"
)

// Walk is the order in which a run with jitter comes to the members of a cohort. Each member has a place on a circle,
// its phase; each run begins at another point of it, and goes round once while the jitter lasts, or until the next
// nominal time where that is sooner. The walk follows from the timing, the nominal time and the workflow alone: it is
// the same on every process and after a restart.
type Walk struct {
	at    time.Time // when it begins: the nominal time, or the end of the quiet hours that it waits for
	gap   time.Duration
	start uint64 // where on the circle it begins
}

// WalkOf is the walk of a run; ok is false where its timing has no jitter.
func WalkOf(t *calendar.Timing, r Run, workflow string) (w Walk, ok bool) {
	gap := r.gap(t)
	if gap <= 0 {
		return w, false
	}
	h := fnv.New64a()
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(r.At.Unix()))
	_, _ = h.Write(at[:])
	_, _ = h.Write([]byte(workflow))
	return Walk{at: t.Due(r.At), gap: gap, start: mix(h.Sum64())}, true
}

// gap returns how long the walk of a run lasts. It is not positive if there is no jitter, or if the quiet hours end at the next nominal
// time.
func (r Run) gap(t *calendar.Timing) time.Duration {
	gap := t.Jitter()
	if gap > 0 && !r.Next.IsZero() {
		gap = min(gap, r.Next.Sub(t.Due(r.At)))
	}
	return gap
}

// circle is the place of a phase on the circle: phases are signed, and lie in the index in that order.
func circle(phase int64) uint64 { return uint64(phase) ^ 1<<63 }

func phaseAt(place uint64) int64 { return int64(place ^ 1<<63) }

// distance is how far into the walk a member comes, of a whole round.
func (w Walk) distance(phase int64) uint64 { return circle(phase) - w.start }

// Due is when the walk comes to a member: at its nominal time or later, and always before the next one.
func (w Walk) Due(phase int64) time.Time {
	part := float64(w.distance(phase)) / math.Exp2(64)
	return w.at.Add(min(time.Duration(part*float64(w.gap)), w.gap-time.Microsecond)).Truncate(time.Microsecond)
}

// Passed tells whether a cursor has passed a member.
func (w Walk) Passed(cursor, cursorID, phase, id int64) bool {
	c, m := w.distance(cursor), w.distance(phase)
	return m < c || m == c && id <= cursorID
}

// Leg is a part of a walk in which phases rise: the members after a cursor, up to a phase.
type Leg struct {
	After   int64 // with AfterID, the cursor
	AfterID int64
	Upto    int64
	Last    bool // the walk goes no further for now; where it is false another leg follows at once
}

// Leg is what of the walk lies after a cursor (nil: its beginning) and is due at now.
func (w Walk) Leg(cursor, cursorID *int64, now time.Time) Leg {
	reach := uint64(math.MaxUint64)
	if gone := now.Sub(w.at); gone < w.gap {
		reach = uint64(float64(max(0, gone)) / float64(w.gap) * math.Exp2(64))
	}
	first := phaseAt(w.start)
	leg := Leg{After: first, AfterID: -1}
	if cursor != nil {
		leg.After, leg.AfterID = *cursor, *cursorID
	}
	// Distances from -start on lie past the end of the circle: there the walk goes on at its lowest phase.
	wraps := -w.start
	if w.start != 0 && w.distance(leg.After) < wraps && reach >= wraps {
		leg.Upto = math.MaxInt64
		return leg
	}
	leg.Upto, leg.Last = phaseAt(w.start+reach), true
	if w.distance(leg.After) > reach {
		leg.Upto = leg.After // the clock went back
	}
	return leg
}

// Rest is where the walk goes on after a leg that was its last for now: up to two ranges of phases, both ends
// included, in the order in which it comes to them.
func (w Walk) Rest(leg Leg) (ranges [][2]int64) {
	end := phaseAt(w.start - 1) // the last place of the walk
	reached := leg.Upto
	if reached == end {
		return nil
	}
	next := phaseAt(circle(reached) + 1)
	if w.start == 0 || w.distance(next) >= -w.start { // past the end of the circle already, or never
		return [][2]int64{{next, end}}
	}
	return [][2]int64{{next, math.MaxInt64}, {math.MinInt64, end}}
}

// Lowest is the cursor from which the leg after the end of the circle begins.
const Lowest = math.MinInt64

// PhaseOf is where a schedule stands among the members of a cohort with jitter: a hash of who it is.
func PhaseOf(identity string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(identity))
	return int64(mix(h.Sum64()))
}

// mix ends a hash as splitmix64 does: FNV leaves neighbours close together.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
