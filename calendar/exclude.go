package calendar

import (
	"fmt"
)

// The limits of exclusions.
const (
	maxTimed     = 64        // calendars with times
	maxExclWork  = 4_000_000 // steps to build the tables
	maxMoveDays  = 366       // how far "then" moves a tick
	monthsOfTime = (maxYear - minYear + 1) * 12
)

func (k *compiler) readExclude() {
	e := k.spec.Exclude
	if e == nil {
		return
	}
	w := &without{}
	switch e.Then {
	case "", "drop":
	case "next", "previous":
		w.Then = e.Then
	default:
		k.faults.add("/exclude/then", "unknown_value", "then is drop, next or previous, not %q", e.Then)
	}
	if len(e.Calendars) > maxMembers || len(e.Dates) > maxDates || len(e.Named) > maxMembers {
		k.faults.add("/exclude", "too_many", "at most %d calendars, %d dates and %d names", maxMembers, maxDates, maxMembers)
		return
	}
	for i, c := range e.Calendars {
		before := len(k.faults)
		f, wholeDays := k.calendar(fmt.Sprintf("/exclude/calendars/%d", i), c)
		switch {
		case len(k.faults) > before:
		case wholeDays:
			w.Days = append(w.Days, f)
		default:
			w.Times = append(w.Times, f)
		}
	}
	for i, text := range e.Dates {
		d, err := ParseDate(text)
		if err != nil {
			k.faults.add(fmt.Sprintf("/exclude/dates/%d", i), "date_syntax", "%s", err)
			continue
		}
		w.Dates = append(w.Dates, d.day())
	}
	for i, name := range e.Named {
		if !k.knows(name) {
			k.faults.add(fmt.Sprintf("/exclude/named/%d", i), "unknown_calendar", "there is no calendar %.128q", name)
			continue
		}
		w.Named = append(w.Named, name)
	}
	if len(w.Times) > maxTimed {
		k.faults.add("/exclude/calendars", "too_many", "at most %d calendars with times", maxTimed)
	}
	if len(w.Days)+len(w.Times)+len(w.Dates)+len(w.Named) > 0 {
		k.plan.Without = w
	}
}

func (c Context) knows(name string) bool {
	if c.Named == nil {
		return false
	}
	_, ok := c.Named(name)
	return ok
}

// exclusions are the whole days and the exact times that a timing excludes. They apply to nominal wall times.
type exclusions struct {
	days  *dates
	times []timed
	then  string
	work  int                  // steps so far to build the tables
	dead  map[[3]uint64]*dates // by times of day, while a timing is built
}

// timed has the fields of exact times, and a table of their days.
type timed struct {
	fields
	days *dates
}

// exclusions returns the tables of the plan's exclusions, or nil.
func (p plan) exclusions(c Context, faults *Faults) *exclusions {
	w := p.Without
	if w == nil {
		return nil
	}
	out := &exclusions{days: &dates{}, then: w.Then, dead: map[[3]uint64]*dates{}}
	for i := range w.Days {
		out.days.addFields(&w.Days[i])
	}
	for _, day := range w.Dates {
		out.days.add(day)
	}
	for i, name := range w.Named {
		if !c.knows(name) {
			faults.add(fmt.Sprintf("/exclude/named/%d", i), "unknown_calendar", "there is no calendar %.128q", name)
			continue
		}
		list, _ := c.Named(name)
		for _, d := range list {
			out.days.add(d.day())
		}
	}
	for _, f := range w.Times {
		t := timed{f, &dates{}}
		t.days.addFields(&f)
		out.times = append(out.times, t)
	}
	return out
}

// addFields adds the days that match the fields.
func (d *dates) addFields(f *fields) {
	for i := range d {
		year, month := minYear+i/12, i%12+1
		if f.Months>>month&1 != 0 && f.hasYear(year) {
			d[i] |= f.days(year, month)
		}
	}
}

// blocked returns the days without any remaining time, for a set with its times of day in times. These are the excluded whole days,
// unless they are moved, and the days with every time excluded. It returns false if the computation costs too much.
func (e *exclusions) blocked(times *fields, move bool) (*dates, bool) {
	whole := e.days
	if move {
		whole = &dates{}
	}
	if len(e.times) == 0 {
		return whole, true
	}
	key := [3]uint64{uint64(times.Hours), times.Minutes, times.Seconds}
	dead := e.dead[key]
	if dead == nil {
		dead = &dates{}
		e.dead[key] = dead
		if !e.findDead(times, dead) {
			return nil, false
		}
	}
	if move {
		return dead, true
	}
	both := *dead
	for i, days := range whole {
		both[i] |= days
	}
	return &both, true
}

