package calendar

// moved is a set of wall times in which the times of excluded days move to the next or the previous free day, at most maxMoveDays away.
// A moved time keeps its time of day.
type moved struct {
	set   wallSet
	days  *dates
	back  bool // to the previous day
	alone bool // the set has the moved times only
}

func (m *moved) next(w wall) (wall, bool) {
	day, sec := splitWall(max(w, 0))
	for {
		if m.days.has(day) {
			sec = 0
		}
		free, ok := m.days.free(day, maxDay)
		if !ok {
			return 0, false
		}
		if at, ok := m.onDay(free, sec, daySeconds-1, false); ok {
			return wall(free)*daySeconds + wall(at), true
		}
		if day, ok = m.dayAfter(free); !ok {
			return 0, false
		}
		sec = 0
	}
}

// dayAfter returns the next free day after a free day that may have times: its own, or moved ones.
func (m *moved) dayAfter(day int) (int, bool) {
	from := day + 1
	if m.back { // the times of the following excluded days have moved to this day
		next, ok := m.days.free(from, maxDay)
		if !ok {
			return 0, false
		}
		from = next
	}
	on, ok := m.dayWith(from)
	if !ok {
		return 0, false
	}
	if !m.days.has(on) || !m.back {
		return m.days.free(on, maxDay)
	}
	return m.days.freeBefore(on, maxDay)
}

func (m *moved) prev(w wall) (wall, bool) {
	if w < 0 {
		return 0, false
	}
	day, sec := splitWall(min(w, maxWall))
	for {
		if m.days.has(day) {
			sec = daySeconds - 1
		}
		free, ok := m.days.freeBefore(day, maxDay)
		if !ok {
			return 0, false
		}
		if at, ok := m.onDay(free, 0, sec, true); ok {
			return wall(free)*daySeconds + wall(at), true
		}
		if day, ok = m.dayBefore(free); !ok {
			return 0, false
		}
		sec = daySeconds - 1
	}
}

// dayBefore is dayAfter backwards.
func (m *moved) dayBefore(day int) (int, bool) {
	until := day - 1
	if !m.back {
		prev, ok := m.days.freeBefore(until, maxDay)
		if !ok {
			return 0, false
		}
		until = prev
	}
	on, ok := m.dayWithBefore(until)
	if !ok {
		return 0, false
	}
	if !m.days.has(on) || m.back {
		return m.days.freeBefore(on, maxDay)
	}
	return m.days.free(on, maxDay)
}

// dayWith returns the first day at or after day with times of the set: any times, or with alone times that move.
func (m *moved) dayWith(day int) (int, bool) {
	for {
		if m.alone {
			taken, ok := m.days.taken(day)
			if !ok {
				return 0, false
			}
			day = taken
		}
		w, ok := m.set.next(wall(day) * daySeconds)
		if !ok {
			return 0, false
		}
		if day, _ = splitWall(w); !m.alone || m.days.has(day) {
			return day, true
		}
	}
}

// dayWithBefore is dayWith backwards: it returns the last such day at or before day.
func (m *moved) dayWithBefore(day int) (int, bool) {
	for {
		if m.alone {
			taken, ok := m.days.takenBefore(day)
			if !ok {
				return 0, false
			}
			day = taken
		}
		w, ok := m.set.prev(wall(day)*daySeconds + daySeconds - 1)
		if !ok {
			return 0, false
		}
		if day, _ = splitWall(w); !m.alone || m.days.has(day) {
			return day, true
		}
	}
}

// onDay returns the first or the last time of a free day from low to high. It considers the day's own times, and those of the adjacent
// excluded days.
func (m *moved) onDay(day, low, high int, last bool) (int, bool) {
	best, found := 0, false
	look := func(d int) {
		begin := wall(d) * daySeconds
		var at wall
		var ok bool
		if last {
			at, ok = m.set.prev(begin + wall(high))
		} else {
			at, ok = m.set.next(begin + wall(low))
		}
		sec := int(at - begin)
		if !ok || sec < low || sec > high {
			return
		}
		if !found || last == (sec > best) {
			best, found = sec, true
		}
	}
	if !m.alone {
		look(day)
	}
	step := -1
	if m.back {
		step = 1
	}
	for n := 1; n <= maxMoveDays && m.days.has(day+n*step); n++ {
		look(day + n*step)
	}
	return best, found
}

// shown is the set of the wall times that the zone's clock shows at a set of instants.
type shown struct {
	set  source
	zone *zone
}

func (s *shown) next(w wall) (wall, bool) {
	best, found := wall(0), false
	for i := s.zone.find(w - int64(s.zone.max)); ; i++ {
		begin, end, off := s.zone.starts[i], s.zone.end(i), s.zone.offset(i)
		if found && begin+int64(s.zone.min) > best {
			return best, true
		}
		at, _, ok := s.set.next(max(begin, w-off))
		if ok && at < end && (!found || at+off < best) {
			best, found = at+off, true
		}
		if i+1 == len(s.zone.starts) || !ok {
			return best, found
		}
		if !found {
			i = max(i, s.zone.find(at)-1)
		}
	}
}

func (s *shown) prev(w wall) (wall, bool) {
	best, found := wall(0), false
	for i := s.zone.find(w - int64(s.zone.min)); ; i-- {
		begin, end, off := s.zone.starts[i], s.zone.end(i), s.zone.offset(i)
		if found && end+int64(s.zone.max) < best {
			return best, true
		}
		at, _, ok := s.set.prev(min(end-1, w-off))
		if ok && at >= begin && (!found || at+off > best) {
			best, found = at+off, true
		}
		if i == 0 || !ok {
			return best, found
		}
		if !found {
			i = min(i, s.zone.find(at)+1)
		}
	}
}
