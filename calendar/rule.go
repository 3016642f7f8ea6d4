package calendar

import (
	"slices"
)

// frequency is the FREQ of an RRULE.
type frequency uint8

const (
	perYear frequency = iota
	perMonth
	perWeek
	perDay
	perHour
	perMinute
	perSecond
)

// rulePlan is the canonical form of an RRULE. Its lists are sorted without duplicates. It contains the BY parts that DTSTART implies, and
// the last wall time instead of COUNT.
type rulePlan struct {
	policies
	Freq     frequency `json:"freq"`
	Interval int       `json:"n"`
	Start    wall      `json:"start"`
	Week     int       `json:"wkst"` // 0 for Sunday
	Months   []int     `json:"mo,omitempty"`
	WeekNos  []int     `json:"wn,omitempty"`
	YearDays []int     `json:"yd,omitempty"`
	Days     []int     `json:"md,omitempty"`
	Weekdays []nthDay  `json:"wd,omitempty"`
	Hours    uint32    `json:"h"`
	Minutes  uint64    `json:"m"`
	Seconds  uint64    `json:"s"`
	SetPos   []int     `json:"pos,omitempty"`
	Last     *wall     `json:"last,omitempty"`
	Until    *int64    `json:"until,omitempty"` // an instant
	Plus     []int64   `json:"plus,omitempty"`  // RDATE
	Minus    []int64   `json:"minus,omitempty"` // EXDATE
}

// nthDay is a value of BYDAY: the Nth such weekday of the month or year, counted from the end if negative; 0: each.
type nthDay struct {
	N   int `json:"n,omitempty"`
	Day int `json:"d"` // 0 for Sunday
}

// class returns the rule's class.
func (p *rulePlan) class() Class {
	if p.Freq >= perHour && p.Hours == allHours {
		return ClassEveryHour
	}
	return ClassFixed
}

// times returns the rule's times of day.
func (p *rulePlan) times() *fields {
	return &fields{Hours: p.Hours, Minutes: p.Minutes, Seconds: p.Seconds}
}

// set returns the wall times of the rule, from DTSTART to the last one of COUNT.
func (p *rulePlan) set() wallSet {
	b := bounded{first: p.Start, last: maxWall}
	if p.Last != nil {
		b.last = *p.Last
	}
	if p.never() {
		b.set = walls{}
		return b
	}
	if p.Freq >= perHour {
		b.set = newSubdaily(p)
		return b
	}
	if f, ok := p.fields(); ok && p.Interval == 1 && len(p.SetPos) == 0 {
		b.set = newFieldSet(f, nil)
		return b
	}
	b.set = newByPeriod(p)
	return b
}

// fields returns the rule as fields, without its interval and positions. It returns false for a rule that fields cannot express.
func (p *rulePlan) fields() (fields, bool) {
	if len(p.WeekNos)+len(p.YearDays) > 0 {
		return fields{}, false
	}
	f := p.dayFields()
	f.Hours, f.Minutes, f.Seconds = p.Hours, p.Minutes, p.Seconds
	for _, d := range p.Weekdays {
		switch {
		case d.N == 0:
			f.Week |= 1 << d.Day
		case p.Freq == perYear && len(p.Months) == 0:
			return fields{}, false
		case d.N < 0:
			f.Back[-d.N-1] |= 1 << d.Day
		default:
			f.Nth[d.N-1] |= 1 << d.Day
		}
	}
	return f.normal(), true
}

// dayFields returns the days of the rule's BY parts as fields at midnight. It ignores BYYEARDAY and numbered weekdays.
func (p *rulePlan) dayFields() fields {
	f := fields{Seconds: 1, Minutes: 1, Hours: 1, Days: allDays, Months: allMonth, Week: allWeek, Years: allYears}
	if len(p.Days) > 0 {
		f.Days = 0
		for _, d := range p.Days {
			if d > 0 {
				f.Days |= 1 << d
			} else {
				f.Last |= 1 << (-d - 1)
			}
		}
	}
	if len(p.Months) > 0 {
		f.Months = 0
		for _, m := range p.Months {
			f.Months |= 1 << m
		}
	}
	if len(p.Weekdays) > 0 {
		f.Week = 0
		for _, d := range p.Weekdays {
			if d.N == 0 {
				f.Week |= 1 << d.Day
			}
		}
	}
	return f
}

// bounded is the part of a set from first to last.
type bounded struct {
	set         wallSet
	first, last wall
}

func (b bounded) next(w wall) (wall, bool) {
	w, ok := b.set.next(max(w, b.first))
	return w, ok && w <= b.last
}

func (b bounded) prev(w wall) (wall, bool) {
	if w < b.first {
		return 0, false
	}
	w, ok := b.set.prev(min(w, b.last))
	return w, ok && w >= b.first
}

// ruleSource is the set of a rule's instants up to until, and of the extra instants, without the instants in minus.
type ruleSource struct {
	rule  source
	until int64
	extra []source
	minus []int64
}

func (s *ruleSource) next(from int64) (int64, DSTNote, bool) {
	for {
		at, note, found := s.rule.next(from)
		found = found && at <= s.until
		for _, e := range s.extra {
			if b, n, ok := e.next(from); ok && (!found || b < at) {
				at, note, found = b, n, true
			}
		}
		if !found || !s.excepted(at) {
			return at, note, found
		}
		from = at + 1
	}
}

func (s *ruleSource) prev(until int64) (int64, DSTNote, bool) {
	for {
		at, note, found := s.rule.prev(min(until, s.until))
		for _, e := range s.extra {
			if b, n, ok := e.prev(until); ok && (!found || b > at) {
				at, note, found = b, n, true
			}
		}
		if !found || !s.excepted(at) {
			return at, note, found
		}
		until = at - 1
	}
}

func (s *ruleSource) excepted(at int64) bool {
	_, ok := slices.BinarySearch(s.minus, at)
	return ok
}

// addRule adds the rule's instants, and returns its class.
func (t *Timing) addRule(p *rulePlan, out *exclusions) Class {
	s := &ruleSource{rule: t.resolve(p.set(), p.policies, out, p.times()), until: maxWall, minus: p.Minus}
	if p.Until != nil {
		s.until = *p.Until
	}
	if len(p.Plus) > 0 {
		s.extra = t.instants(moments(p.Plus), out, nil)
	}
	t.sources = append(t.sources, s)
	return p.class()
}
