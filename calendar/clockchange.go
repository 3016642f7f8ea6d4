package calendar

import (
	"slices"
	"time"
)

// ClockChange is a moment at which the clock of a zone is set forward, which skips wall times, or back, which repeats them.
type ClockChange struct {
	At            time.Time
	Before, After int // the offsets from UTC, in seconds
}

// Gap reports whether the clock is set forward.
func (c ClockChange) Gap() bool { return c.After > c.Before }

// ClockChanges returns the moments from an instant on, and before another, at which the clock of a zone is set forward or back. A zone
// that the database does not have has none.
func (z *Zones) ClockChanges(name string, from, to time.Time) (changes []ClockChange) {
	table := z.zone(name)
	if table == nil {
		return nil
	}
	for i := table.find(from.Unix() - 1); table.end(i) < to.Unix(); i++ {
		changes = append(changes, ClockChange{At: time.Unix(table.end(i), 0).UTC(), Before: int(table.offset(i)), After: int(table.offset(i + 1))})
	}
	return changes
}

// ClockEffect is what a change of the clock does to wall times of a timing.
type ClockEffect string

// The effects, as the API names them.
const (
	EffectSkipped   ClockEffect = "skipped"    // the wall time does not exist, and is left out
	EffectNextValid ClockEffect = "next_valid" // it moves to the end of the gap
	EffectShifted   ClockEffect = "shifted"    // it moves by the length of the gap
	EffectOnceFirst ClockEffect = "once_first" // it comes twice, and the first counts
	EffectOnceLast  ClockEffect = "once_last"  // it comes twice, and the second counts
	EffectTwice     ClockEffect = "twice"      // it comes twice, and both count
)

var (
	gapEffects     = [...]ClockEffect{gapSkip: EffectSkipped, gapNextValid: EffectNextValid, gapShiftForward: EffectShifted}
	overlapEffects = [...]ClockEffect{overlapFirst: EffectOnceFirst, overlapLast: EffectOnceLast, overlapBoth: EffectTwice}
)

// ClockEffects finds what changes of the clock do to a timing. It is immutable, and safe for concurrent use.
type ClockEffects struct {
	gaps, overlaps map[ClockEffect]*Timing // the members with one policy
}

// ClockEffects returns the effects of changes of the clock on a timing, without its moved times and its quiet hours. What is elapsed time
// has none.
func (t *Timing) ClockEffects() *ClockEffects {
	e := &ClockEffects{map[ClockEffect]*Timing{}, map[ClockEffect]*Timing{}}
	if t.delay != nil {
		return e
	}
	for policy, effect := range gapEffects {
		if part, some := t.only(func(p policies) bool { return p.Gap == gapPolicy(policy) }); some {
			e.gaps[effect] = part
		}
	}
	for policy, effect := range overlapEffects {
		if part, some := t.only(func(p policies) bool { return p.Overlap == overlapPolicy(policy) }); some {
			e.overlaps[effect] = part
		}
	}
	return e
}

// only returns the wall times of the members that follow the clock and have a policy, as a timing in UTC, which skips and repeats none.
func (t *Timing) only(has func(policies) bool) (part *Timing, some bool) {
	p := t.plan
	walls, _ := p.relativeTimes(t.zone)
	p.Moments, p.Relative, p.Moved, p.Quiet, p.Zone = nil, nil, nil, nil, "UTC"
	p.Fields = slices.DeleteFunc(slices.Clone(p.Fields), func(f fieldPlan) bool { return !has(f.policies) })
	p.Every = slices.DeleteFunc(slices.Clone(p.Every), func(e everyPlan) bool { return !e.Civil || !has(e.policies) })
	p.Walls = slices.DeleteFunc(slices.Concat(p.Walls, walls), func(w wallPlan) bool { return !has(w.policies) })
	if p.Rule != nil && !has(p.Rule.policies) {
		p.Rule = nil
	}
	if len(p.Fields)+len(p.Every)+len(p.Walls) == 0 && p.Rule == nil {
		return nil, false
	}
	if p.Start != nil {
		p.Start = new(t.zone.wall(*p.Start))
	}
	if p.End != nil {
		p.End = new(t.zone.wall(*p.End))
	}
	var out *exclusions
	if p.Without != nil {
		out = &exclusions{days: t.out.days, times: t.out.times, then: t.out.then, dead: map[[3]uint64]*dates{}}
	}
	return p.timing(t.zones, out), true
}

// WallEffect is an effect, and the first wall time that has it, as a time in UTC.
type WallEffect struct {
	Effect ClockEffect
	Wall   time.Time
}

// Of returns what a change of the clock of the timing's zone does to its wall times, in a fixed order.
func (e *ClockEffects) Of(c ClockChange) (effects []WallEffect) {
	parts, order := e.gaps, gapEffects[:]
	if !c.Gap() {
		parts, order = e.overlaps, overlapEffects[:]
	}
	from, to := c.At.Add(time.Duration(min(c.Before, c.After))*time.Second), c.At.Add(time.Duration(max(c.Before, c.After))*time.Second)
	for _, effect := range order {
		if part := parts[effect]; part != nil {
			if tick, ok := part.Next(from.Add(-time.Second)); ok && tick.At.Before(to) {
				effects = append(effects, WallEffect{effect, tick.At})
			}
		}
	}
	return effects
}
