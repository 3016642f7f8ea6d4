package calendar

import "time"

// OnceADay reports whether no day of the zone's clock has two nominal times. For one cron, calendar or interval in days without
// exclusions it is computed. For other timings it checks the ticks of the 400 days after from. It returns false for fixed_delay.
func (t *Timing) OnceADay(from time.Time) bool {
	if t.delay != nil {
		return false
	}
	if len(t.sources) == 1 && len(t.added) == 0 {
		if s, ok := t.sources[0].(*resolved); ok {
			switch set := s.set.(type) {
			case *days:
				return true
			case *fieldSet:
				return set.times() == 1
			}
		}
	}
	at := from.Unix()
	until, day := at+400*daySeconds, -1
	for {
		next, _, ok := t.next(at + 1)
		if !ok || next > until {
			return true
		}
		on, _ := splitWall(t.zone.wall(next))
		if on == day {
			return false
		}
		at, day = next, on
	}
}

// Recurs reports whether the timing names other times than single ones (at and relative).
func (t *Timing) Recurs() bool {
	return t.plan.Rule != nil || len(t.plan.Fields)+len(t.plan.Every) > 0
}
