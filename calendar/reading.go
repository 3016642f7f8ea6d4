package calendar

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// mostListed is the maximum number of values that a reading lists. It counts more values instead.
const mostListed = 6

// Reading returns the timing in plain English, such as "at 09:00 on weekdays in New York".
func (t *Timing) Reading() string {
	p := t.plan
	var parts []string
	for i, f := range p.Fields {
		if i == mostListed {
			parts = append(parts, fmt.Sprintf("%d more", len(p.Fields)-i))
			break
		}
		parts = append(parts, f.reading())
	}
	for _, e := range p.Every {
		parts = append(parts, e.reading())
	}
	if p.Rule != nil {
		parts = append(parts, p.Rule.reading())
	}
	parts = append(parts, t.readMoments()...)
	parts = append(parts, t.relativeReading()...)
	text := strings.Join(parts, ", and ")
	if !t.zoneless() {
		text += " " + zoneReading(p.Zone)
	}
	if p.Without != nil {
		text += ", " + p.Without.reading()
	}
	if p.Start != nil {
		text += ", from " + t.stamp(*p.Start)
	}
	if p.End != nil {
		text += ", until " + t.stamp(*p.End)
	}
	if p.Jitter > 0 {
		text += ", spread over " + elapsedReading(p.Jitter)
	}
	return text
}

// zoneless reports whether the timing's instants do not depend on its zone.
func (t *Timing) zoneless() bool {
	return t.class == ClassElapsed && t.plan.Without == nil
}

func zoneReading(zone string) string {
	if zone == "UTC" || strings.HasPrefix(zone, "Etc/") {
		return "in " + strings.TrimPrefix(zone, "Etc/")
	}
	return "in " + strings.ReplaceAll(zone[strings.LastIndexByte(zone, '/')+1:], "_", " ")
}

func (t *Timing) stamp(at int64) string {
	return t.Local(time.Unix(at, 0)).Format("2006-01-02 15:04:05")
}

func (t *Timing) readMoments() []string {
	var list []string
	for _, w := range t.plan.Walls {
		list = append(list, time.Unix(w.Wall, 0).UTC().Format("2006-01-02 15:04:05"))
	}
	for _, at := range t.plan.Moments {
		list = append(list, t.stamp(at))
	}
	if len(list) == 0 {
		return nil
	}
	if len(list) > mostListed {
		return []string{fmt.Sprintf("at %d single times", len(list))}
	}
	return []string{"at " + and(list)}
}

func (f *fields) reading() string {
	clock, steady := f.clock()
	days := f.dayReading()
	if days == "" && !steady {
		days = "every day"
	}
	return strings.TrimSpace(clock + " " + days)
}

// clock describes the times of day. steady reports that every hour has times, so that the reading needs no "every day".
func (f *fields) clock() (text string, steady bool) {
	hours := bits.OnesCount32(f.Hours)
	if f.times() <= mostListed && hours < 24 {
		var list []string
		for sec, ok := f.nextTime(0); ok; sec, ok = f.nextTime(sec + 1) {
			one := fmt.Sprintf("%02d:%02d", sec/3600, sec/60%60)
			if sec%60 != 0 || f.Seconds != 1 {
				one += fmt.Sprintf(":%02d", sec%60)
			}
			list = append(list, one)
			if sec == daySeconds-1 {
				break
			}
		}
		return "at " + and(list), false
	}
	within := rhythm(f.Minutes, 60, "minute")
	if f.Seconds != 1 {
		within = rhythm(f.Seconds, 60, "second")
		if f.Minutes != allSixty {
			within += " of " + strings.TrimPrefix(rhythm(f.Minutes, 60, "minute"), "at ")
		}
	}
	if hours == 24 {
		if f.Seconds == 1 && f.Minutes&(f.Minutes-1) == 0 {
			if f.Minutes == 1 {
				return "every hour", true
			}
			return fmt.Sprintf("at %d minutes past every hour", bits.TrailingZeros64(f.Minutes)), true
		}
		if strings.HasPrefix(within, "at ") {
			within += " of every hour"
		}
		return within, true
	}
	low, high := bits.TrailingZeros32(f.Hours), bits.Len32(f.Hours)-1
	if step := evenStep(uint64(f.Hours), 24); step > 1 {
		return fmt.Sprintf("%s of every %s hour", within, ordinal(step)), false
	}
	if high-low+1 == hours {
		return fmt.Sprintf("%s from %02d:00 to %02d:59", within, low, high), false
	}
	return within + " of the hours " + and(numbers(uint64(f.Hours))), false
}

// rhythm describes a set of minutes or seconds.
func rhythm(mask uint64, size int, unit string) string {
	if bits.OnesCount64(mask) == size {
		return "every " + unit
	}
	if step := evenStep(mask, size); step > 1 {
		if low := bits.TrailingZeros64(mask); low > 0 {
			return fmt.Sprintf("every %d %ss from %s %d", step, unit, unit, low)
		}
		return fmt.Sprintf("every %d %ss", step, unit)
	}
	if mask&(mask-1) == 0 {
		return fmt.Sprintf("at %s %d", unit, bits.TrailingZeros64(mask))
	}
	return fmt.Sprintf("at %ss %s", unit, and(numbers(mask)))
}

// evenStep returns the distance between a set's values if it is the same everywhere in a cyclic field of the given size, otherwise 0.
func evenStep(mask uint64, size int) int {
	n := bits.OnesCount64(mask)
	if n < 2 || size%n != 0 {
		return 0
	}
	step := size / n
	low := bits.TrailingZeros64(mask)
	for i := range n {
		if mask>>(low+i*step)&1 == 0 {
			return 0
		}
	}
	return step
}

