package chaos

import "time"

// delaySlack is how far the next time of fixed_delay may be past its interval: it is rounded up to a whole second, as is the moment
// from which the first one counts.
const delaySlack = 3 * time.Second

// free reports whether the checker cannot know a time of the tick: its interval counts from the end of the tick before, or it was swept with
// an edition of the calendar that has changed since.
func (l *life) free(t *tick) bool {
	for _, e := range l.eras {
		if e.may(t.Timestamp) && (e.timing.kind == delayed || t.Reason == "excluded" && e.timing.marks(t.Timestamp)) {
			return true
		}
	}
	return false
}

// over returns when a tick had ended. A skipped tick ended at once.
func (t *tick) over() time.Time {
	if t.EndedAt != nil {
		return *t.EndedAt
	}
	return t.FiredAt
}

// chained checks I1 of schedules with fixed_delay: each tick comes an interval after the end of the one before, in whatever state that ended,
// and there is always a next one.
func (c *checker) chained(n name, b *biography, l *life, ticks []*tick) {
	for _, e := range l.eras {
		if e.timing.kind != delayed {
			continue
		}
		every, until := time.Duration(e.timing.every)*time.Second, c.record.judged
		if !e.toA.IsZero() && e.toA.Before(until) {
			until = e.toA
		}
		if !b.doubt.IsZero() && b.doubt.Before(until) {
			until = b.doubt
		}
		from, inside := e.fromB, false // the start of the next interval; whether a tick of this era came before it
		for _, t := range ticks {
			if !t.timed() || t.Timestamp.After(until) {
				continue
			}
			if t.Timestamp.After(e.fromB) {
				if t.MissedCount != 0 {
					c.violate("I1", n, t, "it counts %d missed times, and can count none", t.MissedCount)
				}
				if inside && t.Timestamp.Before(from.Add(every-time.Second)) {
					c.violate("I1", n, t, "it came %s after the end of the one before, and not %s", t.Timestamp.Sub(from), every)
				}
				if t.Timestamp.After(from.Add(every + delaySlack)) {
					c.violate("I1", n, t, "it came %s after the end of the one before, and not %s", t.Timestamp.Sub(from), every)
				}
				inside = true
			}
			if end := t.over(); end.After(from) || inside {
				from = end
			}
		}
		if from.Add(every+delaySlack).Before(until) && !c.early {
			c.violate("I1", n, lastOf(ticks), "nothing came %s after %s", every, clock(from))
		}
	}
}
