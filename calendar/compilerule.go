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

// instantsOf returns the instants of wall times in order. It follows RFC 5545 and ignores the spec's DST policies.
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

// instant returns the instant of a wall time. In a gap it uses the offset before the gap; in an overlap it returns the first instant.
func (z *zone) instant(w wall) int64 {
	r := resolved{set: walls{w}, zone: z, gap: gapShiftForward, overlap: overlapFirst}
	at, _, _ := r.next(w - 2*daySeconds)
	return at
}

// maxCountSteps is the maximum number of steps to count to COUNT.
const maxCountSteps = 300_000

// lastOf returns the last wall time of a rule with count instances. It does not count instances that the gap policy drops. It returns
// false if counting costs too much.
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

// walls yields the rule's wall times from DTSTART on, until maxCountSteps are used.
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

// inGap reports whether no instant shows a wall time.
func (z *zone) inGap(w wall) bool {
	i := z.find(w - int64(z.max))
	for ; i < len(z.starts) && z.starts[i]+z.offset(i) <= w; i++ {
		if w < z.end(i)+z.offset(i) {
			return false
		}
	}
	return true
}
