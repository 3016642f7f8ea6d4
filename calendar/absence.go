package calendar

import (
	"slices"
	"time"
)

// Absence is the reason why a timing has no tick at an instant.
type Absence string

// The absences, as the API names them.
const (
	AbsentNot      Absence = ""             // there is a tick
	AbsentNotDue   Absence = "not_due"      // the spec does not name the time
	AbsentExcluded Absence = "excluded"     // an exclusion drops or moves the time
	AbsentGap      Absence = "dst_gap"      // the clock skips the wall time, and dst.gap drops it
	AbsentBefore   Absence = "before_start" // start_at is later
	AbsentAfter    Absence = "after_end"    // end_at is earlier
)

// Absence returns why there is no tick at an instant. It removes one limit of the spec at a time, and checks whether the timing then has
// a tick. For fixed_delay it always returns not_due.
func (t *Timing) Absence(at time.Time) Absence {
	if t.fires(at) {
		return AbsentNot
	}
	without, open, shifted := t.plan, t.plan, t.plan
	without.Without = nil
	open.Start, open.End = nil, nil
	shifted.Fields = slices.Clone(shifted.Fields)
	for i := range shifted.Fields {
		shifted.Fields[i].Gap = gapShiftForward
	}
	shifted.Every = slices.Clone(shifted.Every)
	for i := range shifted.Every {
		shifted.Every[i].Gap = gapShiftForward
	}
	shifted.Walls = slices.Clone(shifted.Walls)
	for i := range shifted.Walls {
		shifted.Walls[i].Gap = gapShiftForward
	}
	shifted.Relative = slices.Clone(shifted.Relative)
	for i := range shifted.Relative {
		shifted.Relative[i].Gap = gapShiftForward
	}
	if shifted.Rule != nil {
		shifted.Rule = new(*shifted.Rule)
		shifted.Rule.Gap = gapShiftForward
	}
	switch {
	case t.plan.Without != nil && t.would(without, at):
		return AbsentExcluded
	case t.plan.Start != nil && at.Unix() < t.start && t.would(open, at):
		return AbsentBefore
	case t.plan.End != nil && at.Unix() > t.end && t.would(open, at):
		return AbsentAfter
	case t.would(shifted, at):
		return AbsentGap
	}
	return AbsentNotDue
}

func (t *Timing) fires(at time.Time) bool {
	if t.delay != nil || at.Nanosecond() != 0 {
		return false
	}
	next, _, ok := t.next(at.Unix())
	return ok && next == at.Unix()
}

// would reports whether a changed plan has a tick at an instant.
func (t *Timing) would(p plan, at time.Time) bool {
	var out *exclusions
	if p.Without != nil {
		out = &exclusions{days: t.out.days, times: t.out.times, then: t.out.then, dead: map[[3]uint64]*dates{}}
	}
	return p.timing(t.zones, out).fires(at)
}
