package carillon

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SubjectZone is the time zone of specs that follow the zone and the quiet hours of their schedule's subject.
const SubjectZone = "@subject"

// Moment is an instant, or text as in [Spec.At]: a wall time in the spec's zone such as "2027-01-05T10:00", or an instant (RFC 3339).
// An instant within a second is rounded up to the next whole second, as in all functions that build specs.
type Moment interface{ time.Time | string }

// moment returns a moment as the API takes it.
func moment[M Moment](m M) string {
	if at, ok := any(m).(time.Time); ok {
		return instant(at)
	}
	return any(m).(string)
}

// instant formats an instant for the API, rounded up to a whole second.
func instant(at time.Time) string { return wholeSecond(at).UTC().Format(time.RFC3339) }

// wholeSecond rounds an instant up to a whole second.
func wholeSecond(at time.Time) time.Time {
	if at.Nanosecond() == 0 {
		return at
	}
	return at.Add(time.Second - time.Duration(at.Nanosecond()))
}

// Cron returns a spec that fires at the times of all the expressions: five fields; six with seconds first; seven with a year last.
func Cron(expressions ...string) Spec { return Spec{Cron: expressions} }

// Every returns a spec that fires at multiples of d since 1970, counted in elapsed time. The server rejects less than a second.
// For days and weeks of the calendar, which clock changes make shorter or longer, use [EveryCivil].
func Every(d time.Duration) Spec { return Spec{Intervals: []Interval{{Every: duration(d)}}} }

// EveryCivil returns a spec that fires every so many days and weeks of the zone's calendar, at midnight. [Spec.FromStart] chooses another
// time of day.
func EveryCivil(days, weeks int) Spec {
	var every strings.Builder
	if weeks != 0 {
		every.WriteString(strconv.Itoa(weeks) + "w")
	}
	if days != 0 || weeks == 0 {
		every.WriteString(strconv.Itoa(days) + "d")
	}
	return Spec{Intervals: []Interval{{Every: every.String()}}}
}

// Calendar returns a spec that fires at the times whose fields match one of calendars.
func Calendar(calendars ...CalendarFields) Spec { return Spec{Calendars: calendars} }

// RRule returns a spec that fires by the lines of an iCalendar rule (RFC 5545): DTSTART, RRULE, RDATE and EXDATE.
func RRule(lines ...string) Spec { return Spec{RRule: strings.Join(lines, "\n")} }

// At returns a spec that fires once at each of the moments.
func At[M Moment](moments ...M) Spec {
	s := Spec{At: make([]string, len(moments))}
	for i, m := range moments {
		s.At[i] = moment(m)
	}
	return s
}

// In returns a spec that fires once, when d has passed by the clock of this machine.
func In(d time.Duration) Spec { return At(time.Now().Add(d)) }

// After returns a spec that fires once: at a time of day such as "10:00", so many days after the date that the zone shows at m.
func After[M Moment](m M, days int, at string) Spec {
	return Spec{Relative: []Relative{{To: moment(m), Days: &days, At: at}}}
}

// Before returns a spec that fires once, when d is left until m.
func Before[M Moment](m M, d time.Duration) Spec {
	return Spec{Relative: []Relative{{To: moment(m), Offset: duration(-d)}}}
}

// duration formats a duration of either sign for the API, rounded up to a whole second, such as "1h30m".
func duration(d time.Duration) string {
	if rest := d % time.Second; rest > 0 {
		d += time.Second - rest
	} else {
		d -= rest
	}
	if d == 0 {
		return "0s"
	}
	text := d.String() // such as 1h30m0s
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// In returns the spec with a time zone: an IANA name, or [SubjectZone].
func (s Spec) In(zone string) Spec {
	s.Timezone = zone
	return s
}

// From returns the spec without its times before t.
func (s Spec) From(t time.Time) Spec {
	s.StartAt = instant(t)
	return s
}

// FromLocal is [Spec.From] for a wall time in the spec's zone, such as "2027-01-05T10:00".
func (s Spec) FromLocal(t string) Spec {
	s.StartAt = t
	return s
}

// Until returns the spec without its times after t.
func (s Spec) Until(t time.Time) Spec {
	s.EndAt = instant(t)
	return s
}

// UntilLocal is [Spec.Until] for a wall time in the spec's zone.
func (s Spec) UntilLocal(t string) Spec {
	s.EndAt = t
	return s
}

// Times returns the spec with at most n ticks.
func (s Spec) Times(n int) Spec {
	s.MaxTicks = n
	return s
}

// Except returns the spec without the days that e names, in addition to those that it omits already.
func (s Spec) Except(e Exclude) Spec {
	if s.Exclude != nil {
		e.Calendars = slices.Concat(s.Exclude.Calendars, e.Calendars)
		e.Dates = slices.Concat(s.Exclude.Dates, e.Dates)
		e.Named = slices.Concat(s.Exclude.Named, e.Named)
		e.Then = cmp.Or(e.Then, s.Exclude.Then)
	}
	s.Exclude = &e
	return s
}

// FromStart returns the spec with its intervals counted from StartAt, or from the creation of the schedule if there is none. An edit that
// leaves the spec unchanged does not move them.
func (s Spec) FromStart() Spec { return s.eachInterval(func(i *Interval) { i.Mode = "fixed_rate" }) }

// FromEnd returns the spec with its interval counted from the end of the tick before, so that ticks never overlap. It must be the only part
// of its spec.
func (s Spec) FromEnd() Spec { return s.eachInterval(func(i *Interval) { i.Mode = "fixed_delay" }) }

// FirstNow returns the spec with the first tick of its intervals at once, instead of after one interval. Without FromEnd it implies FromStart.
func (s Spec) FirstNow() Spec {
	return s.eachInterval(func(i *Interval) {
		i.First = "now"
		if i.Mode == "" {
			i.Mode = "fixed_rate"
		}
	})
}

// eachInterval returns the spec with changed copies of its intervals.
func (s Spec) eachInterval(change func(*Interval)) Spec {
	s.Intervals = slices.Clone(s.Intervals)
	for i := range s.Intervals {
		change(&s.Intervals[i])
	}
	return s
}

// WithJitter returns the spec with its ticks spread over d.
func (s Spec) WithJitter(d time.Duration) Spec {
	s.Jitter = duration(d)
	return s
}

// WithDST returns the spec with a policy for wall times that a clock change skips or shows twice.
func (s Spec) WithDST(policy DST) Spec {
	s.DST = policy
	return s
}
