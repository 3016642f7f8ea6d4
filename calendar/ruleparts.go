package calendar

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

var (
	frequencies = []string{"YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"}
	ruleDays    = []string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}
)

// ruleParts parses the parts of an RRULE into a plan.
type ruleParts struct {
	*ruleText
	plan  rulePlan
	has   map[string]int // the offset of each part's value
	count int
	until *ruleTime
}

// readParts parses the parts of the rule, checks their combination (RFC 5545 section 3.3.10), and adds the parts that DTSTART implies.
func (r *ruleText) readParts() *ruleParts {
	p := &ruleParts{ruleText: r, has: map[string]int{}}
	p.plan = rulePlan{Interval: 1, Start: r.start, Week: 1}
	for _, part := range r.parts {
		p.has[part.name] = part.at
		p.part(part)
	}
	if _, ok := p.has["FREQ"]; !ok {
		r.fault(0, "rrule_syntax", "the rule has no FREQ")
	}
	if len(r.faults) > 0 {
		return p
	}
	p.checkTogether()
	if len(r.faults) > 0 {
		return p
	}
	p.imply()
	return p
}

func (p *ruleParts) part(part rulePart) {
	q := &p.plan
	switch part.name {
	case "FREQ":
		i := slices.Index(frequencies, part.value)
		if i < 0 {
			p.fault(part.at, "rrule_syntax", "%.20q is not a FREQ", part.value)
			return
		}
		q.Freq = frequency(i)
	case "INTERVAL":
		q.Interval = p.number(part, 1, maxRuleInterval)
	case "COUNT":
		p.count = p.number(part, 1, maxRuleCount)
	case "UNTIL":
		if t, ok := p.time(part.value, p.dateOnly, part.at); ok {
			p.until = &t
		}
	case "WKST":
		q.Week = slices.Index(ruleDays, part.value)
		if q.Week < 0 {
			p.fault(part.at, "rrule_syntax", "%.20q is not a day like MO", part.value)
		}
	case "BYMONTH":
		q.Months = p.list(part, 1, 12, false)
	case "BYMONTHDAY":
		q.Days = p.list(part, 1, 31, true)
	case "BYYEARDAY":
		q.YearDays = p.list(part, 1, 366, true)
	case "BYWEEKNO":
		q.WeekNos = p.list(part, 1, 53, true)
	case "BYSETPOS":
		q.SetPos = p.list(part, 1, 366*daySeconds, true)
	case "BYHOUR":
		for _, v := range p.list(part, 0, 23, false) {
			q.Hours |= 1 << v
		}
	case "BYMINUTE":
		for _, v := range p.list(part, 0, 59, false) {
			q.Minutes |= 1 << v
		}
	case "BYSECOND":
		for _, v := range p.list(part, 0, 59, false) {
			q.Seconds |= 1 << v
		}
	case "BYDAY":
		p.weekdays(part)
	default:
		p.fault(part.at, "rrule_unsupported", "%.20q is not a part of RFC 5545", part.name)
	}
}

func (p *ruleParts) number(part rulePart, low, high int) int {
	v, err := strconv.Atoi(part.value)
	if err != nil || v < low || v > high || part.value[0] == '+' {
		p.fault(part.at, "rrule_out_of_range", "%s is from %d to %d, not %.20q", part.name, low, high, part.value)
		return low
	}
	return v
}

