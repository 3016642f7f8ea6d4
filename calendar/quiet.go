package calendar

import "time"

// Quiet is the quiet hours of a key, on each day: the times of day from From until before To, in seconds, on the clock of the key's zone.
// If To is less than From, the hours include midnight. If both are equal, there are no quiet hours.
//
// An instant is quiet if the clock shows a quiet time. If the hours begin or end in a gap of the clock, they begin or end at the end of
// the gap. An hour that the clock shows twice is quiet twice.
type Quiet struct {
	From int  `json:"from"`
	To   int  `json:"to"`
	Skip bool `json:"skip,omitempty"` // ticks in the hours are dropped; otherwise the last of them waits for the end of the hours
}

func (q Quiet) none() bool { return q.From == q.To }

// has reports whether a time of day is quiet.
func (q Quiet) has(sec int) bool {
	if q.From < q.To {
		return q.From <= sec && sec < q.To
	}
	return sec >= q.From || sec < q.To
}

// QuietHours returns the quiet hours around an instant: from begin until before end. ok is false if the instant is not quiet.
func (t *Timing) QuietHours(at time.Time) (begin, end time.Time, ok bool) {
	if t.plan.Quiet == nil || !t.zone.quiet(*t.plan.Quiet, at.Unix()) {
		return begin, end, false
	}
	from, until := t.zone.quietFrom(*t.plan.Quiet, at.Unix()), t.zone.quietUntil(*t.plan.Quiet, at.Unix())
	return time.Unix(from, 0).UTC(), time.Unix(until, 0).UTC(), true
}

// SkipsQuiet reports whether the timing drops ticks in quiet hours. Otherwise they wait for the end of the hours.
func (t *Timing) SkipsQuiet() bool { return t.plan.Quiet != nil && t.plan.Quiet.Skip }

// Waits reports whether the tick of a nominal time waits for the end of quiet hours.
func (t *Timing) Waits(at time.Time) bool {
	return t.plan.Quiet != nil && !t.plan.Quiet.Skip && t.zone.quiet(*t.plan.Quiet, at.Unix())
}

// LeavesOut reports whether the timing drops the tick of a nominal time because of quiet hours.
func (t *Timing) LeavesOut(at time.Time) bool {
	return t.plan.Quiet != nil && t.plan.Quiet.Skip && t.zone.quiet(*t.plan.Quiet, at.Unix())
}

// Due returns when the tick of a nominal time is due, without jitter: at that time, or at the end of the quiet hours around it.
func (t *Timing) Due(at time.Time) time.Time {
	if !t.Waits(at) {
		return at
	}
	return time.Unix(t.zone.quietUntil(*t.plan.Quiet, at.Unix()), 0).UTC()
}

func (z *zone) quiet(q Quiet, at int64) bool { return q.has(int(floorMod(z.wall(at), daySeconds))) }

// quietUntil returns the first instant after a quiet one that is not quiet.
func (z *zone) quietUntil(q Quiet, at int64) int64 {
	for i := z.find(at); ; i++ {
		sec := int(floorMod(at+z.offset(i), daySeconds))
		if !q.has(sec) {
			return at
		}
		end := at + int64(floorMod(q.To-sec, daySeconds))
		if end < z.end(i) || i+1 == len(z.starts) {
			return end
		}
		at = z.starts[i+1]
	}
}

// quietFrom returns the first instant of the uninterrupted quiet time before a quiet instant.
func (z *zone) quietFrom(q Quiet, at int64) int64 {
	for i := z.find(at); ; i-- {
		sec := int(floorMod(at+z.offset(i), daySeconds))
		begin := max(at-int64(floorMod(sec-q.From, daySeconds)), z.starts[i])
		if begin > z.starts[i] || i == 0 || !q.has(int(floorMod(begin-1+z.offset(i-1), daySeconds))) {
			return begin
		}
		at = begin - 1
	}
}
