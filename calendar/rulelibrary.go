package calendar

import (
	"slices"
	"time"

	"github.com/teambition/rrule-go"
)

// libraryDays is the set of the days of a rule that fields cannot express: BYYEARDAY, BYWEEKNO and numbered days of a year. rrule-go
// expands one year at a time, with floating dates at midnight. It does not get COUNT, UNTIL, BYSETPOS and times. It does not get BYWEEKNO
// either, which it computes wrongly at the end of a year; inWeeks checks that part.
type libraryDays struct {
	periods
	option  rrule.ROption
	weekNos []int
	perhaps *fieldSet // a superset of the days
	never   bool
}

var libraryWeek = [7]rrule.Weekday{rrule.SU, rrule.MO, rrule.TU, rrule.WE, rrule.TH, rrule.FR, rrule.SA}

func newLibraryDays(p *rulePlan, r periods) *libraryDays {
	l := &libraryDays{periods: r, weekNos: p.WeekNos}
	l.option = rrule.ROption{
		Freq:     rrule.YEARLY, // fields express all other frequencies
		Interval: 10_000,       // UNTIL alone does not stop the library in a year without days
		Wkst:     libraryWeek[p.Week], Bymonth: p.Months, Bymonthday: p.Days, Byyearday: p.YearDays,
		Byhour: []int{0}, Byminute: []int{0}, Bysecond: []int{0},
	}
	f := p.dayFields()
	for _, d := range p.Weekdays {
		day := libraryWeek[d.Day]
		l.option.Byweekday = append(l.option.Byweekday, day.Nth(d.N))
		f.Week |= 1 << d.Day
	}
	if len(p.Weekdays)+len(p.Days)+len(p.YearDays) == 0 {
		l.option.Byweekday = libraryWeek[:]
	}
	l.perhaps = newFieldSet(f.normal(), nil)
	_, ok := l.nextDay(minDay)
	l.never = !ok
	return l
}

func (l *libraryDays) daysOf(period int) []int {
	option := l.option
	begin, end := l.begin(period), l.begin(period+1)
	option.Dtstart = time.Unix(int64(begin)*daySeconds, 0).UTC()
	option.Until = time.Unix(int64(end-1)*daySeconds, 0).UTC()
	rule, err := rrule.NewRRule(option)
	if err != nil {
		return nil // unreachable: readParts has checked the plan
	}
	var out []int
	next := rule.Iterator()
	for at, ok := next(); ok; at, ok = next() {
		day := int(floorDiv(at.Unix(), daySeconds))
		if len(l.weekNos) == 0 || l.inWeeks(day) {
			out = append(out, day)
		}
	}
	return out
}

// inWeeks reports whether a day's week is in BYWEEKNO. Week 1 is the first week with four days of January (RFC 5545 section 3.3.10).
func (l *libraryDays) inWeeks(day int) bool {
	begin := day - floorMod(weekday(day)-l.week, 7)
	year, _, _ := civil(begin + 3)
	first, next := l.firstWeek(year), l.firstWeek(year+1)
	n, weeks := (begin-first)/7+1, (next-first)/7
	return slices.Contains(l.weekNos, n) || slices.Contains(l.weekNos, n-weeks-1)
}

func (l *libraryDays) firstWeek(year int) int {
	fourth := dayNumber(year, 1, 4)
	return fourth - floorMod(weekday(fourth)-l.week, 7)
}

func (l *libraryDays) daysFrom(period int) (int, []int, bool) {
	day := max(l.begin(period), minDay)
	for {
		d, ok := l.perhaps.nextDay(day)
		if !ok || l.never {
			return 0, nil, false
		}
		p := l.period(d)
		if to := l.up(p); to != p {
			day = l.begin(to)
			continue
		}
		if days := l.daysOf(p); len(days) > 0 {
			return p, days, true
		}
		day = l.begin(p + 1)
	}
}

func (l *libraryDays) daysUntil(period int) (int, []int, bool) {
	day := min(l.begin(period+1)-1, maxDay)
	for {
		d, ok := l.perhaps.prevDay(day)
		if !ok || l.never {
			return 0, nil, false
		}
		p := l.period(d)
		if to := l.down(p); to != p {
			day = l.begin(to+1) - 1
			continue
		}
		if days := l.daysOf(p); len(days) > 0 {
			return p, days, true
		}
		day = l.begin(p) - 1
	}
}

func (l *libraryDays) nextDay(day int) (int, bool) {
	for p, days, ok := l.daysFrom(l.period(day)); ok; p, days, ok = l.daysFrom(p + 1) {
		for _, one := range days {
			if one >= day {
				return one, true
			}
		}
	}
	return 0, false
}

func (l *libraryDays) prevDay(day int) (int, bool) {
	for p, days, ok := l.daysUntil(l.period(day)); ok; p, days, ok = l.daysUntil(p - 1) {
		for _, one := range slices.Backward(days) {
			if one <= day {
				return one, true
			}
		}
	}
	return 0, false
}
