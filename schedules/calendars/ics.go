package calendars

import (
	"fmt"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
)

// What an iCalendar document may hold. Events that repeat for ever are imported from the year before now to ten years on.
const (
	longestICS  = 512 << 10
	mostEvents  = 2000
	importBack  = 1
	importAhead = 10
	mostImport  = 20_000 // days that events may name before repeats are dropped
)

// icsFault is what is wrong with an iCalendar document.
func icsFault(code, format string, args ...any) error {
	return fault.Fields(fault.Field{Pointer: "/ics", Code: code, Detail: fmt.Sprintf(format, args...)})
}

// importDays returns the days of the all-day events of an iCalendar document. An event that does not consist of whole days is a fault.
func importDays(text string, now time.Time) (days []time.Time, err error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > longestICS {
		return nil, icsFault("too_large", "the document has %d bytes, and %d are allowed", len(text), longestICS)
	}
	doc, err := parseICS(text)
	if err != nil {
		return nil, err
	}
	events := doc.Events()
	if len(events) > mostEvents {
		return nil, icsFault("too_many", "%d events are more than %d", len(events), mostEvents)
	}
	var errs []error
	for i, e := range events {
		more, err := eventDays(e, now)
		if err != nil {
			if errs = append(errs, icsFault("ics_event", "event %d%s: %s", i+1, summary(e), err)); len(errs) == 20 {
				break
			}
			continue
		}
		if days = append(days, more...); len(days) > mostImport {
			return nil, icsFault("too_many", "the events name more than %d days", mostImport)
		}
	}
	return days, fault.Join(errs...)
}

// parseICS reads a document. The parser is a library that may panic; a document on which it panics cannot be read.
func parseICS(text string) (doc *ics.Calendar, err error) {
	defer func() {
		if recover() != nil {
			doc, err = nil, icsFault("ics_syntax", "the document cannot be read")
		}
	}()
	doc, err = ics.ParseCalendarWithOptions(strings.NewReader(text), ics.WithUnknownPropertyHandler(ics.AcceptUnknownPropertyHandler))
	if err != nil {
		return nil, icsFault("ics_syntax", "not an iCalendar document: %.200s", err)
	}
	return doc, nil
}

func summary(e *ics.VEvent) string {
	if text := value(e, ics.ComponentPropertySummary); text != "" {
		return fmt.Sprintf(" (%.60q)", text)
	}
	return ""
}

func value(e *ics.VEvent, name ics.ComponentProperty) string {
	if p := e.GetProperty(name); p != nil {
		return strings.TrimSpace(p.Value)
	}
	return ""
}

// icsDay reads a DATE (RFC 5545 section 3.3.4).
func icsDay(text string) (time.Time, error) {
	day, err := time.Parse("20060102", text)
	if err != nil {
		return day, fmt.Errorf("%.40q is not a date like 20261225: only all-day events are taken", text)
	}
	if _, err := calendar.ParseDate(day.Format(time.DateOnly)); err != nil {
		return day, err
	}
	return day, nil
}

// eventDays returns the days of all occurrences of an event; none if the event is cancelled.
func eventDays(e *ics.VEvent, now time.Time) ([]time.Time, error) {
	if strings.EqualFold(value(e, ics.ComponentPropertyStatus), "CANCELLED") {
		return nil, nil
	}
	if value(e, ics.ComponentPropertyRecurrenceId) != "" {
		return nil, fmt.Errorf("a changed instance (RECURRENCE-ID) is not taken")
	}
	first, err := icsDay(value(e, ics.ComponentPropertyDtStart))
	if err != nil {
		return nil, err
	}
	length, err := eventLength(e, first)
	if err != nil {
		return nil, err
	}
	starts, err := eventStarts(e, first, now)
	if err != nil {
		return nil, err
	}
	var days []time.Time
	for _, start := range starts {
		for n := range length {
			if days = append(days, start.AddDate(0, 0, n)); len(days) > mostImport {
				return nil, fmt.Errorf("it names more than %d days", mostImport)
			}
		}
	}
	if len(days) > 0 && days[len(days)-1].Year() > 2199 {
		return nil, fmt.Errorf("it ends after 2199")
	}
	return days, nil
}

