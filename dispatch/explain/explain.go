package explain

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Explanation says what a schedule did, or will do, at a moment. Detail is one or more sentences for a person, with times in the
// schedule's zone. Previous and Next are the nominal times before and after the moment; nil if there is none.
type Explanation struct {
	At       time.Time     `json:"at"`
	Outcome  string        `json:"outcome"`
	Detail   string        `json:"detail"`
	Steps    []Step        `json:"steps"`
	Tick     *history.Tick `json:"tick,omitempty"`
	Previous *time.Time    `json:"previous"`
	Next     *time.Time    `json:"next"`
}

// The outcomes: what a schedule did or will do at a moment.
const (
	outcomeFired         = "fired"
	outcomeRunning       = "running"
	outcomeWillFire      = "will_fire"
	outcomeSkipped       = "skipped"
	outcomeMissed        = "missed"
	outcomeCancelled     = "cancelled"
	outcomeFailed        = "failed"
	outcomeNotDue        = "not_due"
	outcomePaused        = "paused"
	outcomeExcluded      = "excluded"
	outcomeGap           = "dst_gap"
	outcomeBeforeCreated = "before_created"
	outcomeAfterEnd      = "after_end"
	outcomeHeld          = "held"
	outcomeUnknown       = "unknown"
)

// known is what is known of a schedule around the moment at.
type known struct {
	at, now time.Time
	wall    reading // how the wall time of the question was read
	story

	tick   *history.Tick // the record of that nominal time
	moved  *history.Tick // the record of the time to which the tick of the moment was moved
	after  *history.Tick // the first timed tick after the moment
	manual *history.Tick // a manual tick near the moment
	kept   time.Time     // ticks before this time may be deleted
}

// explain decides what happened at the moment. The record comes first, then the versions of the schedule.
func (k *known) explain() Explanation {
	e := Explanation{At: k.at, Previous: k.previous(k.at, k.now), Next: k.next(k.at, k.now), Tick: k.tick}
	var what string
	e.Outcome, what = k.outcome(&e)
	e.Detail = k.wall.preface + what
	if k.manual != nil && k.manual.DueAt != nil {
		e.Detail += fmt.Sprintf(" A tick was triggered for %s, and waits for its time.", k.clock(k.manual.Timestamp))
	} else if k.manual != nil && e.Tick != k.manual {
		e.Detail += fmt.Sprintf(" A tick was triggered by hand at %s; it is %s.", k.clock(k.manual.Timestamp), k.manual.State)
	}
	return e
}

// outcome returns the outcome and the words for it. It sets e.Tick to the tick that the words name.
func (k *known) outcome(e *Explanation) (outcome, detail string) {
	v := k.version(k.at)
	if k.tick != nil {
		return k.recorded(k.tick)
	}
	for _, m := range k.moves {
		if m.At.Equal(k.at) {
			e.Tick = k.moved
			return outcomeNotDue, fmt.Sprintf("The tick of %s was moved to %s by %s, at %s.%s", k.clock(m.At), k.clock(m.To), m.By, k.clock(m.MovedAt), k.became())
		}
	}
	switch {
	case !k.at.After(k.created):
		return outcomeBeforeCreated, fmt.Sprintf("The schedule was not made yet: it was made at %s.", k.clock(k.created))
	case v == nil || !k.whole && !k.at.After(k.versions[0].from):
		return outcomeUnknown, "What the schedule was then is no longer kept."
	case v.timing == nil:
		return outcomeUnknown, "What the schedule said then can no longer be computed."
	case k.wall.skipped != "" && !k.gapTick(v):
		return k.inGap(v)
	case !v.names(k.at):
		return k.absent(v)
	case k.at.After(k.now):
		return k.coming(v)
	}
	return k.unrecorded(v, e)
}

