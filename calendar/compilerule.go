package calendar

import (
	"iter"
	"slices"
)

func (k *compiler) readRule() {
	if k.spec.RRule == "" {
		return
	}
	text := &ruleText{zone: k.plan.Zone}
	text.read(k.spec.RRule)
	if len(text.faults) > 0 {
		k.faults.at("/rrule", text.faults)
		return
	}
	parts := text.readParts()
	if len(text.faults) > 0 {
		k.faults.at("/rrule", text.faults)
		return
	}
	p := &parts.plan
	p.policies = k.policy(p.class())
	p.Plus = k.instantsOf(text.plus)
	p.Minus = k.instantsOf(text.minus)
	if parts.until != nil {
		p.Until = new(k.instantsOf([]ruleTime{*parts.until})[0])
	}
	if parts.count > 0 {
		last, ok := k.lastOf(p, parts.count)
		if !ok {
			k.faults = append(k.faults, Fault{"/rrule", "rrule_too_costly", "counting to COUNT costs too much: use UNTIL", parts.has["COUNT"]})
		}
		p.Last = &last
	}
	k.plan.Rule = p
}

// instantsOf are the instants of wall times, as RFC 5545 reads them whatever the policies, in order.
func (k *compiler) instantsOf(times []ruleTime) []int64 {
	var out []int64
	for _, t := range times {
		at := t.at
		if !t.utc {
			at = k.zone.instant(t.at)
		}
		out = append(out, at)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// instant is the instant of a wall time: in a gap read with the offset before it, in an overlap the first.
func (z *zone) instant(w wall) int64 {
	r := resolved{set: walls{w}, zone: z, gap: gapShiftForward, overlap: overlapFirst}
	at, _, _ := r.next(w - 2*daySeconds)
	return at
}

// maxCountSteps is how many steps counting to COUNT may take.
const maxCountSteps = 300_000

// lastOf is the wall time at which a rule of count instances ends: of those that the gap policy leaves. False says that counting
// costs too much.
func (k *compiler) lastOf(p *rulePlan, count int) (wall, bool) {
	last, steps := p.Start-1, 0
	for w := range p.walls(&steps) {
		if p.Gap == gapSkip && k.zone.inGap(w) {
			continue
		}
		last = w
		if count--; count == 0 {
			break
		}
	}
	return last, steps <= maxCountSteps
}

// walls are the rule's wall times from DTSTART on, as far as maxCountSteps go.
func (p *rulePlan) walls(steps *int) iter.Seq[wall] {
	return func(yield func(wall) bool) {
		if p.never() {
			return
		}
		if p.Freq < perHour {
			for w := range newByPeriod(p).all() {
				if w >= p.Start && !yield(w) {
					return
				}
			}
			return
		}
		s := newSubdaily(p)
		w, ok := s.search(p.Start, steps)
		for ok && *steps <= maxCountSteps && yield(w) {
			w, ok = s.search(w+1, steps)
		}
	}
}

// inGap says that no instant shows a wall time.
func (z *zone) inGap(w wall) bool {
	i := z.find(w - int64(z.max))
	for ; i < len(z.starts) && z.starts[i]+z.offset(i) <= w; i++ {
		if w < z.end(i)+z.offset(i) {
			return false
		}
	}
	return true
}
