package calendars_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

func icsOf(lines ...string) string {
	return "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:test\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VCALENDAR\r\n"
}

func event(lines ...string) string {
	return "BEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VEVENT"
}

func TestICalendarIsImported(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	year := time.Now().UTC().Year()
	var christmas, labor []string
	for y := year - 1; y <= year+10; y++ {
		christmas = append(christmas, fmt.Sprintf("%d-12-25", y))
		first := time.Date(y, 9, 1, 0, 0, 0, 0, time.UTC)
		labor = append(labor, first.AddDate(0, 0, (8-int(first.Weekday()))%7).Format(time.DateOnly))
	}
	from := fmt.Sprintf("DTSTART;VALUE=DATE:%d1225", year)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a day":             {icsOf(event("DTSTART;VALUE=DATE:20270105", "SUMMARY:x")), []string{"2027-01-05"}},
		"days":              {icsOf(event("DTSTART;VALUE=DATE:20270130", "DTEND;VALUE=DATE:20270202")), []string{"2027-01-30", "2027-01-31", "2027-02-01"}},
		"a duration":        {icsOf(event("DTSTART;VALUE=DATE:20270130", "DURATION:P2D")), []string{"2027-01-30", "2027-01-31"}},
		"an end at once":    {icsOf(event("DTSTART;VALUE=DATE:20270130", "DTEND;VALUE=DATE:20270130")), []string{"2027-01-30"}},
		"yearly":            {icsOf(event("DTSTART;VALUE=DATE:20151225", "RRULE:FREQ=YEARLY")), christmas},
		"a weekday":         {icsOf(event("DTSTART;VALUE=DATE:20150907", "RRULE:FREQ=YEARLY;BYMONTH=9;BYDAY=1MO")), labor},
		"until":             {icsOf(event(from, fmt.Sprintf("RRULE:FREQ=YEARLY;UNTIL=%d1225", year+2))), christmas[1:4]},
		"exdate":            {icsOf(event(from, "RRULE:FREQ=YEARLY;COUNT=3", fmt.Sprintf("EXDATE;VALUE=DATE:%d1225", year+1))), []string{christmas[1], christmas[3]}},
		"cancelled":         {icsOf(event("DTSTART;VALUE=DATE:20270105", "STATUS:CANCELLED")), []string{}},
		"folded, two twice": {icsOf(event("DTSTART;VALUE=DATE:2027", " 0105"), event("DTSTART;VALUE=DATE:20270105")), []string{"2027-01-05"}},
		"others":            {icsOf("X-WR-CALNAME:n", "BEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nEND:VTIMEZONE", "BEGIN:VTODO\r\nUID:2\r\nEND:VTODO"), []string{}},
	} {
		got, _, err := h.Calendars.Put(t.Context(), h.Acme, "c", calendars.Params{ICS: c.text}, "ann")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, got.Dates); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", name, diff)
		}
	}
	for name, c := range map[string]struct{ text, code string }{
		"no calendar":     {"hello", "ics_syntax"},
		"cut":             {"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID", "ics_syntax"},
		"a time":          {icsOf(event("DTSTART:20270105T090000Z")), "ics_event"},
		"no start":        {icsOf(event("SUMMARY:x")), "ics_event"},
		"no such day":     {icsOf(event("DTSTART;VALUE=DATE:20270231")), "ics_event"},
		"backwards":       {icsOf(event("DTSTART;VALUE=DATE:20270105", "DTEND;VALUE=DATE:20270103")), "ics_event"},
		"long":            {icsOf(event("DTSTART;VALUE=DATE:20270105", "DTEND;VALUE=DATE:20300103")), "ics_event"},
		"long duration":   {icsOf(event("DTSTART;VALUE=DATE:20270105", "DURATION:P99999999999999W")), "ics_event"},
		"hourly":          {icsOf(event("DTSTART;VALUE=DATE:20270105", "RRULE:FREQ=HOURLY")), "ics_event"},
		"a bad rule":      {icsOf(event("DTSTART;VALUE=DATE:20270105", "RRULE:FREQ=YEARLY;BYDAY=99FR")), "ics_event"},
		"an instance":     {icsOf(event("DTSTART;VALUE=DATE:20270105", "RECURRENCE-ID;VALUE=DATE:20270105")), "ics_event"},
		"exrule":          {icsOf(event("DTSTART;VALUE=DATE:20270105", "EXRULE:FREQ=YEARLY")), "ics_event"},
		"too large":       {strings.Repeat("x", 512<<10+1), "too_large"},
		"too many events": {icsOf(strings.Repeat(event("DTSTART;VALUE=DATE:20270105")+"\r\n", 2001)), "too_many"},
		"too many days":   {icsOf(strings.Repeat(event("DTSTART;VALUE=DATE:20150105", "RRULE:FREQ=DAILY")+"\r\n", 10)), "too_many"},
		"deep":            {"BEGIN:VCALENDAR\r\n" + strings.Repeat("BEGIN:X\r\n", 50_000), "ics_syntax"},
		"one bad of two":  {icsOf(event("DTSTART;VALUE=DATE:20270105"), event("DTSTART:20270105T090000Z")), "ics_event"},
	} {
		var err error
		worked := h.CPUTime(func() {
			_, _, err = h.Calendars.Put(t.Context(), h.Acme, "c", calendars.Params{ICS: c.text}, "ann")
		})
		if err == nil {
			t.Errorf("%s was taken", name)
			continue
		}
		if f := schedulestest.WantFault(t, err, 422, c.code); f.Fields[0].Pointer != "/ics" && c.code != "too_many" {
			t.Errorf("%s: got %+v", name, f.Fields)
		}
		if worked > 10*time.Second {
			t.Errorf("%s: %s of a processor", name, worked)
		}
	}
}
