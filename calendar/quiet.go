package calendar

import "time"

// Quiet are hours of each day in which a key is not to be disturbed: the times of day from From on and before To, in seconds, as
// the clock of the key's zone shows them. Where To is the lesser they go past midnight; where both are the same there are none. An
// instant is quiet when its clock shows such a time: in a gap of the clock the hours end or begin at its end, and an hour that is
// shown twice is quiet twice.
type Quiet struct {
	From int  `json:"from"`
	To   int  `json:"to"`
	Skip bool `json:"skip,omitempty"` // ticks inside are left out; else the last of them waits until the hours end
}

func (q Quiet) none() bool { return q.From == q.To }

// has says whether a time of day is quiet.
func (q Quiet) has(sec int) bool {
	if q.From < q.To {
		return q.From <= sec && sec < q.To
	}
	return sec >= q.From || sec < q.To
}

// QuietHours are the quiet hours that an instant lies in: from begin on and before end. ok is false where it lies in none.
func (t *Timing) QuietHours(at time.Time) (begin, end time.Time, ok bool) {
	if t.plan.Quiet == nil || !t.zone.quiet(*t.plan.Quiet, at.Unix()) {
		return begin, end, false
	}
	from, until := t.zone.quietFrom(*t.plan.Quiet, at.Unix()), t.zone.quietUntil(*t.plan.Quiet, at.Unix())
	return time.Unix(from, 0).UTC(), time.Unix(until, 0).UTC(), true
}

// SkipsQuiet says that ticks in quiet hours are left out, and do not wait until the hours end.
func (t *Timing) SkipsQuiet() bool { return t.plan.Quiet != nil && t.plan.Quiet.Skip }

// Waits says that the tick of a nominal time is handed out when the quiet hours end that it lies in.
func (t *Timing) Waits(at time.Time) bool {
	return t.plan.Quiet != nil && !t.plan.Quiet.Skip && t.zone.quiet(*t.plan.Quiet, at.Unix())
}

// LeavesOut says that the tick of a nominal time is left out, as it lies in quiet hours.
func (t *Timing) LeavesOut(at time.Time) bool {
	return t.plan.Quiet != nil && t.plan.Quiet.Skip && t.zone.quiet(*t.plan.Quiet, at.Unix())
}

// Due is when the tick of a nominal time is handed out, jitter aside: then, or when the quiet hours end that it lies in.
func (t *Timing) Due(at time.Time) time.Time {
	if !t.Waits(at) {
		return at
	}
	return time.Unix(t.zone.quietUntil(*t.plan.Quiet, at.Unix()), 0).UTC()
}

func (z *zone) quiet(q Quiet, at int64) bool { return q.has(int(floorMod(z.wall(at), daySeconds))) }

// quietUntil is the first instant after a quiet one that is not quiet.
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

// quietFrom is the first of the quiet instants without a break until a quiet one.
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