// dayReading describes the days. It returns "" for every day.
func (f *fields) dayReading() string {
	var month, week []string
	if f.Days != allDays {
		month = f.monthReading()
	}
	if f.Week != allWeek {
		week = f.weekReading()
	}
	text := ""
	switch {
	case len(month) > 0 && len(week) > 0 && f.Or:
		text = "on " + and(month) + " of the month and on " + and(week)
	case len(month) > 0 && len(week) > 0:
		text = "on " + and(month) + " of the month where it is one of " + and(week)
	case len(month) > 0:
		text = "on " + and(month) + " of the month"
	case len(week) > 0:
		text = "on " + and(week)
	}
	if f.Months != allMonth {
		var list []string
		for m := 1; m <= 12; m++ {
			if f.Months>>m&1 != 0 {
				list = append(list, time.Month(m).String())
			}
		}
		if text == "" {
			text = "every day"
		}
		text = strings.TrimSuffix(text, " of the month") + " in " + and(list)
		if len(month) > 0 && len(week) == 0 {
			text = "on " + and(month) + " of " + and(list)
		}
	}
	if f.Years != allYears {
		text = strings.TrimSpace(text + " in " + and(f.yearReading()))
	}
	return text
}

func (f *fields) yearReading() []string {
	var list []string
	for n := range lastYear - minYear + 1 {
		if f.Years[n/64]>>(n%64)&1 != 0 {
			list = append(list, fmt.Sprint(minYear+n))
		}
	}
	if len(list) > mostListed {
		return []string{fmt.Sprintf("%d years from %s to %s", len(list), list[0], list[len(list)-1])}
	}
	return list
}

func (f *fields) monthReading() []string {
	var list []string
	for day := 1; day <= 31; day++ {
		if f.Days>>day&1 != 0 {
			list = append(list, "the "+ordinal(day))
		}
	}
	if n := len(list); n > mostListed {
		list = []string{fmt.Sprintf("%d days", n)}
	}
	for n := range 31 {
		switch {
		case f.Last>>n&1 == 0:
		case n == 0:
			list = append(list, "the last day")
		default:
			list = append(list, fmt.Sprintf("%s before the last day", plural(n, "day")))
		}
	}
	for day := range 32 {
		switch {
		case f.Nearest>>day&1 == 0:
		case day == 0:
			list = append(list, "the last weekday")
		default:
			list = append(list, "the weekday nearest the "+ordinal(day))
		}
	}
	return list
}

func (f *fields) weekReading() []string {
	var list []string
	switch f.Week {
	case 0:
	case 0b0111110:
		list = append(list, "weekdays")
	case 0b1000001:
		list = append(list, "weekends")
	default:
		for d := range 7 {
			day := (d + 1) % 7
			if f.Week>>day&1 != 0 {
				list = append(list, time.Weekday(day).String()+"s")
			}
		}
	}
	for k := range 5 {
		for d := range 7 {
			if f.Nth[k]>>d&1 != 0 {
				list = append(list, fmt.Sprintf("the %s %s", ordinal(k+1), time.Weekday(d)))
			}
			if f.Back[k]>>d&1 != 0 {
				list = append(list, fmt.Sprintf("the %s %s", strings.TrimPrefix(ordinal(k+1)+" last", "1st "), time.Weekday(d)))
			}
		}
	}
	return list
}

func (e everyPlan) reading() string {
	text := "every " + elapsedReading(e.Every)
	switch {
	case e.Delay:
		return strings.TrimPrefix(text, "every ") + " after each run ends"
	case e.Civil:
		_, sec := splitWall(e.Phase)
		return text + fmt.Sprintf(" at %02d:%02d:%02d", sec/3600, sec/60%60, sec%60)
	}
	return text
}

func (p *rulePlan) reading() string {
	f, ok := p.fields()
	unit := []string{"year", "month", "week", "day", "hour", "minute", "second"}[p.Freq]
	text := "by a rule every " + unit
	if p.Interval > 1 {
		text = fmt.Sprintf("by a rule every %d %ss", p.Interval, unit)
	}
	switch {
	case ok && p.Freq <= perDay && p.Interval == 1 && len(p.SetPos) == 0:
		text = f.reading()
	case ok && p.Freq <= perDay && len(p.SetPos) == 0:
		text = strings.TrimSuffix(f.reading(), " every day") + text[len("by a rule"):]
	}
	text += " from " + time.Unix(p.Start, 0).UTC().Format(time.DateOnly)
	if p.Last != nil {
		text += " to " + time.Unix(max(*p.Last, 0), 0).UTC().Format(time.DateOnly)
	}
	if p.Until != nil {
		text += " to " + time.Unix(*p.Until, 0).UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	return text
}

func (w *without) reading() string {
	var list []string
	for i := range w.Days {
		days := w.Days[i].dayReading()
		if days == "" {
			days = "every day"
		}
		list = append(list, days)
	}
	for i := range w.Times {
		list = append(list, w.Times[i].reading())
	}
	if n := len(w.Dates); n > mostListed {
		list = append(list, fmt.Sprintf("on %d dates", n))
	} else if n > 0 {
		var days []string
		for _, d := range w.Dates {
			days = append(days, dateOf(d).String())
		}
		list = append(list, "on "+and(days))
	}
	for _, name := range w.Named {
		list = append(list, "on the days of "+name)
	}
	if len(list) > mostListed {
		list = append(list[:mostListed], fmt.Sprintf("%d more", len(list)-mostListed))
	}
	text := "except " + and(list)
	if w.Then != "" {
		text += ", moved to the " + w.Then + " day that is free"
	}
	return text
}
