package runs

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"

	"github.com/carillonhq/carillon/calendar"
)

// Walk is the order in which a run with jitter reaches the members of a cohort. Each member has a phase,
// which is its place on a circle. Each run begins at another point of the circle and goes round once. The
// round takes as long as the jitter, or until the next nominal time if that is sooner. Only the timing, the
// nominal time and the workflow determine the walk, so it is the same in every process and after a restart.
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

// circle returns the place of a phase on the circle. Phases are signed, and the index has them in the same order.
func circle(phase int64) uint64 { return uint64(phase) ^ 1<<63 }

func phaseAt(place uint64) int64 { return int64(place ^ 1<<63) }

// distance returns how far a member is from the beginning of the walk. A whole round is 2^64.
func (w Walk) distance(phase int64) uint64 { return circle(phase) - w.start }

// Due returns when the walk reaches a member: at its nominal time or later, and always before the next one.
func (w Walk) Due(phase int64) time.Time {
	part := float64(w.distance(phase)) / math.Exp2(64)
	return w.at.Add(min(time.Duration(part*float64(w.gap)), w.gap-time.Microsecond)).Truncate(time.Microsecond)
}

// Passed reports whether a cursor has passed a member.
func (w Walk) Passed(cursor, cursorID, phase, id int64) bool {
	c, m := w.distance(cursor), w.distance(phase)
	return m < c || m == c && id <= cursorID
}

// Leg is a part of a walk in which phases rise: the members after a cursor, up to a phase.
type Leg struct {
	After   int64 // with AfterID, the cursor
	AfterID int64
	Upto    int64
	Last    bool // the walk goes no further for now; false: another leg follows at once
}

// Leg returns the part of the walk after a cursor (nil: from the beginning) that is due at now.
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
	// A distance of -start or more is past the end of the circle. There the walk continues at the lowest phase.
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

// Rest returns what is left of the walk after a leg that was its last for now:
// up to two ranges of phases, both ends included, in the order of the walk.
func (w Walk) Rest(leg Leg) (ranges [][2]int64) {
	end := phaseAt(w.start - 1) // the last place of the walk
	reached := leg.Upto
	if reached == end {
		return nil
	}
	next := phaseAt(circle(reached) + 1)
	if w.start == 0 || w.distance(next) >= -w.start { // the walk has passed the end of the circle, or never does
		return [][2]int64{{next, end}}
	}
	return [][2]int64{{next, math.MaxInt64}, {math.MinInt64, end}}
}

// Lowest is the cursor from which the leg after the end of the circle begins.
const Lowest = math.MinInt64

// PhaseOf returns the phase of a schedule in a cohort with jitter: a hash of its identity.
func PhaseOf(identity string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(identity))
	return int64(mix(h.Sum64()))
}

// mix is the last step of splitmix64. It spreads hashes of similar texts, which FNV leaves close together.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
