package calendar

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Spec is a client's description of when a schedule fires: the union of Cron, Calendars, Intervals, RRule, At and Relative, without
// Exclude, from StartAt to EndAt inclusive. A zero member is absent.
type Spec struct {
	Timezone  string     `json:"timezone,omitempty"`  // IANA name, or @subject; "" is UTC
	Cron      StringList `json:"cron,omitempty"`      // a string or a list of them
	DayMatch  string     `json:"day_match,omitempty"` // or (default), and: how a cron combines day of month and day of week
	Calendars []Calendar `json:"calendars,omitempty"`
	Intervals []Interval `json:"intervals,omitempty"`
	RRule     string     `json:"rrule,omitempty"` // RFC 5545 DTSTART, RRULE, RDATE and EXDATE, a line each
	At        []string   `json:"at,omitempty"`    // wall times, or instants with a zone designator
	Relative  []Relative `json:"relative,omitempty"`
	Exclude   *Exclude   `json:"exclude,omitempty"`
	StartAt   *string    `json:"start_at,omitempty" null:"yes"`
	EndAt     *string    `json:"end_at,omitempty" null:"yes"`
	MaxTicks  *int       `json:"max_ticks,omitempty" null:"yes"` // 1 to 100,000; the caller of this package counts them
	Jitter    string     `json:"jitter,omitempty"`
	DST       DST        `json:"dst,omitzero"`
}

// Calendar describes wall times by fields in the syntax of cron. All fields must match. An absent second, minute or hour is 0; any other
// absent field matches every value.
type Calendar struct {
	Second     string `json:"second,omitempty"`
	Minute     string `json:"minute,omitempty"`
	Hour       string `json:"hour,omitempty"`
	DayOfMonth string `json:"day_of_month,omitempty"`
	Month      string `json:"month,omitempty"`
	Year       string `json:"year,omitempty"`
	DayOfWeek  string `json:"day_of_week,omitempty"`
	Comment    string `json:"comment,omitempty" empty:"yes"` // up to 200 characters
}

// Interval is a periodic time. Every in days and weeks counts calendar days in the zone; in smaller units it counts elapsed time.
type Interval struct {
	Every  string `json:"every"`
	Offset string `json:"offset,omitempty"` // for aligned: the offset from 1970-01-01T00:00:00
	Mode   string `json:"mode,omitempty"`   // aligned (default), fixed_rate, fixed_delay
	First  string `json:"first,omitempty"`  // after (default): one interval after creation; now: at creation
}

// Relative is one time that is computed from the moment To: To plus Offset, or the wall time At on the day that is Days after To's date
// in the zone.
type Relative struct {
	To     string `json:"to"`               // as an element of At
	Offset string `json:"offset,omitempty"` // an elapsed duration, which may be negative; 1d is 24 hours
	Days   *int   `json:"days,omitempty"`   // calendar days, -3660 to 3660
	At     string `json:"at,omitempty"`     // a time of day, HH:MM or HH:MM:SS
}

// Exclude has the exclusions of a spec. Dates, named calendars and calendars without times exclude whole days.
type Exclude struct {
	Calendars []Calendar `json:"calendars,omitempty"`
	Dates     []string   `json:"dates,omitempty"`
	Named     []string   `json:"named,omitempty"`
	Then      string     `json:"then,omitempty"` // drop (default); next, previous: the same wall time on the nearest free day, at most 366 days away
}

// DST has the policies for wall times in a gap, which no instant shows, and in an overlap, which two instants show. "" is auto.
type DST struct {
	Gap     string `json:"gap,omitempty"`     // auto, skip, next_valid, shift_forward
	Overlap string `json:"overlap,omitempty"` // auto, first, last, both
}

// StringList is a list of strings. In JSON it may also be a single string.
type StringList []string

// UnmarshalJSON reads a string or a list of strings.
func (l *StringList) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		var one string
		if err := json.Unmarshal(b, &one); err != nil {
			return err
		}
		*l = StringList{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(b, &many); err != nil {
		return errors.New("cron is a string or a list of strings")
	}
	*l = many
	return nil
}
