package calendar

import (
	"fmt"
	"strings"
	"time"
)

// The limits of an RRULE.
const (
	maxRuleText     = 4096
	maxExDates      = 1000
	maxRuleInterval = 100_000
	maxRuleCount    = 100_000
	maxRuleYear     = 2100 // of DTSTART
)

// ruleText parses a spec's rrule: the content lines of RFC 5545, which it unfolds.
type ruleText struct {
	zone   string
	faults []Fault

	start    wall
	started  bool
	dateOnly bool
	parts    []rulePart
	ruled    bool
	plus     []ruleTime
	minus    []ruleTime
}

// rulePart is a NAME=value of an RRULE, with the byte offset of the value.
type rulePart struct {
	name, value string
	at          int
}

// ruleTime is a value of RDATE or EXDATE: a wall time, or an instant if utc.
type ruleTime struct {
	at  int64
	utc bool
}

func (r *ruleText) fault(at int, code, format string, args ...any) {
	r.faults = append(r.faults, Fault{Code: code, Detail: fmt.Sprintf(format, args...), Position: at})
}

// read parses all lines.
func (r *ruleText) read(text string) {
	if len(text) > maxRuleText {
		r.fault(maxRuleText, "too_long", "rrule has at most %d bytes", maxRuleText)
		return
	}
	at := 0
	var line string
	begin := 0
	for raw := range strings.SplitSeq(text, "\n") {
		one := strings.TrimSuffix(raw, "\r")
		if len(one) > 0 && (one[0] == ' ' || one[0] == '\t') && line != "" {
			line += one[1:]
		} else {
			r.line(line, begin)
			line, begin = one, at
		}
		at += len(raw) + 1
	}
	r.line(line, begin)
	if len(r.faults) > 0 {
		return
	}
	if !r.started {
		r.fault(0, "dtstart_missing", "a rule needs a DTSTART")
	}
	if !r.ruled {
		r.fault(0, "rrule_missing", "the RRULE line is missing")
	}
}

func (r *ruleText) line(line string, at int) {
	if strings.TrimSpace(line) == "" {
		return
	}
	head, value, ok := strings.Cut(line, ":")
	if !ok {
		r.fault(at, "rrule_syntax", "not a line like RRULE:FREQ=DAILY")
		return
	}
	name, params, _ := strings.Cut(head, ";")
	valueAt := at + len(head) + 1
	name = strings.ToUpper(name)
	if name == "RRULE" {
		if params != "" {
			r.fault(at, "rrule_syntax", "RRULE takes no parameters")
			return
		}
		r.rule(value, valueAt)
		return
	}
	if name != "DTSTART" && name != "RDATE" && name != "EXDATE" {
		r.fault(at, "rrule_unsupported", "only DTSTART, RRULE, RDATE and EXDATE are read, not %.20q", name)
		return
	}
	dateOnly, ok := r.params(params, at)
	if !ok {
		return
	}
	if name == "DTSTART" {
		r.dtstart(value, dateOnly, valueAt)
		return
	}
	list := &r.plus
	if name == "EXDATE" {
		list = &r.minus
	}
	for one := range strings.SplitSeq(value, ",") {
		if t, ok := r.time(one, dateOnly, valueAt); ok {
			*list = append(*list, t)
		}
		valueAt += len(one) + 1
	}
	if len(*list) > maxExDates {
		r.fault(at, "too_many", "at most %d dates of %s", maxExDates, name)
	}
}

// params parses TZID and VALUE.
func (r *ruleText) params(text string, at int) (dateOnly, ok bool) {
	if text == "" {
		return false, true
	}
	for one := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(one, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToUpper(name) {
		case "TZID":
			if value != r.zone {
				r.fault(at, "timezone_mismatch", "TZID=%.64s is not the spec's time zone %s", value, r.zone)
				return false, false
			}
		case "VALUE":
			switch strings.ToUpper(value) {
			case "DATE":
				dateOnly = true
			case "DATE-TIME":
			default:
				r.fault(at, "rrule_unsupported", "VALUE is DATE or DATE-TIME, not %.20q", value)
				return false, false
			}
		default:
			r.fault(at, "rrule_unsupported", "parameters are TZID and VALUE, not %.20q", name)
			return false, false
		}
	}
	return dateOnly, true
}

func (r *ruleText) dtstart(value string, dateOnly bool, at int) {
	if r.started {
		r.fault(at, "rrule_unsupported", "there is a second DTSTART")
		return
	}
	t, ok := r.time(value, dateOnly, at)
	if !ok {
		return
	}
	if t.utc && r.zone != "UTC" && r.zone != "Etc/UTC" {
		r.fault(at, "timezone_mismatch", "DTSTART in UTC is for the time zone UTC, not %s", r.zone)
		return
	}
	if t.at >= int64(dayNumber(maxRuleYear+1, 1, 1))*daySeconds {
		r.fault(at, "time_out_of_range", "DTSTART is of a year from %d to %d", minYear, maxRuleYear)
		return
	}
	r.start, r.started, r.dateOnly = t.at, true, dateOnly
}

// time parses a wall time such as 20260105T090000, an instant such as 20260105T090000Z, or a date, which is its midnight.
func (r *ruleText) time(text string, dateOnly bool, at int) (ruleTime, bool) {
	layout := "20060102T150405"
	if dateOnly {
		layout = "20060102"
	}
	bare, utc := strings.CutSuffix(text, "Z")
	t, err := time.Parse(layout, bare)
	if err != nil || len(bare) != len(layout) || utc && dateOnly {
		r.fault(at, "time_syntax", "%.32q is not a time like 20260105T090000", text)
		return ruleTime{}, false
	}
	if t.Year() < minYear {
		r.fault(at, "time_out_of_range", "%q is before %d", text, minYear)
		return ruleTime{}, false
	}
	return ruleTime{t.Unix(), utc}, true
}

func (r *ruleText) rule(value string, at int) {
	if r.ruled {
		r.fault(at, "rrule_unsupported", "there is a second RRULE")
		return
	}
	r.ruled = true
	for one := range strings.SplitSeq(value, ";") {
		name, v, ok := strings.Cut(one, "=")
		name = strings.ToUpper(name)
		if !ok || v == "" {
			r.fault(at, "rrule_syntax", "%.40q is not a part like FREQ=DAILY", one)
		}
		for _, p := range r.parts {
			if p.name == name {
				r.fault(at, "rrule_syntax", "%.40s is given twice", name)
			}
		}
		r.parts = append(r.parts, rulePart{name, strings.ToUpper(v), at + len(name) + 1})
		at += len(one) + 1
	}
}
