package calendar

import (
	"iter"
	"math/bits"
	"slices"
	"time"

	"github.com/teambition/rrule-go"
)

// dayExpansion is the walls of a rule by the day, week, month or year. The library expands its days, and those alone: as floating
// dates, without COUNT and UNTIL, and from the period (the year, month, week or day) at hand rather than from DTSTART. Times of
// day and BYSETPOS are ours, and so is BYWEEKNO, which the library gets wrong where years meet.
type dayExpansion struct {
	plan  *rulePlan
	times *fields
	count int // of times of a day
	from  int // DTSTART's day
	opt   rrule.ROption
}

func newDayExpansion(p *rulePlan) *dayExpansion {
	r := &dayExpansion{plan: p, times: p.times()}
	r.count = r.times.times()
	r.from, _ = splitWall(p.Start)
	r.opt = rrule.ROption{
		Freq:     [...]rrule.Frequency{rrule.YEARLY, rrule.MONTHLY, rrule.WEEKLY, rrule.DAILY}[p.Freq],
		Interval: p.Interval, Wkst: libraryDays[p.Week], Until: time.Unix(int64(maxDay)*daySeconds, 0).UTC(),
		Bymonth: p.Months, Bymonthday: p.Days, Byyearday: p.YearDays,
		Byhour: []int{0}, Byminute: []int{0}, Bysecond: []int{0},
	}
	for _, d := range p.Weekdays {
		day := libraryDays[d.Day]
		r.opt.Byweekday = append(r.opt.Byweekday, day.Nth(d.N))
	}
	if len(p.WeekNos) > 0 && len(p.Weekdays)+len(p.Days)+len(p.YearDays) == 0 {
		r.opt.Byweekday = libraryDays[:]
	}
	return r
}

var libraryDays = [7]rrule.Weekday{rrule.SU, rrule.MO, rrule.TU, rrule.WE, rrule.TH, rrule.FR, rrule.SA}

// period is the number of the period that a day lies in, counted in the rule's unit.
func (r *dayExpansion) period(day int) int {
	switch r.plan.Freq {
	case perYear:
		y, _, _ := civil(day)
		return y
	case perMonth:
		y, m, _ := civil(day)
		return y*12 + m - 1
	case perWeek:
		return floorDiv(day+4-r.plan.Week, 7)
	}
	return day
}

// begin is the first day of a period.
func (r *dayExpansion) begin(period int) int {
	switch r.plan.Freq {
	case perYear:
		return dayNumber(period, 1, 1)
	case perMonth:
		return dayNumber(floorDiv(period, 12), floorMod(period, 12)+1, 1)
	case perWeek:
		return period*7 - 4 + r.plan.Week
	}
	return period
}

// base is the last period of the rule at or before that of a day, back more periods.
func (r *dayExpansion) base(day, back int) int {
	first := r.period(r.from)
	n := floorDiv(r.period(day)-first, r.plan.Interval) - back
	return first + max(n, 0)*r.plan.Interval
}

// stream is the rule's days from the beginning of a period on, in order.
func (r *dayExpansion) stream(period int) iter.Seq[int] {
	return func(yield func(int) bool) {
		opt := r.opt
		opt.Dtstart = time.Unix(int64(r.begin(period))*daySeconds, 0).UTC()
		rule, err := rrule.NewRRule(opt)
		if err != nil {
			return // not reached: the plan is checked
		}
		next := rule.Iterator()
		for at, ok := next(); ok; at, ok = next() {
			day := int(at.Unix() / daySeconds)
			if len(r.plan.WeekNos) > 0 && !r.inWeek(day) {
				continue
			}
			if !yield(day) {
				return
			}
		}
	}
}

// inWeek says whether a day's week of its year (RFC 5545 section 3.3.10: the first has four days of January at least) is among
// BYWEEKNO.
func (r *dayExpansion) inWeek(day int) bool {
	monday := day - floorMod(weekday(day)-r.plan.Week, 7)
	year, _, _ := civil(monday + 3)
	first := dayNumber(year, 1, 4)
	first -= floorMod(weekday(first)-r.plan.Week, 7)
	next := dayNumber(year+1, 1, 4)
	next -= floorMod(weekday(next)-r.plan.Week, 7)
	n, weeks := (monday-first)/7+1, (next-first)/7
	return slices.Contains(r.plan.WeekNos, n) || slices.Contains(r.plan.WeekNos, n-weeks-1)
}