// list parses a list of numbers, and returns them sorted without duplicates. If signed, they may be negative.
func (p *ruleParts) list(part rulePart, low, high int, signed bool) []int {
	var out []int
	at := part.at
	for text := range strings.SplitSeq(part.value, ",") {
		v, err := strconv.Atoi(text)
		abs := max(v, -v)
		if err != nil || len(text) > 9 || abs < low || abs > high || v < 0 && !signed {
			p.fault(at, "rrule_out_of_range", "%s does not take %.20q", part.name, text)
			return nil
		}
		out = append(out, v)
		at += len(text) + 1
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *ruleParts) weekdays(part rulePart) {
	at := part.at
	for text := range strings.SplitSeq(part.value, ",") {
		day := -1
		if len(text) >= 2 {
			day = slices.Index(ruleDays, text[len(text)-2:])
		}
		n := 0
		var err error
		if day >= 0 && len(text) > 2 {
			n, err = strconv.Atoi(text[:len(text)-2])
		}
		if day < 0 || err != nil || len(text) > 6 || n == 0 && len(text) > 2 || max(n, -n) > 53 {
			p.fault(at, "rrule_syntax", "%.20q is not a day like MO or -1FR", text)
			return
		}
		p.plan.Weekdays = append(p.plan.Weekdays, nthDay{n, day})
		at += len(text) + 1
	}
	slices.SortFunc(p.plan.Weekdays, func(a, b nthDay) int { return cmp.Or(cmp.Compare(a.N, b.N), cmp.Compare(a.Day, b.Day)) })
	p.plan.Weekdays = slices.Compact(p.plan.Weekdays)
}

// checkTogether refuses combinations of parts that RFC 5545 forbids.
func (p *ruleParts) checkTogether() {
	q := &p.plan
	refuse := func(name, why string) {
		if at, ok := p.has[name]; ok {
			p.fault(at, "rrule_combination", "%s %s", name, why)
		}
	}
	if p.count > 0 && p.until != nil {
		refuse("UNTIL", "does not go with COUNT")
	}
	if q.Freq != perYear {
		refuse("BYWEEKNO", "is for FREQ=YEARLY")
	}
	if q.Freq == perWeek {
		refuse("BYMONTHDAY", "does not go with FREQ=WEEKLY")
	}
	if q.Freq >= perMonth && q.Freq <= perDay {
		refuse("BYYEARDAY", "is for FREQ=YEARLY, HOURLY, MINUTELY and SECONDLY")
	}
	most := 0
	for _, d := range q.Weekdays {
		most = max(most, d.N, -d.N)
	}
	switch {
	case most == 0:
	case q.Freq > perMonth:
		refuse("BYDAY", "takes numbered days with FREQ=MONTHLY and YEARLY only")
	case len(q.WeekNos) > 0:
		refuse("BYDAY", "takes no numbered days beside BYWEEKNO")
	case most > 5 && (q.Freq == perMonth || len(q.Months) > 0):
		refuse("BYDAY", "counts at most 5 of a day in a month")
	}
}

// imply adds the parts that the rule omits and DTSTART implies.
func (p *ruleParts) imply() {
	q := &p.plan
	day, sec := splitWall(q.Start)
	_, month, dom := civil(day)
	if len(q.WeekNos)+len(q.YearDays)+len(q.Days)+len(q.Weekdays) == 0 {
		switch q.Freq {
		case perYear:
			if len(q.Months) == 0 {
				q.Months = []int{month}
			}
			q.Days = []int{dom}
		case perMonth:
			q.Days = []int{dom}
		case perWeek:
			q.Weekdays = []nthDay{{Day: weekday(day)}}
		}
	}
	if q.Hours == 0 {
		q.Hours = allHours
		if q.Freq < perHour {
			q.Hours = 1 << (sec / 3600)
		}
	}
	if q.Minutes == 0 {
		q.Minutes = allSixty
		if q.Freq < perMinute {
			q.Minutes = 1 << (sec / 60 % 60)
		}
	}
	if q.Seconds == 0 {
		q.Seconds = allSixty
		if q.Freq < perSecond {
			q.Seconds = 1 << (sec % 60)
		}
	}
	if q.Freq >= perHour && q.Interval == 1 || q.Freq == perDay || q.Freq == perYear && len(q.WeekNos) == 0 || q.Freq == perMonth {
		q.Week = 1 // WKST has no effect
	}
}

// never reports whether no time can match the rule: the interval never meets the BY parts, or each position of BYSETPOS is above the
// largest possible size of a period's set.
func (q *rulePlan) never() bool {
	if q.Freq >= perHour && !q.reaches() {
		return true
	}
	size := 1
	switch q.Freq {
	case perSecond:
	case perHour, perMinute:
		size = len(newSubdaily(&rulePlan{Freq: q.Freq, Interval: 1, Hours: q.Hours, Minutes: q.Minutes, Seconds: q.Seconds}).offsets)
	default:
		size = q.mostDays() * q.times().times()
	}
	return len(q.SetPos) > 0 && !slices.ContainsFunc(q.SetPos, func(pos int) bool { return max(pos, -pos) <= size })
}

// mostDays returns the largest number of days that a period of the rule can have.
func (q *rulePlan) mostDays() int {
	most, weeks, months := 1, 1, 1
	switch q.Freq {
	case perYear:
		most, weeks, months = 366, 53, 12
		if len(q.Months) > 0 {
			months = len(q.Months)
		}
		if len(q.WeekNos) > 0 {
			most = 14 * len(q.WeekNos)
		}
		if len(q.YearDays) > 0 {
			most = min(most, len(q.YearDays))
		}
	case perMonth:
		most, weeks = 31, 5
	case perWeek:
		most = 7
	}
	if len(q.Days) > 0 {
		most = min(most, len(q.Days)*months)
	}
	if len(q.Weekdays) > 0 {
		n := 0
		for _, d := range q.Weekdays {
			if d.N == 0 {
				n += weeks
			} else {
				n += months
			}
		}
		most = min(most, n)
	}
	return most
}

// reaches reports whether the steps of a rule by the hour, minute or second ever meet a time of day of its BY parts. The steps meet the
// times that differ from DTSTART by a multiple of the greatest common divisor of the interval and a day.
func (q *rulePlan) reaches() bool {
	s := newSubdaily(q)
	day := daySeconds / s.unit
	divisor := gcd(s.interval, day)
	for sec, ok := s.units.nextTime(0); ok; sec, ok = s.units.nextTime(sec + 1) {
		if floorMod(int64(sec)/s.unit-s.phase, divisor) == 0 {
			return true
		}
		if sec+1 == daySeconds {
			break
		}
	}
	return false
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