// recorded returns what happened to a tick.
func (k *known) recorded(t *history.Tick) (outcome, detail string) {
	what := "The tick of " + k.clock(t.Timestamp)
	switch t.Cause {
	case record.Manual.String():
		what = "The tick that was triggered by hand at " + k.clock(t.Timestamp)
	case record.Backfill.String():
		what += ", backfilled,"
	}
	if t.DST == calendar.DSTGap.String() {
		what += " (its own time was skipped by the clock that day)"
	}
	for _, m := range k.moves {
		if m.To.Equal(t.Timestamp) {
			what += fmt.Sprintf(", moved there from %s by %s,", k.clock(m.At), m.By)
		}
	}
	switch t.State {
	case record.Scheduled.String():
		if t.DueAt != nil {
			return outcomeWillFire, "The tick that was triggered for " + k.clock(t.Timestamp) + " waits for its time."
		}
		return outcomeRunning, what + " waits for one before it to end."
	case record.Running.String():
		return outcomeRunning, what + fmt.Sprintf(" was handed out %s and is under way, in attempt %d.", k.handedOut(t), t.Attempt)
	case record.Succeeded.String():
		return outcomeFired, what + fmt.Sprintf(" was handed out %s and succeeded at %s.", k.handedOut(t), k.clock(*t.EndedAt))
	case record.Failed.String():
		return outcomeFailed, what + fmt.Sprintf(" was handed out %s and failed for good at %s, after %s%s.", k.handedOut(t), k.clock(*t.EndedAt), attempts(t.Attempt), because(t))
	case record.Cancelled.String():
		return outcomeCancelled, what + fmt.Sprintf(" was cancelled at %s%s.", k.clock(*t.EndedAt), cancelledFor(t))
	}
	return skippedAs(t), what + " was left out: " + skippedFor(t) + "."
}

func attempts(n int16) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}

func because(t *history.Tick) string {
	if t.Error == nil || *t.Error == "" {
		return ""
	}
	return fmt.Sprintf(" (%.200q)", *t.Error)
}

func cancelledFor(t *history.Tick) string {
	switch {
	case t.Reason == record.Superseded.String():
		return ", as a newer one took its place"
	case t.Attempt == 0 && t.Reason == "":
		return ", before it was handed out, as the schedule was deleted"
	}
	return because(t)
}

// handedOut returns when a tick was handed out, and how late that was.
func (k *known) handedOut(t *history.Tick) string {
	late := t.Late()
	if late < time.Minute {
		return "at " + k.clock(t.Fired())
	}
	return fmt.Sprintf("at %s, %s late,", k.clock(t.Fired()), policy.FormatDuration(late.Truncate(time.Second)))
}

func skippedAs(t *history.Tick) string {
	switch t.Reason {
	case record.Missed.String():
		return outcomeMissed
	case record.Paused.String():
		return outcomePaused
	case record.Excluded.String():
		return outcomeExcluded
	}
	return outcomeSkipped
}

func skippedFor(t *history.Tick) string {
	switch t.Reason {
	case record.Overlap.String():
		return "one before it was still running"
	case record.Paused.String():
		return "the schedule, or all firing, was paused"
	case record.Missed.String():
		return "it came too late, and what is missed is not made up for"
	case record.Expired.String():
		return "it came later than max_lateness allows"
	case record.Excluded.String():
		return "a calendar excludes it"
	case record.Requested.String():
		return "that was asked for"
	case record.QuietHours.String():
		return "it lay in the quiet hours of the subject"
	case record.NoWorkflow.String():
		return "the workflow is gone"
	case record.Superseded.String():
		return "another tick took its place"
	}
	return t.Reason
}

// became describes the tick that was moved, if it is recorded.
func (k *known) became() string {
	if k.moved == nil {
		return ""
	}
	_, detail := k.recorded(k.moved)
	return " " + detail
}

// gapTick reports whether a skipped wall time has a tick at the moment all the same.
func (k *known) gapTick(v *version) bool {
	tick, ok := v.timing.Next(k.at.Add(-time.Second))
	return ok && tick.At.Equal(k.at) && tick.DST == calendar.DSTGap
}

// inGap explains a wall time that the clock skipped, without a tick.
func (k *known) inGap(v *version) (outcome, detail string) {
	if v.timing.Absence(k.at) == calendar.AbsentNotDue {
		return outcomeNotDue, "Nothing is due then." + k.nearest()
	}
	return outcomeGap, fmt.Sprintf("The schedule leaves out what the clock skips (dst.gap), so nothing came for %s.%s", k.wall.skipped, k.nearest())
}