const longestEvent = 400 // days

// eventLength returns how many days an event covers. DTEND is the first day
// after the event. Without DTEND and DURATION the event covers one day.
func eventLength(e *ics.VEvent, first time.Time) (int, error) {
	length := 1
	switch end, span := value(e, ics.ComponentPropertyDtEnd), value(e, ics.ComponentPropertyDuration); {
	case end != "":
		after, err := icsDay(end)
		if err != nil {
			return 0, err
		}
		length = max(1, int(after.Sub(first)/(24*time.Hour))) // some programs write DTEND equal to DTSTART for an event of one day
		if after.Before(first) {
			return 0, fmt.Errorf("it ends before it begins")
		}
	case span != "":
		unit := 1
		var n int
		var letter byte
		if _, err := fmt.Sscanf(span, "P%d%c", &n, &letter); err != nil || fmt.Sprintf("P%d%c", n, letter) != span || letter != 'D' && letter != 'W' || n < 1 {
			return 0, fmt.Errorf("its duration %.40q is not one of whole days", span)
		}
		if letter == 'W' {
			unit = 7
		}
		if n > longestEvent {
			n = longestEvent + 1
		}
		length = n * unit
	}
	if length > longestEvent {
		return 0, fmt.Errorf("it covers more than %d days", longestEvent)
	}
	return length, nil
}

// eventStarts returns the first day of each occurrence of an event.
func eventStarts(e *ics.VEvent, first, now time.Time) ([]time.Time, error) {
	var lines []string
	for _, p := range e.Properties {
		switch strings.ToUpper(p.IANAToken) {
		case "RRULE":
			rule, err := dailyRule(strings.TrimSpace(p.Value))
			if err != nil {
				return nil, err
			}
			lines = append(lines, "RRULE:"+rule)
		case "RDATE", "EXDATE":
			for one := range strings.SplitSeq(p.Value, ",") {
				day, err := icsDay(strings.TrimSpace(one))
				if err != nil {
					return nil, err
				}
				lines = append(lines, strings.ToUpper(p.IANAToken)+":"+day.Format("20060102T000000Z"))
			}
		case "EXRULE":
			return nil, fmt.Errorf("EXRULE is not taken")
		}
	}
	if len(lines) == 0 {
		return []time.Time{first}, nil
	}
	t, err := calendar.Compile(calendar.Spec{RRule: "DTSTART:" + first.Format("20060102T000000Z") + "\n" + strings.Join(lines, "\n")}, calendar.Context{Created: first})
	if err != nil {
		return nil, fmt.Errorf("its rule cannot be read: %.300s", err)
	}
	begin := time.Date(now.Year()-importBack, 1, 1, 0, 0, 0, 0, time.UTC)
	end := time.Date(now.Year()+importAhead+1, 1, 1, 0, 0, 0, 0, time.UTC)
	var starts []time.Time
	for tick := range t.All(begin.Add(-time.Second)) {
		if !tick.At.Before(end) {
			break
		}
		if starts = append(starts, tick.At); len(starts) > mostDates {
			return nil, fmt.Errorf("it takes place more than %d times", mostDates)
		}
	}
	return starts, nil
}

// dailyRule is an RRULE of whole days, its UNTIL written as the calendar takes it.
func dailyRule(rule string) (string, error) {
	parts := strings.Split(rule, ";")
	for i, part := range parts {
		name, v, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(part)), "=")
		switch name {
		case "FREQ":
			if v != "YEARLY" && v != "MONTHLY" && v != "WEEKLY" && v != "DAILY" {
				return "", fmt.Errorf("FREQ=%.20s is not one of whole days", v)
			}
		case "BYHOUR", "BYMINUTE", "BYSECOND":
			return "", fmt.Errorf("%s is not for whole days", name)
		case "UNTIL":
			if day, _, timed := strings.Cut(v, "T"); timed {
				v = day
			}
			day, err := icsDay(v)
			if err != nil {
				return "", err
			}
			parts[i] = "UNTIL=" + day.Format("20060102T000000Z")
		}
	}
	return strings.Join(parts, ";"), nil
}
