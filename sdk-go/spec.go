package carillon

import "encoding/json"

// Spec says when a schedule fires: at the times of Cron, Calendars, Intervals, RRule, At and Relative together, without the times that Exclude
// names. At least one of these must be set. StartAt and EndAt are inclusive bounds, and MaxTicks bounds the number of ticks.
//
// Durations are text such as "90s", "1h30m", "1d" or "1w". A day is a day of the zone's calendar, not 24 hours.
type Spec struct {
	Timezone  string           `json:"timezone,omitempty"`  // an IANA zone, or "@subject" for the zone of the schedule's subject; empty is UTC
	Cron      Strings          `json:"cron,omitempty"`      // five fields; six with seconds first; seven with a year last
	DayMatch  string           `json:"day_match,omitempty"` // "or" (default) or "and": day of month and day of week
	Calendars []CalendarFields `json:"calendars,omitempty"`
	Intervals []Interval       `json:"intervals,omitempty"`
	RRule     string           `json:"rrule,omitempty"` // RFC 5545: DTSTART, RRULE, RDATE and EXDATE lines
	At        []string         `json:"at,omitempty"`    // wall times in the zone, or instants (RFC 3339)
	Relative  []Relative       `json:"relative,omitempty"`
	Exclude   *Exclude         `json:"exclude,omitempty"`
	StartAt   string           `json:"start_at,omitempty"` // as an element of At
	EndAt     string           `json:"end_at,omitempty"`   // as an element of At
	MaxTicks  int              `json:"max_ticks,omitempty"`
	Jitter    string           `json:"jitter,omitempty"` // a duration; ticks are spread over it
	DST       DST              `json:"dst,omitzero"`
}

// Strings is a list that JSON may write as one string.
type Strings []string

// UnmarshalJSON reads a list of strings, or one string.
func (s *Strings) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*s = make(Strings, 1)
		return json.Unmarshal(b, &(*s)[0])
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// CalendarFields names times by fields in cron's syntax, all of which must match. Second, Minute and Hour left empty are 0,
// the others are all.
type CalendarFields struct {
	Second     string `json:"second,omitempty"`
	Minute     string `json:"minute,omitempty"`
	Hour       string `json:"hour,omitempty"`
	DayOfMonth string `json:"day_of_month,omitempty"`
	Month      string `json:"month,omitempty"`
	Year       string `json:"year,omitempty"`
	DayOfWeek  string `json:"day_of_week,omitempty"`
	Comment    string `json:"comment,omitempty"`
}

// Interval fires every so often.
type Interval struct {
	Every  string `json:"every"`            // a duration
	Offset string `json:"offset,omitempty"` // a duration, of an aligned one
	Mode   string `json:"mode,omitempty"`   // "aligned" (default), "fixed_rate" or "fixed_delay"
	First  string `json:"first,omitempty"`  // "after" (default) one interval, or "now"
}

// Relative is one time that is computed from the moment To: To plus Offset, or the time of day At, Days days after the date
// that the zone shows at To. It needs either Offset, or Days and At.
type Relative struct {
	To     string `json:"to"`               // as an element of Spec.At
	Offset string `json:"offset,omitempty"` // elapsed time such as "-24h" or "90m"; "1d" is 24 hours
	Days   *int   `json:"days,omitempty"`   // days of the calendar, negative before To
	At     string `json:"at,omitempty"`     // "10:00" or "10:00:30"
}

// Exclude removes times from a spec.
type Exclude struct {
	Calendars []CalendarFields `json:"calendars,omitempty"` // one without a time excludes the whole day
	Dates     []string         `json:"dates,omitempty"`     // "2027-01-01"
	Named     []string         `json:"named,omitempty"`     // calendars stored under a name
	Then      string           `json:"then,omitempty"`      // "drop" (default), "next" or "previous" day that is not excluded
}

// DST decides about a wall time that a clock change skips or shows twice.
type DST struct {
	Gap     string `json:"gap,omitempty"`     // "auto" (default), "skip", "next_valid" or "shift_forward"
	Overlap string `json:"overlap,omitempty"` // "auto" (default), "first", "last" or "both"
}

// Policy decides about ticks that overlap, come late or fail.
type Policy struct {
	Overlap            string `json:"overlap,omitempty"`              // "skip" (default), "buffer_one", "buffer_all", "cancel_other", "allow_all"
	Missed             string `json:"missed,omitempty"`               // "last" (default), "all" or "none"
	MaxLateness        string `json:"max_lateness,omitempty"`         // a duration; 24h by default
	OnExpired          string `json:"on_expired,omitempty"`           // "skip" (default) or "deliver"
	PauseAfterFailures *int   `json:"pause_after_failures,omitempty"` // failed ticks in a row; 0 is never
}

// Delivery defines how ticks reach a worker.
type Delivery struct {
	Queue       string    `json:"queue,omitempty"`        // which group of workers leases them; "default"
	Priority    int       `json:"priority,omitempty"`     // 1 (first) to 4; 2
	Timeout     string    `json:"timeout,omitempty"`      // how long one attempt may run; 1m
	MaxAttempts int       `json:"max_attempts,omitempty"` // 10
	Retention   Retention `json:"retention,omitzero"`
}

// Retention is the time for which ended ticks are kept, as durations.
type Retention struct {
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
}