// absent explains a time that the spec does not name.
func (k *known) absent(v *version) (outcome, detail string) {
	switch v.timing.Absence(k.at) {
	case calendar.AbsentExcluded:
		return outcomeExcluded, fmt.Sprintf("%s is excluded by the schedule's spec.%s", k.clock(k.at), k.nearest())
	case calendar.AbsentGap:
		if tick, ok := v.timing.Prev(k.at); ok && tick.DST == calendar.DSTGap && k.at.Sub(tick.At) < 24*time.Hour { // gap: next_valid
			return outcomeNotDue, fmt.Sprintf("Nothing is due at %s: the time that the clock skips that day has its tick at %s.%s", k.clock(k.at), k.clock(tick.At), k.nearest())
		}
		return outcomeGap, fmt.Sprintf("The time that would come at %s is skipped by the clock that day, and the schedule leaves out what is skipped (dst.gap).%s", k.clock(k.at), k.nearest())
	case calendar.AbsentAfter:
		return outcomeAfterEnd, "The schedule had ended by then: end_at is earlier." + k.nearest()
	case calendar.AbsentBefore:
		return outcomeNotDue, "The schedule had not begun by then: start_at is later." + k.nearest()
	}
	if _, more := v.timing.Next(k.at); !more && v.to.IsZero() {
		return outcomeAfterEnd, fmt.Sprintf("Nothing is left of the schedule at %s.%s", k.clock(k.at), k.nearest())
	}
	return outcomeNotDue, fmt.Sprintf("Nothing is due at %s.%s", k.clock(k.at), k.nearest())
}

// coming explains a future time that the spec names.
func (k *known) coming(v *version) (outcome, detail string) {
	at := k.clock(k.at)
	switch {
	case k.status == policy.Quarantined:
		return outcomeUnknown, "The schedule is quarantined: its spec cannot be computed. Put another."
	case k.status == policy.Completed:
		return outcomeAfterEnd, "The schedule is completed." + k.nearest()
	case k.until != nil && k.at.After(*k.until):
		return outcomeAfterEnd, fmt.Sprintf("max_ticks is reached at %s, the last tick.", k.clock(*k.until))
	case v.pausedAt(k.at) && v.pausedUntil != nil:
		return outcomePaused, fmt.Sprintf("The schedule is paused until %s.%s", k.clock(*v.pausedUntil), k.nearest())
	case v.pausedAt(k.at):
		return outcomePaused, "The schedule is paused, and fires again once it is resumed."
	case k.from != nil && k.at.Before(*k.from):
		return outcomeNotDue, "The schedule's first time comes later." + k.nearest()
	case k.skipped(k.at):
		return outcomeSkipped, fmt.Sprintf("The tick of %s will be left out: that was asked for.", at)
	case v.timing.LeavesOut(k.at):
		return outcomeSkipped, fmt.Sprintf("The tick of %s will be left out: it lies in the quiet hours of the subject.", at)
	case k.held:
		return outcomeHeld, fmt.Sprintf("The workflow is held: the tick of %s waits until the workflow is released, if that is later.", at)
	}
	return outcomeWillFire, "A tick will be handed out at " + k.clock(v.timing.Due(k.at)) + k.provisos(v) + "."
}

// provisos returns what may change when a coming tick is handed out, as clauses for the end of a sentence.
func (k *known) provisos(v *version) (list string) {
	if due := v.timing.Due(k.at); !due.Equal(k.at) {
		list += fmt.Sprintf(", when the quiet hours of the subject end (its own time is %s)", k.clock(k.at))
	}
	if jitter := v.timing.Jitter(); jitter > 0 {
		list += fmt.Sprintf(", or up to %s later (jitter)", policy.FormatDuration(jitter))
	}
	for _, m := range k.moves {
		if m.To.Equal(k.at) {
			list += fmt.Sprintf("; it was moved there from %s by %s", k.clock(m.At), m.By)
		}
	}
	if tick, ok := v.timing.Next(k.at.Add(-time.Second)); ok && tick.DST == calendar.DSTGap {
		list += "; its own time is skipped by the clock that day"
	}
	if k.stopped {
		list += ", unless all firing is still stopped then, as it is now"
	}
	return list
}

