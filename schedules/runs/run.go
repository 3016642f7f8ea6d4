package runs

import (
	"time"

	"github.com/carillonhq/carillon/calendar"
)

// Run is one pass over the members of a cohort: the nominal time that it serves, and those that it stands for.
type Run struct {
	At     time.Time
	DST    calendar.DSTNote
	From   time.Time // the earliest nominal time that it stands for; At where it stands for none
	Missed int       // how many times it stands for, to a member that joined at From or earlier
	Late   bool      // it catches up: times were missed, or it is more than a minute late, not counting jitter
	Drop   bool      // its ticks are recorded as missed, not handed out
	Quiet  bool      // its ticks are recorded as skipped for quiet hours, not handed out
	Next   time.Time // the nominal time after At; zero: there is none

	overdue bool // it began too late by the clock, even if no time was missed
}

const (
	onTime     = time.Minute // a run that begins later than this catches up
	mostCaught = 1000        // with missed: all, a cohort hands out at most so many late ticks
)

// KnowsMissed reports whether this program knows a policy for missed ticks. A newer one may have stored another.
func KnowsMissed(policy string) bool { return policy == "last" || policy == "all" || policy == "none" }

// Begin decides what a run serves that begins at now. next is the next nominal time of the cohort, and is due by now. Times that wait for
// the end of quiet hours (see calendar.Timing.Due) are served together, by the last of them.
func Begin(t *calendar.Timing, next, now time.Time, missed string) Run {
	return BeginUntil(t, next, now, now, missed)
}

