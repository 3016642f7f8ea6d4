package calendar

import "time"

// OnceADay says that no two nominal times share a day of the zone's clock: of one cron, calendar or interval in days without
// exclusions that is worked out, for others it is found among the ticks of the 400 days after an instant. It is false for
// fixed_delay.
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
