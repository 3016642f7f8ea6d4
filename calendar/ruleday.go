package calendar

import (
	"iter"
	"math/bits"
	"slices"
)

// byPeriod is the set of the wall times of a rule by the day, week, month or year. Its days all have the same times. BYSETPOS may select
// some of the times in each period.
type byPeriod struct {
	periods
	days   daySet
	times  *fields
	setPos []int
	never  bool // BYSETPOS selects nothing in any period
}

// daySet is the set of a rule's days.
type daySet interface {
	nextDay(day int) (int, bool)             // the first at or after day
	prevDay(day int) (int, bool)             // the last at or before day
	daysFrom(period int) (int, []int, bool)  // the first period at or after period that has days, and its days in order
	daysUntil(period int) (int, []int, bool) // the last period at or before period that has days, and its days in order
}

func newByPeriod(p *rulePlan) *byPeriod {
	first, _ := splitWall(p.Start)
	r := &byPeriod{times: p.times(), setPos: p.SetPos}
	r.periods = periods{freq: p.Freq, week: p.Week, interval: p.Interval}
	r.first = r.period(first)
	if f, ok := p.fields(); ok {
		r.days = &steppedDays{r.periods, newFieldSet(f, nil)}
	} else {
		r.days = newLibraryDays(p, r.periods)
	}
	if len(r.setPos) > 0 {
		_, ok := r.next(minWall)
		r.never = !ok
	}
	return r
}

// periods numbers days, weeks, months or years, and selects every interval-th one from the first.
type periods struct {
	freq     frequency
	week     int // the weekday on which weeks begin
	interval int
	first    int
}

// period returns the number of a day's period.
func (r *periods) period(day int) int {
	switch r.freq {
	case perYear:
		y, _, _ := civil(day)
		return y
	case perMonth:
		y, m, _ := civil(day)
		return y*12 + m - 1
	case perWeek:
		return floorDiv(day+4-r.week, 7)
	}
	return day
}

// begin returns the first day of a period.
func (r *periods) begin(period int) int {
	switch r.freq {
	case perYear:
		return dayNumber(period, 1, 1)
	case perMonth:
		return dayNumber(period/12, period%12+1, 1)
	case perWeek:
		return period*7 - 4 + r.week
	}
	return period
}

// up returns the first selected period at or after period.
func (r *periods) up(period int) int { return period + floorMod(r.first-period, r.interval) }

// down returns the last selected period at or before period.
func (r *periods) down(period int) int { return period - floorMod(period-r.first, r.interval) }

// steppedDays is the set of the days in selected periods that match fields. A search alternates between the two: each continues at the
// other's result, until both agree.
type steppedDays struct {
	periods
	set *fieldSet
}

func (s *steppedDays) nextDay(day int) (int, bool) {
	for {
		d, ok := s.set.nextDay(max(day, minDay))
		if !ok {
			return 0, false
		}
		p := s.period(d)
		to := s.up(p)
		if to == p {
			return d, true
		}
		day = s.begin(to)
	}
}

func (s *steppedDays) prevDay(day int) (int, bool) {
	for {
		d, ok := s.set.prevDay(min(day, maxDay))
		if !ok {
			return 0, false
		}
		p := s.period(d)
		to := s.down(p)
		if to == p {
			return d, true
		}
		day = s.begin(to+1) - 1
	}
}

func (s *steppedDays) daysFrom(period int) (int, []int, bool) {
	d, ok := s.nextDay(s.begin(period))
	return s.period(d), s.daysOf(s.period(d)), ok
}

func (s *steppedDays) daysUntil(period int) (int, []int, bool) {
	d, ok := s.prevDay(s.begin(period+1) - 1)
	return s.period(d), s.daysOf(s.period(d)), ok
}

func (s *steppedDays) daysOf(period int) []int {
	var out []int
	end := s.begin(period + 1)
	for d, ok := s.set.nextDay(max(s.begin(period), minDay)); ok && d < end; d, ok = s.set.nextDay(d + 1) {
		out = append(out, d)
	}
	return out
}

func (r *byPeriod) next(w wall) (wall, bool) {
	w = max(w, minWall)
	day, sec := splitWall(w)
	if len(r.setPos) > 0 {
		if r.never {
			return 0, false
		}
		for p, days, ok := r.days.daysFrom(r.period(day)); ok; p, days, ok = r.days.daysFrom(p + 1) {
			for _, at := range r.pick(days) {
				if at >= w {
					return at, true
				}
			}
		}
		return 0, false
	}
	d, ok := r.days.nextDay(day)
	if ok && d == day {
		if t, ok := r.times.nextTime(sec); ok {
			return w + wall(t-sec), true
		}
		d, ok = r.days.nextDay(day + 1)
	}
	t, _ := r.times.nextTime(0)
	return wall(d)*daySeconds + wall(t), ok
}

func (r *byPeriod) prev(w wall) (wall, bool) {
	w = min(w, maxWall)
	day, sec := splitWall(w)
	if len(r.setPos) > 0 {
		if r.never {
			return 0, false
		}
		for p, days, ok := r.days.daysUntil(r.period(day)); ok; p, days, ok = r.days.daysUntil(p - 1) {
			for _, at := range slices.Backward(r.pick(days)) {
				if at <= w {
					return at, true
				}
			}
		}
		return 0, false
	}
	d, ok := r.days.prevDay(day)
	if ok && d == day {
		if t, ok := r.times.prevTime(sec); ok {
			return w + wall(t-sec), true
		}
		d, ok = r.days.prevDay(day - 1)
	}
	t, _ := r.times.prevTime(daySeconds - 1)
	return wall(d)*daySeconds + wall(t), ok
}

// all yields the wall times from the first period on, in order.
func (r *byPeriod) all() iter.Seq[wall] {
	return func(yield func(wall) bool) {
		if r.never {
			return
		}
		for p, days, ok := r.days.daysFrom(r.first); ok; p, days, ok = r.days.daysFrom(p + 1) {
			if len(r.setPos) > 0 {
				for _, w := range r.pick(days) {
					if !yield(w) {
						return
					}
				}
				continue
			}
			for _, day := range days {
				for sec, ok := r.times.nextTime(0); ok; sec, ok = r.times.nextTime(sec + 1) {
					if !yield(wall(day)*daySeconds + wall(sec)) {
						return
					}
				}
			}
		}
	}
}

// pick returns the wall times at the positions of BYSETPOS, among those of a period's days.
func (r *byPeriod) pick(days []int) []wall {
	var out []wall
	count := r.times.times()
	size := len(days) * count
	for _, pos := range r.setPos {
		n := pos - 1
		if pos < 0 {
			n = size + pos
		}
		if n >= 0 && n < size {
			out = append(out, wall(days[n/count])*daySeconds+wall(r.times.nthTime(n%count)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nthTime returns the n-th matching time of a day; 0 is the first.
func (f *fields) nthTime(n int) int {
	minutes, seconds := bits.OnesCount64(f.Minutes), bits.OnesCount64(f.Seconds)
	return nthBit(uint64(f.Hours), n/seconds/minutes)*3600 + nthBit(f.Minutes, n/seconds%minutes)*60 + nthBit(f.Seconds, n%seconds)
}

func nthBit(mask uint64, n int) int {
	for range n {
		mask &= mask - 1
	}
	return bits.TrailingZeros64(mask)
}
