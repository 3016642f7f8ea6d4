package carillontest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// timing computes when a spec fires. At clock changes it uses the rules of time.Date, unlike the real server.
type timing struct {
	zone       *time.Location
	crons      []cron
	intervals  []interval
	at         []time.Time
	start, end time.Time // zero: no bound
}

type cron struct{ minute, hour, day, month, weekday field }

type field struct {
	set  uint64
	open bool // starts with *
}

func (f field) has(n int) bool { return f.set&(1<<n) != 0 }

type interval struct {
	anchor time.Time
	every  time.Duration
}

// newTiming returns the timing of a spec, or an error if this package does not support the spec.
func newTiming(spec carillon.Spec, now time.Time) (timing, error) {
	if len(spec.Calendars) > 0 || spec.RRule != "" || len(spec.Relative) > 0 || spec.Exclude != nil || spec.Jitter != "" {
		return timing{}, fmt.Errorf("carillontest supports only cron, intervals and at")
	}
	var t timing
	var err error
	if t.zone, err = time.LoadLocation(spec.Timezone); err != nil {
		return t, fmt.Errorf("%q is not a time zone", spec.Timezone)
	}
	for _, text := range spec.Cron {
		c, err := parseCron(text)
		if err != nil {
			return t, err
		}
		t.crons = append(t.crons, c)
	}
	for _, i := range spec.Intervals {
		every, err := parseDuration(i.Every)
		if err != nil || every <= 0 {
			return t, fmt.Errorf("%q is not a duration", i.Every)
		}
		anchor := time.Unix(0, 0)
		switch i.Mode {
		case "", "aligned":
			if offset, err := parseDuration(i.Offset); err == nil {
				anchor = anchor.Add(offset)
			}
		case "fixed_rate":
			anchor = now
		default:
			return t, fmt.Errorf("carillontest does not support %s intervals", i.Mode)
		}
		t.intervals = append(t.intervals, interval{anchor, every})
	}
	for _, text := range spec.At {
		at, err := t.parse(text)
		if err != nil {
			return t, err
		}
		t.at = append(t.at, at)
	}
	if t.start, err = t.parse(spec.StartAt); err != nil {
		return t, err
	}
	if t.end, err = t.parse(spec.EndAt); err != nil {
		return t, err
	}
	if len(t.crons)+len(t.intervals)+len(t.at) == 0 {
		return t, fmt.Errorf("a spec needs cron, intervals or at")
	}
	return t, nil
}

// parse reads an instant or a wall time; an empty text is the zero time.
func (t timing) parse(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	at, err := time.ParseInLocation("2006-01-02T15:04:05", text, t.zone)
	if err != nil {
		return at, fmt.Errorf("%q is not a time", text)
	}
	return at.UTC(), nil
}

// next returns the first time strictly after a moment.
func (t timing) next(after time.Time) (time.Time, bool) {
	if !t.start.IsZero() && after.Before(t.start) {
		after = t.start.Add(-time.Second)
	}
	var first time.Time
	consider := func(at time.Time) {
		if at.After(after) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for _, c := range t.crons {
		if at, ok := c.next(after.In(t.zone)); ok {
			consider(at.UTC())
		}
	}
	for _, i := range t.intervals {
		n := after.Sub(i.anchor) / i.every
		for k := n - 1; k <= n+1; k++ {
			consider(i.anchor.Add(k * i.every).UTC())
		}
	}
	for _, at := range t.at {
		consider(at)
	}
	return first, !first.IsZero() && (t.end.IsZero() || !first.After(t.end))
}

func (c cron) next(after time.Time) (time.Time, bool) {
	year, month, day := after.Date()
	for d := range 366 * 8 {
		date := time.Date(year, month, day+d, 12, 0, 0, 0, time.UTC)
		days, weekdays := c.day.has(date.Day()), c.weekday.has(int(date.Weekday()))
		if !c.month.has(int(date.Month())) || !(days && weekdays || !c.day.open && !c.weekday.open && (days || weekdays)) {
			continue
		}
		for minute := range 24 * 60 {
			if !c.hour.has(minute/60) || !c.minute.has(minute%60) {
				continue
			}
			if at := time.Date(date.Year(), date.Month(), date.Day(), 0, minute, 0, 0, after.Location()); at.After(after) {
				return at, true
			}
		}
	}
	return time.Time{}, false
}

func parseCron(text string) (c cron, err error) {
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return c, fmt.Errorf("carillontest supports cron with five fields, not %q", text)
	}
	for i, f := range []struct {
		into     *field
		min, max int
	}{{&c.minute, 0, 59}, {&c.hour, 0, 23}, {&c.day, 1, 31}, {&c.month, 1, 12}, {&c.weekday, 0, 7}} {
		if *f.into, err = parseField(fields[i], f.min, f.max); err != nil {
			return c, err
		}
	}
	if c.weekday.has(7) {
		c.weekday.set |= 1
	}
	return c, nil
}

func parseField(text string, least, most int) (field, error) {
	f := field{open: strings.HasPrefix(text, "*")}
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		from, to, step := least, most, 1
		var err error
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return f, fmt.Errorf("%q is not a field of cron that carillontest reads", text)
			}
		}
		if span != "*" {
			a, b, ranged := strings.Cut(span, "-")
			if from, err = strconv.Atoi(a); err != nil {
				return f, fmt.Errorf("%q is not a field of cron that carillontest reads", text)
			}
			switch {
			case ranged:
				if to, err = strconv.Atoi(b); err != nil {
					return f, fmt.Errorf("%q is not a field of cron that carillontest reads", text)
				}
			case !stepped:
				to = from
			}
		}
		if from < least || to > most || from > to {
			return f, fmt.Errorf("%q is out of its field's range", text)
		}
		for n := from; n <= to; n += step {
			f.set |= 1 << n
		}
	}
	return f, nil
}

// parseDuration parses the API's durations; a day is 24 hours.
func parseDuration(text string) (time.Duration, error) {
	var total time.Duration
	for text != "" {
		i := strings.IndexAny(text, "smhdw")
		if i < 1 {
			return 0, fmt.Errorf("%q is not a duration", text)
		}
		n, err := strconv.Atoi(text[:i])
		if err != nil {
			return 0, err
		}
		unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 168 * time.Hour}
		total += time.Duration(n) * unit[text[i]]
		text = text[i+1:]
	}
	return total, nil
}
