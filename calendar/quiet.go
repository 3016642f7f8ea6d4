package calendar

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Window is a part of the week that is quiet: the times of day from From until before To, in seconds, on the clock of the subject's zone.
// If To is less than From, the window includes midnight. A To of 86,400 is the end of the day. Days has bit d for each weekday d on which
// the window begins, 0 being Sunday; 0 is every day.
type Window struct {
	From int   `json:"from"`
	To   int   `json:"to"`
	Skip bool  `json:"skip,omitempty"` // ticks in the window are dropped; otherwise the last of them waits for the end of the quiet hours
	Days uint8 `json:"days,omitempty"`
}

// Quiet is the quiet hours of a subject: some windows. Inside two windows, Skip wins. Windows that follow each other without a gap are one
// quiet time.
//
// An instant is quiet if the clock shows a quiet time. If quiet hours begin or end in a gap of the clock, they begin or end at the end of
// the gap. An hour that the clock shows twice is quiet twice.
type Quiet []Window

const (
	everyWeekday = 1<<7 - 1
	weekSeconds  = 7 * daySeconds
)

// ReadWeekdays reads days of the week in cron's syntax, such as 1-5, as the Days of a Window.
func ReadWeekdays(text string) (days uint8, err error) {
	var f fields
	var faults []Fault
	p := fieldText{field: weekdayField, text: text, out: &f, faults: &faults}
	p.parse()
	if len(faults) > 0 {
		return 0, Faults(faults)
	}
	if days = f.Week; days == 0 || f.Nth != [5]uint8{} || f.Back != [5]uint8{} || p.hashed {
		return 0, Faults{{Code: "field_syntax", Detail: "days are days of the week, such as 1-5 or sat,sun"}}
	}
	if days == everyWeekday {
		days = 0
	}
	return days, nil
}

// LeavesNothing reports whether the windows are quiet at every time of the week.
func (q Quiet) LeavesNothing() bool {
	all := q.spans(func(Window) bool { return true })
	return len(all) == 1 && all[0].to-all[0].from >= weekSeconds
}

// canonical returns the windows in order, without duplicates and those that never hold.
func (q Quiet) canonical() Quiet {
	q = slices.DeleteFunc(slices.Clone(q), func(w Window) bool { return w.From == w.To })
	for i := range q {
		if q[i].Days == everyWeekday {
			q[i].Days = 0
		}
	}
	return sorted(q)
}

// quietSpan is a quiet time of the week, in seconds since Sunday 00:00. One that includes the end of Saturday ends after weekSeconds.
type quietSpan struct{ from, to int }