// BeginUntil is Begin for a cohort whose times t determines only up to a moment, which is not after now.
func BeginUntil(t *calendar.Timing, next, until, now time.Time, missed string) Run {
	r := Run{At: next, From: next}
	due := t.Due(next)
	end := until.Truncate(time.Second).Add(time.Second)
	if due.After(next) {
		r = r.Until(t, earlier(due, end))
	}
	last, ok := lastDue(t, now.Truncate(time.Second).Add(time.Second))
	if ok && !last.At.Before(end) {
		last, ok = t.Prev(end)
	}
	if !ok || last.At.Before(next) {
		last = calendar.Tick{At: next} // the cohort was retimed after next was computed: next is served as promised
	}
	switch behind := last.At.After(due); {
	case behind && missed == "all":
		r.Late = true
		if n := t.Count(next, last.At) + 1; n > mostCaught {
			r.Missed, r.Drop = n-mostCaught-1, true
			if first, ok := t.Nth(next, n-mostCaught); ok {
				r.At = first.At
			}
		}
	case behind:
		if missed == "none" && now.Sub(due) > onTime { // this run drops the late times, and the next run serves the others
			late, ok := lastDue(t, now.Add(-onTime))
			switch {
			case ok && late.At.After(last.At):
			case ok && late.At.After(r.At):
				last = late
			default:
				last.At = r.At
			}
		}
		r.At, r.Late = last.At, true
		r.Missed = t.Count(next, last.At)
	}
	if r.overdue = now.Sub(t.Due(r.At)) > onTime; r.overdue {
		r.Late = true
		r.Drop = r.Drop || missed == "none"
	}
	if r = r.Placed(t); t.Jitter() > 0 {
		r.decideLate(t, now)
	}
	return r
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Resume returns, as of now, a run that began earlier and has not reached all members.
func Resume(t *calendar.Timing, at, from time.Time, missed int, drop bool, now time.Time) Run {
	r := Run{At: at, From: from, Missed: missed, Drop: drop}.Placed(t)
	r.decideLate(t, now)
	return r
}

// decideLate decides whether a run that goes on at now catches up. It has until the end of its walk to reach its members.
func (r *Run) decideLate(t *calendar.Timing, now time.Time) {
	r.overdue = now.Sub(t.Due(r.At)) > onTime+max(0, r.gap(t))
	r.Late = r.Drop || r.overdue || r.Missed > 0 && !r.waited(t, r.From)
}

// Until returns the run with At moved to the last nominal time before a moment. The run then stands for the times before that one.
func (r Run) Until(t *calendar.Timing, before time.Time) Run {
	last, ok := t.Prev(before)
	for ok && last.At.After(r.From) && t.LeavesOut(last.At) { // quiet hours drop this time, and a later run records that
		last, ok = t.Prev(last.At)
	}
	if ok && last.At.After(r.From) {
		r.At, r.Missed = last.At, t.Count(r.From, last.At)
	}
	return r
}

// lastDue is the last nominal time whose tick is due before a moment.
func lastDue(t *calendar.Timing, before time.Time) (calendar.Tick, bool) {
	last, ok := t.Prev(before)
	if !ok || t.Due(last.At).Before(before) {
		return last, ok
	}
	begin, _, _ := t.QuietHours(last.At)
	return t.Prev(begin)
}

// waited reports whether a nominal time waited for the end of the same quiet hours as the run's. The time is not after the run's.
func (r Run) waited(t *calendar.Timing, at time.Time) bool {
	if !t.Waits(r.At) {
		return false
	}
	begin, _, _ := t.QuietHours(r.At)
	return !at.Before(begin)
}

// Placed returns the run with the members that follow from its nominal time: DST, Next and Quiet.
func (r Run) Placed(t *calendar.Timing) Run {
	if tick, ok := t.Prev(r.At.Add(time.Second)); ok && tick.At.Equal(r.At) {
		r.DST = tick.DST
	}
	if Delays(t) { // what follows depends on when the tick ends
		return r
	}
	if tick, ok := t.Next(r.At); ok {
		r.Next = tick.At
	}
	r.Quiet = r.Quiet || t.LeavesOut(r.At)
	return r
}

// For returns the run as one member sees it. The nominal times from one moment until another
// (nil: without end) count for the member. own has the last of the run's times that counts for
// the member, and how many earlier ones it stands for. ok is false if none of them counts.
func (r Run) For(t *calendar.Timing, from time.Time, until *time.Time) (own Run, ok bool) {
	own = r
	if until != nil && r.At.After(*until) { // the last time that counts for the member is before the run's
		last, found := t.Prev(until.Add(time.Second))
		if !found || last.At.Before(r.From) {
			return own, false
		}
		own.At, own.DST, own.Late = last.At, last.DST, r.Late || !r.waited(t, last.At)
		own.Missed, own.Quiet = t.Count(r.From, last.At), r.Quiet && t.Waits(last.At) || t.LeavesOut(last.At)
	}
	if from.After(own.At) {
		return own, false
	}
	own.Missed = own.MissedSince(t, from)
	if r.Missed > 0 && own.Missed == 0 && own.At.Equal(r.At) { // the member missed nothing: it joined meanwhile
		own.Late = r.Drop || r.overdue
	}
	return own, true
}

// MissedSince returns how many nominal times the run stands for, if times count for the member only from a moment on.
func (r Run) MissedSince(t *calendar.Timing, from time.Time) int {
	if r.Missed == 0 || !from.After(r.From) {
		return r.Missed
	}
	return min(r.Missed, t.Count(from, r.At))
}

// Limit says that only the first Left nominal times from From on count.
type Limit struct {
	From time.Time
	Left int
}

// Last returns the last nominal time that counts, or the last one of the timing if it has fewer.
func (l Limit) Last(t *calendar.Timing) time.Time {
	first, ok := t.Next(l.From.Add(-time.Second))
	if !ok {
		return l.From
	}
	last, _ := t.Nth(first.At, l.Left)
	return last.At
}

// Delays reports whether a timing is fixed_delay. It returns false for nil.
func Delays(t *calendar.Timing) bool {
	if t == nil {
		return false
	}
	_, ok := t.FixedDelay()
	return ok
}