// walls are the rule's wall times from a period on, in order, at days up to until.
func (r *dayExpansion) walls(period, until int) iter.Seq[wall] {
	return func(yield func(wall) bool) {
		if len(r.plan.SetPos) > 0 {
			r.positions(period, until, yield)
			return
		}
		for day := range r.stream(period) {
			if day > until {
				return
			}
			for sec, ok := r.times.nextTime(0); ok; {
				if !yield(wall(day)*daySeconds + wall(sec)) {
					return
				}
				if sec++; sec == daySeconds {
					break
				}
				sec, ok = r.times.nextTime(sec)
			}
		}
	}
}

// positions yields the walls that BYSETPOS picks of each period's.
func (r *dayExpansion) positions(period, until int, yield func(wall) bool) {
	var days []int
	for day := range r.stream(period) {
		if len(days) > 0 && r.period(day) != r.period(days[0]) {
			for _, w := range r.pick(days) {
				if !yield(w) {
					return
				}
			}
			days = days[:0]
		}
		if day > until {
			return
		}
		days = append(days, day)
	}
	for _, w := range r.pick(days) {
		if !yield(w) {
			return
		}
	}
}

// pick is the walls at the positions of BYSETPOS among those of a period's days.
func (r *dayExpansion) pick(days []int) []wall {
	var out []wall
	size := len(days) * r.count
	for _, pos := range r.plan.SetPos {
		n := pos - 1
		if pos < 0 {
			n = size + pos
		}
		if n < 0 || n >= size {
			continue
		}
		out = append(out, wall(days[n/r.count])*daySeconds+wall(r.nthTime(n%r.count)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nthTime is the nth time of a day, from 0.
func (r *dayExpansion) nthTime(n int) int {
	minutes, seconds := bits.OnesCount64(r.times.Minutes), bits.OnesCount64(r.times.Seconds)
	return nthBit(uint64(r.times.Hours), n/seconds/minutes)*3600 + nthBit(r.times.Minutes, n/seconds%minutes)*60 + nthBit(r.times.Seconds, n%seconds)
}

func nthBit(mask uint64, n int) int {
	for range n {
		mask &= mask - 1
	}
	return bits.TrailingZeros64(mask)
}

func (r *dayExpansion) next(w wall) (wall, bool) {
	w = max(w, r.plan.Start)
	if w > maxWall {
		return 0, false
	}
	day, sec := splitWall(w)
	if len(r.plan.SetPos) > 0 {
		for at := range r.walls(r.base(day, 0), maxDay) {
			if at >= w {
				return at, true
			}
		}
		return 0, false
	}
	first, _ := r.times.nextTime(0)
	for d := range r.stream(r.base(day, 0)) {
		if d == day {
			if t, ok := r.times.nextTime(sec); ok {
				return wall(d)*daySeconds + wall(t), true
			}
		}
		if d > day {
			return wall(d)*daySeconds + wall(first), true
		}
	}
	return 0, false
}

// prev looks through windows of periods that double as they go back.
func (r *dayExpansion) prev(w wall) (wall, bool) {
	w = min(w, maxWall)
	if w < r.plan.Start {
		return 0, false
	}
	day, sec := splitWall(w)
	last, _ := r.times.prevTime(daySeconds - 1)
	until := day
	for back := 0; ; back = 2*back + 1 {
		period := r.base(day, back)
		best, found := wall(0), false
		if len(r.plan.SetPos) > 0 {
			for at := range r.walls(period, r.begin(r.period(until)+1)-1) {
				if at > w {
					break
				}
				best, found = at, true
			}
		} else {
			for d := range r.stream(period) {
				if d > until {
					break
				}
				t, ok := last, true
				if d == day {
					t, ok = r.times.prevTime(sec)
				}
				if ok {
					best, found = wall(d)*daySeconds+wall(t), true
				}
			}
		}
		if found {
			return best, true
		}
		if period == r.period(r.from) {
			return 0, false
		}
		until = r.begin(period) - 1
	}
}