// spans returns the quiet times of some windows, in order and apart from each other.
func (q Quiet) spans(of func(Window) bool) (all []quietSpan) {
	for _, w := range q {
		if !of(w) {
			continue
		}
		length := w.To - w.From
		if length <= 0 {
			length += daySeconds
		}
		for day := range 7 {
			if w.Days != 0 && w.Days&(1<<day) == 0 {
				continue
			}
			from := day*daySeconds + w.From
			if to := from + length; to > weekSeconds {
				all = append(all, quietSpan{from, weekSeconds}, quietSpan{0, to - weekSeconds})
			} else {
				all = append(all, quietSpan{from, to})
			}
		}
	}
	slices.SortFunc(all, func(a, b quietSpan) int { return cmp.Compare(a.from, b.from) })
	merged := all[:0]
	for _, s := range all {
		if n := len(merged); n > 0 && s.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	if n := len(merged); n > 1 && merged[0].from == 0 && merged[n-1].to == weekSeconds {
		merged[n-1].to += merged[0].to
		merged = merged[1:]
	}
	return merged
}

// quietWeek is the quiet times of a timing; nil: it has none.
type quietWeek struct {
	all  []quietSpan
	skip []quietSpan // in which ticks are dropped
}

func (q Quiet) week() *quietWeek {
	if len(q) == 0 {
		return nil
	}
	return &quietWeek{q.spans(func(Window) bool { return true }), q.spans(func(w Window) bool { return w.Skip })}
}

// around returns how many seconds of the quiet time around a second of the week lie before it, and how many from it on. ok is false if the
// second is not quiet.
func around(spans []quietSpan, sec int) (before, after int, ok bool) {
	for _, s := range spans {
		switch {
		case s.from <= sec && sec < s.to:
			return sec - s.from, s.to - sec, true
		case sec+weekSeconds < s.to:
			return sec + weekSeconds - s.from, s.to - sec - weekSeconds, true
		}
	}
	return 0, 0, false
}

// weekSecond returns the second of the week of a wall time in seconds since 1970, which began on a Thursday.
func weekSecond(wall int64) int { return int(floorMod(wall+4*daySeconds, weekSeconds)) }

// in reports whether the clock shows a time in some spans at an instant.
func (z *zone) in(spans []quietSpan, at int64) bool {
	_, _, ok := around(spans, weekSecond(z.wall(at)))
	return ok
}

// QuietHours returns the quiet hours around an instant: from begin until before end. ok is false if the instant is not quiet.
func (t *Timing) QuietHours(at time.Time) (begin, end time.Time, ok bool) {
	if t.quiet == nil || !t.zone.in(t.quiet.all, at.Unix()) {
		return begin, end, false
	}
	from, until := t.zone.quietFrom(t.quiet.all, at.Unix()), t.zone.quietUntil(t.quiet.all, at.Unix())
	return time.Unix(from, 0).UTC(), time.Unix(until, 0).UTC(), true
}

// Waits reports whether the tick of a nominal time waits for the end of quiet hours.
func (t *Timing) Waits(at time.Time) bool {
	return t.quiet != nil && t.zone.in(t.quiet.all, at.Unix()) && !t.zone.in(t.quiet.skip, at.Unix())
}

// LeavesOut reports whether the timing drops the tick of a nominal time because of quiet hours.
func (t *Timing) LeavesOut(at time.Time) bool {
	return t.quiet != nil && t.zone.in(t.quiet.skip, at.Unix())
}

// Due returns when the tick of a nominal time is due, without jitter: at that time, or at the end of the quiet hours around it.
func (t *Timing) Due(at time.Time) time.Time {
	if !t.Waits(at) {
		return at
	}
	return time.Unix(t.zone.quietUntil(t.quiet.all, at.Unix()), 0).UTC()
}

// quietUntil returns the first instant after a quiet one that is not quiet.
func (z *zone) quietUntil(spans []quietSpan, at int64) int64 {
	for i := z.find(at); ; i++ {
		_, after, ok := around(spans, weekSecond(at+z.offset(i)))
		if !ok {
			return at
		}
		end := at + int64(after)
		if end < z.end(i) || i+1 == len(z.starts) {
			return end
		}
		at = z.starts[i+1]
	}
}

// quietFrom returns the first instant of the uninterrupted quiet time before a quiet instant.
func (z *zone) quietFrom(spans []quietSpan, at int64) int64 {
	for i := z.find(at); ; i-- {
		before, _, _ := around(spans, weekSecond(at+z.offset(i)))
		begin := max(at-int64(before), z.starts[i])
		if begin > z.starts[i] || i == 0 {
			return begin
		}
		if _, _, ok := around(spans, weekSecond(begin-1+z.offset(i-1))); !ok {
			return begin
		}
		at = begin - 1
	}
}

// ReadQuiet reads what the String of a Quiet wrote.
func ReadQuiet(text string) (q Quiet, err error) {
	if text == "" {
		return nil, nil
	}
	return q, json.Unmarshal([]byte(text), &q)
}

// String returns the windows as canonical JSON; empty: there are none. Equal texts are equal quiet hours.
func (q Quiet) String() string {
	q = q.canonical()
	if len(q) == 0 {
		return ""
	}
	return string(encode(q))
}