// unrecorded explains a past time that the spec names and that has no tick of its own.
func (k *known) unrecorded(v *version, e *Explanation) (outcome, detail string) {
	at := k.clock(k.at)
	if t := k.after; t != nil && k.standsFor(v, t) {
		e.Tick = t
		return outcomeMissed, fmt.Sprintf("The tick of %s was missed: it is one of the %d that the tick of %s stands for.", at, t.MissedCount, k.clock(t.Timestamp))
	}
	present := v.to.IsZero()
	switch {
	case v.pausedAt(k.at):
		return outcomePaused, fmt.Sprintf("The schedule was paused at %s.%s", at, k.nearest())
	case k.at.Before(k.kept):
		return outcomeUnknown, fmt.Sprintf("The schedule had a tick due at %s, but the record of that time is no longer kept.", at)
	case present && k.seen == nil && k.from != nil && k.at.Before(*k.from):
		return outcomeNotDue, "The schedule's first time came later." + k.nearest()
	case present && k.until != nil && k.at.After(*k.until), present && k.status == policy.Completed:
		return outcomeAfterEnd, "The schedule was completed by then." + k.nearest()
	case present && k.status == policy.Quarantined:
		return outcomeUnknown, "The schedule is quarantined: its spec cannot be computed. Put another."
	case present && (k.seen == nil || k.at.After(*k.seen)) && k.held:
		return outcomeHeld, fmt.Sprintf("The tick of %s is due, and waits until the workflow is released.", at)
	case present && (k.seen == nil || k.at.After(*k.seen)) && v.timing.Due(k.at).After(k.now):
		return outcomeWillFire, fmt.Sprintf("The tick of %s will be handed out at %s, when the quiet hours of the subject end.", at, k.clock(v.timing.Due(k.at)))
	case present && (k.seen == nil || k.at.After(*k.seen)):
		return outcomeWillFire, fmt.Sprintf("The tick of %s is due and about to be handed out%s.", at, k.waits(v))
	}
	return outcomeUnknown, fmt.Sprintf("The schedule had a tick due at %s, but there is no record of it.", at)
}

// standsFor reports whether a later tick counts the moment among the times that it missed.
func (k *known) standsFor(v *version, t *history.Tick) bool {
	if t.MissedCount == 0 {
		return false
	}
	past, ok := v.timing.Nth(k.at, int(t.MissedCount)+1)
	return ok && !past.At.Before(t.Timestamp)
}

// waits returns why a due tick may still wait, as a clause for the end of a sentence.
func (k *known) waits(v *version) string {
	switch {
	case k.stopped:
		return ", once firing goes on: all of it is stopped at present"
	case v.timing.Jitter() > 0:
		return fmt.Sprintf(", within %s (jitter)", policy.FormatDuration(v.timing.Jitter()))
	}
	return ""
}

// nearest returns a sentence that names the ticks before and after the moment.
func (k *known) nearest() string {
	before, after := k.previous(k.at, k.now), k.next(k.at, k.now)
	switch {
	case before != nil && after != nil:
		return fmt.Sprintf(" The ticks before and after are those of %s and %s.", k.clock(*before), k.clock(*after))
	case before != nil:
		return fmt.Sprintf(" The last tick before is that of %s, and none follows.", k.clock(*before))
	case after != nil:
		return fmt.Sprintf(" The first tick after is that of %s.", k.clock(*after))
	}
	return ""
}

// timingAt returns the timing that the schedule had at a time; nil: it cannot be computed.
func (k *known) timingAt(at time.Time) *calendar.Timing {
	if v := k.version(at); v != nil && v.timing != nil {
		return v.timing
	}
	return k.versions[len(k.versions)-1].timing
}

// clock formats an instant in the zone that the schedule had then.
func (k *known) clock(at time.Time) string {
	timing := k.timingAt(at)
	if timing == nil {
		return shownAs(at.UTC()) + " UTC"
	}
	return shownAs(timing.Local(at)) + " in " + timing.Zone()
}

func shownAs(at time.Time) string {
	if at.Second() != 0 {
		return at.Format("2006-01-02 15:04:05 -07:00")
	}
	return at.Format("2006-01-02 15:04 -07:00")
}
