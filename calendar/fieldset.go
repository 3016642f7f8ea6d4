package calendar

import "math/bits"

// A wallSet is a set of nominal wall times: the times of a spec's member before a zone is applied.
type wallSet interface {
	next(w wall) (wall, bool) // the first at or after w
	prev(w wall) (wall, bool) // the last at or before w
}

const (
	minWall = 0              // 1970-01-01T00:00:00
	maxWall = 5711817600 - 1 // 2150-12-31T23:59:59
)

type dayRule uint8

const (
	noDay dayRule = iota
	everyDay
	byWeekday
	byMonth
)

// fieldSet is the set of the wall times that match fields, without blocked days.
type fieldSet struct {
	fields
	rule        dayRule
	first, last int    // the first and the last time of a day
	blocked     *dates // nil: none
}

func newFieldSet(f fields, blocked *dates) *fieldSet {
	s := &fieldSet{fields: f, rule: byMonth, blocked: blocked}
	if f.times() == 0 {
		s.rule = noDay
		return s
	}
	s.first, _ = f.nextTime(0)
	s.last, _ = f.prevTime(daySeconds - 1)
	switch {
	case blocked != nil:
	case f.everyDay() && f.Week == allWeek && f.everyWeek():
		s.rule = everyDay
	case f.everyWeek():
		s.rule = byWeekday
	}
	if _, ok := s.nextDay(minDay); !ok {
		s.rule = noDay
	}
	return s
}

func (s *fieldSet) next(w wall) (wall, bool) {
	if w < minWall {
		w = minWall
	}
	day := int(uint64(w) / daySeconds)
	sec := int(w) - day*daySeconds
	if s.rule == byMonth {
		return s.nextInMonth(day, sec)
	}
	if s.onDay(day) {
		if t, ok := s.nextTime(sec); ok {
			return w + wall(t-sec), true
		}
	}
	day, ok := s.nextDay(day + 1)
	if !ok {
		return 0, false
	}
	return wall(day)*daySeconds + wall(s.first), true
}

// nextInMonth is next for sets that find days by month. It computes the current month once, for today and the days after it.
func (s *fieldSet) nextInMonth(day, sec int) (wall, bool) {
	if day > maxDay {
		return 0, false
	}
	y, m, d := civil(day)
	mask := s.monthDays(y, m)
	if mask>>d&1 != 0 {
		if t, ok := s.nextTime(sec); ok {
			return wall(day)*daySeconds + wall(t), true
		}
	}
	if rest := mask >> (d + 1) << (d + 1); rest != 0 {
		return wall(day+bits.TrailingZeros32(rest)-d)*daySeconds + wall(s.first), true
	}
	if day, ok := s.nextMonth(y, m+1, 1); ok {
		return wall(day)*daySeconds + wall(s.first), true
	}
	return 0, false
}

func (s *fieldSet) prev(w wall) (wall, bool) {
	if w > maxWall {
		w = maxWall
	}
	if w < minWall {
		return 0, false
	}
	day, sec := int(w/daySeconds), int(w%daySeconds)
	if s.onDay(day) {
		if t, ok := s.prevTime(sec); ok {
			return w + wall(t-sec), true
		}
	}
	day, ok := s.prevDay(day - 1)
	if !ok {
		return 0, false
	}
	return wall(day)*daySeconds + wall(s.last), true
}

// onDay reports whether a day at or after minDay matches.
func (s *fieldSet) onDay(day int) bool {
	if uint(day) > uint(maxDay) {
		return false
	}
	switch s.rule {
	case everyDay:
		return true
	case byWeekday:
		return s.Week>>(uint(day+4)%7)&1 != 0
	case byMonth:
		y, m, d := civil(day)
		return s.monthDays(y, m)>>d&1 != 0
	}
	return false
}

// monthDays returns the matching days of a month as bits.
func (s *fieldSet) monthDays(year, month int) uint32 {
	if s.Months>>month&1 == 0 || !s.hasYear(year) {
		return 0
	}
	mask := s.days(year, month)
	if s.blocked != nil {
		mask &^= s.blocked.month(year, month)
	}
	return mask
}

// nextDay returns the first matching day at or after day.
func (s *fieldSet) nextDay(day int) (int, bool) {
	if day > maxDay {
		return 0, false
	}
	switch s.rule {
	case everyDay:
		return day, true
	case byWeekday:
		turn := uint(day+4) % 7
		week := uint(s.Week)
		day += bits.TrailingZeros((week >> turn) | (week << (7 - turn)))
		return day, day <= maxDay
	case noDay:
		return 0, false
	}
	return s.nextMonth(civil(day))
}

// nextMonth returns the first matching day at or after a date. The month of the date may be 13.
func (s *fieldSet) nextMonth(y, m, d int) (int, bool) {
	for y <= maxYear {
		rest := s.Months >> m
		if rest == 0 || !s.hasYear(y) {
			y, m, d = s.yearFrom(y+1), 1, 1
			continue
		}
		if skip := bits.TrailingZeros16(rest); skip > 0 {
			m, d = m+skip, 1
		}
		mask := s.days(y, m)
		if s.blocked != nil {
			mask &^= s.blocked.month(y, m)
		}
		if mask = mask >> d << d; mask != 0 {
			return dayNumber(y, m, bits.TrailingZeros32(mask)), true
		}
		m, d = m+1, 1
	}
	return 0, false
}

// prevDay returns the last matching day at or before day.
func (s *fieldSet) prevDay(day int) (int, bool) {
	if day < minDay {
		return 0, false
	}
	switch s.rule {
	case everyDay:
		return day, true
	case byWeekday:
		for s.Week>>(uint(day+4)%7)&1 == 0 {
			day--
		}
		return day, day >= minDay
	case noDay:
		return 0, false
	}
	y, m, d := civil(day)
	for y >= minYear {
		rest := s.Months & (2<<m - 1)
		if rest == 0 || !s.hasYear(y) {
			y, m, d = y-1, 12, 31
			continue
		}
		if last := bits.Len16(rest) - 1; last < m {
			m, d = last, 31
		}
		mask := s.days(y, m)
		if s.blocked != nil {
			mask &^= s.blocked.month(y, m)
		}
		if mask &= uint32(uint64(2)<<d - 1); mask != 0 {
			return dayNumber(y, m, bits.Len32(mask)-1), true
		}
		m, d = m-1, 31
		if m == 0 {
			y, m = y-1, 12
		}
	}
	return 0, false
}

// yearFrom returns the first matching year at or after year, or a year above maxYear.
func (s *fieldSet) yearFrom(year int) int {
	for year <= maxYear && !s.hasYear(year) {
		year++
	}
	return year
}