// findDead marks the days with every time of day excluded. Days that match the same calendars have the same result, which it caches.
func (e *exclusions) findDead(times *fields, dead *dates) bool {
	known := map[uint64]bool{}
	var active []*timed
	for i := range monthsOfTime {
		any := uint32(0)
		for j := range e.times {
			any |= e.times[j].days[i]
		}
		e.work += len(e.times)
		for ; any != 0; any &= any - 1 {
			bit := any & -any
			set := uint64(0)
			for j := range e.times {
				if e.times[j].days[i]&bit != 0 {
					set |= 1 << j
				}
			}
			e.work += len(e.times)
			gone, ok := known[set]
			if !ok {
				active = active[:0]
				for j := range e.times {
					if set>>j&1 != 0 {
						active = append(active, &e.times[j])
					}
				}
				_, left, steps := leftTime(times, active, 0)
				e.work += steps
				gone = !left
				known[set] = gone
			}
			if gone {
				dead[i] |= bit
			}
			if e.work > maxExclWork {
				return false
			}
		}
	}
	return true
}

// on returns the calendars with times that match a day.
func (e *exclusions) on(day int, buf []*timed) []*timed {
	buf = buf[:0]
	for i := range e.times {
		if e.times[i].days.has(day) {
			buf = append(buf, &e.times[i])
		}
	}
	return buf
}

// leftTime returns the first second at or after sec that is in times and that no active calendar excludes. steps is the cost of the
// search.
func leftTime(times *fields, active []*timed, sec int) (found int, ok bool, steps int) {
	var here []*timed
	for h := sec / 3600; h < 24; h++ {
		if times.Hours>>h&1 == 0 {
			continue
		}
		from := max(sec-h*3600, 0)
		var all bool
		here, all = inHour(times, active, h, here)
		steps += len(active)
		if all {
			continue
		}
		for m := from / 60; m < 60; m++ {
			if times.Minutes>>m&1 == 0 {
				continue
			}
			left := times.Seconds
			for _, a := range here {
				if a.Minutes>>m&1 != 0 {
					left &^= a.Seconds
				}
			}
			steps += len(here) + 1
			if s := max(from-m*60, 0); s < 60 && left>>s != 0 {
				return h*3600 + m*60 + lowBit(left>>s<<s), true, steps
			}
		}
	}
	return 0, false, steps
}

// leftTimeBefore is leftTime backwards: it returns the last such second at or before sec.
func leftTimeBefore(times *fields, active []*timed, sec int) (int, bool) {
	var here []*timed
	for h := sec / 3600; h >= 0; h-- {
		if times.Hours>>h&1 == 0 {
			continue
		}
		until := min(sec-h*3600, 3599)
		var all bool
		if here, all = inHour(times, active, h, here); all {
			continue
		}
		for m := until / 60; m >= 0; m-- {
			if times.Minutes>>m&1 == 0 {
				continue
			}
			left := times.Seconds
			for _, a := range here {
				if a.Minutes>>m&1 != 0 {
					left &^= a.Seconds
				}
			}
			if left &= 2<<min(until-m*60, 59) - 1; left != 0 {
				return h*3600 + m*60 + highBit(left), true
			}
		}
	}
	return 0, false
}

// inHour returns the active calendars that match an hour. all reports that one of them excludes all times in that hour.
func inHour(times *fields, active []*timed, h int, buf []*timed) (here []*timed, all bool) {
	buf = buf[:0]
	for _, a := range active {
		if a.Hours>>h&1 == 0 {
			continue
		}
		if times.Minutes&^a.Minutes == 0 && times.Seconds&^a.Seconds == 0 {
			return buf, true
		}
		buf = append(buf, a)
	}
	return buf, false
}

// Named returns the sorted names of the calendars that the timing excludes.
func (t *Timing) Named() []string {
	if t.plan.Without == nil {
		return nil
	}
	return t.plan.Without.Named
}
