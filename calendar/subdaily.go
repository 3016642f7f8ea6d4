package calendar

import "slices"

// subdaily is the set of the wall times of a rule by the hour, minute or second. Its units (hours, minutes or seconds) are those that the
// interval reaches from DTSTART and that the BY parts allow; each unit has the same offsets. A search alternates between the interval and
// the BY parts: each continues at the other's result, so that it never walks through either.
type subdaily struct {
	unit     int64 // seconds
	interval int64 // units
	phase    int64 // the unit of DTSTART, counted from 1970
	units    fields
	days     *fieldSet
	yearDays []int
	offsets  []int64 // within a unit, in order
}

func newSubdaily(p *rulePlan) *subdaily {
	s := &subdaily{unit: 1, interval: int64(p.Interval), yearDays: p.YearDays}
	s.units = fields{Hours: p.Hours, Minutes: p.Minutes, Seconds: p.Seconds}
	within := fields{Hours: 1, Minutes: 1, Seconds: 1}
	switch p.Freq {
	case perHour:
		s.unit = 3600
		within.Minutes, within.Seconds = p.Minutes, p.Seconds
		s.units.Minutes, s.units.Seconds = 1, 1
	case perMinute:
		s.unit = 60
		within.Seconds = p.Seconds
		s.units.Seconds = 1
	}
	s.phase = floorDiv(p.Start, s.unit)
	for sec, ok := within.nextTime(0); ok; sec, ok = within.nextTime(sec + 1) {
		s.offsets = append(s.offsets, int64(sec))
	}
	if len(p.SetPos) > 0 {
		s.offsets = pickOffsets(s.offsets, p.SetPos)
	}
	s.days = newFieldSet(p.dayFields().normal(), nil)
	return s
}

func pickOffsets(all []int64, positions []int) []int64 {
	var out []int64
	for _, pos := range positions {
		n := pos - 1
		if pos < 0 {
			n = len(all) + pos
		}
		if n >= 0 && n < len(all) {
			out = append(out, all[n])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// dayFrom returns the first day at or after day that the BY parts allow.
func (s *subdaily) dayFrom(day int) (int, bool) {
	for {
		d, ok := s.days.nextDay(day)
		if !ok || s.inYearDays(d) {
			return d, ok
		}
		day = d + 1
	}
}

// dayUntil returns the last day at or before day that the BY parts allow.
func (s *subdaily) dayUntil(day int) (int, bool) {
	for {
		d, ok := s.days.prevDay(day)
		if !ok || s.inYearDays(d) {
			return d, ok
		}
		day = d - 1
	}
}

func (s *subdaily) inYearDays(day int) bool {
	if len(s.yearDays) == 0 {
		return true
	}
	y, _, _ := civil(day)
	n := day - dayNumber(y, 1, 1) + 1
	length := 365
	if isLeap(y) {
		length++
	}
	return slices.Contains(s.yearDays, n) || slices.Contains(s.yearDays, n-length-1)
}

func (s *subdaily) next(w wall) (wall, bool) {
	steps := 0
	return s.search(w, &steps)
}

// search is next that adds the number of its steps to steps.
func (s *subdaily) search(w wall, steps *int) (wall, bool) {
	w = max(w, 0)
	u := floorDiv(w, s.unit)
	for ; ; *steps++ {
		u += floorMod(s.phase-u, s.interval)
		at := u * s.unit
		if at > maxWall {
			return 0, false
		}
		day, sec := splitWall(at)
		if d, ok := s.dayFrom(day); !ok {
			return 0, false
		} else if d > day {
			u = int64(d) * daySeconds / s.unit
			continue
		}
		t, ok := s.units.nextTime(sec)
		if !ok {
			u = int64(day+1) * daySeconds / s.unit
			continue
		}
		if t > sec {
			u = (int64(day)*daySeconds + int64(t)) / s.unit
			continue
		}
		for _, offset := range s.offsets {
			if at+offset >= w {
				return at + offset, true
			}
		}
		u++
	}
}

func (s *subdaily) prev(w wall) (wall, bool) {
	w = min(w, maxWall)
	u := floorDiv(w, s.unit)
	for {
		u -= floorMod(u-s.phase, s.interval)
		at := u * s.unit
		if at < 0 {
			return 0, false
		}
		day, sec := splitWall(at)
		if d, ok := s.dayUntil(day); !ok {
			return 0, false
		} else if d < day {
			u = int64(d+1)*daySeconds/s.unit - 1
			continue
		}
		t, ok := s.units.prevTime(sec)
		if !ok {
			u = int64(day)*daySeconds/s.unit - 1
			continue
		}
		if t < sec {
			u = (int64(day)*daySeconds + int64(t)) / s.unit
			continue
		}
		for i := len(s.offsets) - 1; i >= 0; i-- {
			if at+s.offsets[i] <= w {
				return at + s.offsets[i], true
			}
		}
		u--
	}
}
