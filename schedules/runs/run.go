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
	Missed int       // how many, for a member that has been there since From
	Late   bool      // it catches up: times were missed, or it is more than a minute late; jitter makes it no later
	Drop   bool      // its ticks are recorded as missed, not handed out
	Quiet  bool      // its ticks are recorded as skipped for quiet hours, not handed out
	Next   time.Time // the nominal time after At; zero: there is none

	overdue bool // it is late, whatever it stands for
}

const (
	onTime     = time.Minute // a run that begins later than this catches up
	mostCaught = 1000        // ticks that missed: all hands out at most
)

// KnowsMissed reports whether this program knows a policy for missed ticks. A newer one may have stored another.
func KnowsMissed(policy string) bool { return policy == "last" || policy == "all" || policy == "none" }

// Begin decides what a run serves that begins at now in a cohort whose next nominal time is next, and is due by now:
// times that wait for the end of quiet hours (see calendar.Timing.Due) are served as one, by the last of them.
func Begin(t *calendar.Timing, next, now time.Time, missed string) Run {
	return BeginUntil(t, next, now, now, missed)
}

// BeginUntil is Begin in a cohort that t tells the times of no longer than until a moment, not after now.
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
		last = calendar.Tick{At: next} // retimed since next was computed: served as it was promised
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
		if missed == "none" && now.Sub(due) > onTime { // what is late is dropped, and the next run serves what is not
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

// Resume is a run that began earlier and has not reached all members, as of now.
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

// Until is the run with its nominal time moved to the last one before a moment, which stands for those before it.
func (r Run) Until(t *calendar.Timing, before time.Time) Run {
	last, ok := t.Prev(before)
	for ok && last.At.After(r.From) && t.LeavesOut(last.At) { // it is left out by itself, after the run
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

// waited tells whether a nominal time, not after the run's, waited for the end of the same quiet hours as the run's.
func (r Run) waited(t *calendar.Timing, at time.Time) bool {
	if !t.Waits(r.At) {
		return false
	}
	begin, _, _ := t.QuietHours(r.At)
	return !at.Before(begin)
}

// Placed fills in what follows from the run's nominal time.
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

// For is the run as a member sees it to whom nominal times count from one moment until another (nil: for good): which of
// them it is served, and how many earlier ones that stands for. It is false where none of the run's counts to it.
func (r Run) For(t *calendar.Timing, from time.Time, until *time.Time) (own Run, ok bool) {
	own = r
	if until != nil && r.At.After(*until) { // its last came and went before the run began
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

// MissedSince is how many nominal times the run stands for, for a member to whom they count from a moment on.
func (r Run) MissedSince(t *calendar.Timing, from time.Time) int {
	if r.Missed == 0 || !from.After(r.From) {
		return r.Missed
	}
	return min(r.Missed, t.Count(from, r.At))
}

// Limit is how many nominal times count, from a moment on.
type Limit struct {
	From time.Time
	Left int
}

// Last is the last that counts, or the last that there is.
func (l Limit) Last(t *calendar.Timing) time.Time {
	first, ok := t.Next(l.From.Add(-time.Second))
	if !ok {
		return l.From
	}
	last, _ := t.Nth(first.At, l.Left)
	return last.At
}

// Delays tells whether a timing is fixed_delay; nil is not.
func Delays(t *calendar.Timing) bool {
	if t == nil {
		return false
	}
	_, ok := t.FixedDelay()
	return ok
}
