package schedules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func (h *home) putCalendar(name string, dates ...string) calendars.Calendar {
	h.t.Helper()
	c, _, err := h.calendars.Put(h.t.Context(), h.acme, name, calendars.Params{Dates: dates}, "ann")
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// days are the n days after today.
func days(n int) (list []string) {
	for i := range n {
		list = append(list, time.Now().UTC().AddDate(0, 0, i+1).Format(time.DateOnly))
	}
	return list
}

func without(names ...string) schedules.Params {
	return spec(calendar.Spec{Cron: calendar.StringList{"0 12 * * *"}, Exclude: &calendar.Exclude{Named: names}})
}

// upcomingDays are the days of a schedule's coming ticks after today.
func (h *home) upcomingDays(key string) (list []string) {
	h.t.Helper()
	s := h.get(key)
	for _, at := range s.Upcoming {
		if at.After(time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)) {
			list = append(list, at.Format(time.DateOnly))
		}
	}
	return list
}

func TestAnEditedCalendarRetimesWhoNamesIt(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	next := days(9)
	h.putCalendar("off", next[0])
	h.put("a", without("off"))
	h.put("plain", spec(cron("0 12 * * *")))
	want := func(what string, days ...string) {
		t.Helper()
		got := h.upcomingDays("a")
		if diff := cmp.Diff(days, got[:len(days)]); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", what, diff)
		}
	}
	want("as put", next[1:5]...)
	h.putCalendar("off", next[1], next[2])
	want("edited", next[0], next[3], next[4], next[5])
	if got := h.upcomingDays("plain")[:3]; !cmp.Equal(got, next[:3]) {
		t.Errorf("one that names none got %v", got)
	}
	if got := one[int](h, `SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`); got != 1 {
		t.Errorf("%d cohorts are to be retimed, want 1", got)
	}
	h.put("late", without("off"))
	if got := one[int](h, `SELECT count(DISTINCT cohort_id) FROM schedule WHERE workflow = 'w' AND key IN ('a', 'late')`); got > 2 {
		t.Errorf("%d cohorts", got)
	}
	p, err := h.schedules.PreviewSpec(t.Context(), h.acme, schedules.PreviewParams{Spec: without("off").Spec, Count: new(6)}, tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	for _, tick := range p.Ticks {
		if day := tick.Timestamp.Format(time.DateOnly); day == next[1] || day == next[2] {
			t.Errorf("the preview has %s", day)
		}
	}
	before := one[int](h, `SELECT revision FROM calendar_revision`)
	h.putCalendar("off", next[2], next[1], next[1])
	if after := one[int](h, `SELECT revision FROM calendar_revision`); after != before {
		t.Errorf("what was held already made revision %d of %d", after, before)
	}
	h.putCalendar("other", next[0])
	if got := one[int](h, `SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL AND NOT 'off' = ANY(calendars)`); got != 0 {
		t.Errorf("%d cohorts that do not name it were told", got)
	}
}

func TestASpecNamesCalendarsThatThereAre(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.putCalendar("off", "2030-01-01")
	_, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "a"}, without("off", "none"), "ann", version.Precondition{})
	f := faulty(t, err, 422, "unknown_calendar")
	if f.Fields[0].Pointer != "/spec/exclude/named/1" {
		t.Errorf("got %+v", f.Fields)
	}
	_, _, err = h.schedules.Put(h.theirs(), policy.Name{Tenant: h.other, Workflow: "w", Key: "a"}, without("off"), "ann", version.Precondition{})
	faulty(t, err, 422, "unknown_calendar")
	_, err = h.schedules.PreviewSpec(h.theirs(), h.other, schedules.PreviewParams{Spec: without("off").Spec}, tenants.Wide())
	faulty(t, err, 422, "unknown_calendar")
	h.put("a", without())
	patch := schedules.Patch(`{"spec":{"exclude":{"named":["none"]}}}`)
	_, err = h.schedules.Patch(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "a"}, patch, "ann", version.Precondition{})
	faulty(t, err, 422, "unknown_calendar")
	results, _ := h.upsertBulk(ndjson(t,
		bulk.Line{Workflow: "w", Key: new("b"), Params: without("off")},
		bulk.Line{Workflow: "w", Key: new("c"), Params: without("none")},
		bulk.Line{Workflow: "w", Key: new("a"), Params: without("off")}))
	got := []string{}
	for _, r := range results {
		got = append(got, r.Result)
	}
	if want := "inserted error updated"; strings.Join(got, " ") != want || results[1].Error.Code != "unknown_calendar" {
		t.Errorf("got %v, want %s", got, want)
	}
	if got := one[int](h, `SELECT count(*) FROM cohort WHERE calendars = '{off}' AND revision = 1`); got == 0 {
		t.Error("no cohort says that it names the calendar")
	}
	if a, b := h.get("a").Upcoming, h.get("b").Upcoming; !cmp.Equal(a, b) {
		t.Errorf("a has %v, b %v", a, b)
	}
}

func TestACalendarInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	by := schedules.Changer{By: "ann"}
	h.putCalendar("off", "2030-01-01")
	h.put("a", without("off"))
	h.put("b", without("off"))
	h.pause("b", schedules.PauseParams{})
	f := faulty(t, h.calendars.Delete(t.Context(), h.acme, "off", version.Precondition{}), 409, "in_use")
	if f.Extra["schedules"] != int64(2) || f.Extra["cohorts"] != int64(1) {
		t.Errorf("got %v", f.Extra)
	}
	h.delete("a")
	faulty(t, h.calendars.Delete(t.Context(), h.acme, "off", version.Precondition{}), 409, "in_use")
	h.resume("b", schedules.ResumeParams{})
	if err := h.schedules.Delete(t.Context(), h.acme, "w", "b", by); err != nil {
		t.Fatal(err)
	}
	faulty(t, h.calendars.Delete(h.theirs(), h.other, "off", version.Precondition{}), 404, "not_found")
	if err := h.calendars.Delete(t.Context(), h.acme, "off", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	faulty(t, h.calendars.Delete(t.Context(), h.acme, "off", version.Precondition{}), 404, "not_found")
	h.putCalendar("off", "2030-01-02")
	h.put("a", without("off"))
}

func TestAPausedScheduleResumesByThePresentCalendar(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	next := days(9)
	h.putCalendar("off", next[0])
	h.put("a", without("off"))
	h.pause("a", schedules.PauseParams{})
	h.putCalendar("off", next[1])
	h.resume("a", schedules.ResumeParams{})
	if got := h.upcomingDays("a")[:2]; !cmp.Equal(got, []string{next[0], next[2]}) {
		t.Errorf("got %v", got)
	}
}

func icsOf(lines ...string) string {
	return "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:test\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VCALENDAR\r\n"
}

func event(lines ...string) string {
	return "BEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VEVENT"
}

func TestICalendarIsImported(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	year := time.Now().Year()
	var christmas, labor []string
	for y := year - 1; y <= year+10; y++ {
		christmas = append(christmas, fmt.Sprintf("%d-12-25", y))
		first := time.Date(y, 9, 1, 0, 0, 0, 0, time.UTC)
		labor = append(labor, first.AddDate(0, 0, (8-int(first.Weekday()))%7).Format(time.DateOnly))
	}
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
		"until":             {icsOf(event("DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=YEARLY;UNTIL=20281225")), []string{"2026-12-25", "2027-12-25", "2028-12-25"}},
		"exdate":            {icsOf(event("DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=YEARLY;COUNT=3", "EXDATE;VALUE=DATE:20271225")), []string{"2026-12-25", "2028-12-25"}},
		"cancelled":         {icsOf(event("DTSTART;VALUE=DATE:20270105", "STATUS:CANCELLED")), []string{}},
		"folded, two twice": {icsOf(event("DTSTART;VALUE=DATE:2027", " 0105"), event("DTSTART;VALUE=DATE:20270105")), []string{"2027-01-05"}},
		"others":            {icsOf("X-WR-CALNAME:n", "BEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nEND:VTIMEZONE", "BEGIN:VTODO\r\nUID:2\r\nEND:VTODO"), []string{}},
	} {
		got, _, err := h.calendars.Put(t.Context(), h.acme, "c", calendars.Params{ICS: c.text}, "ann")
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
		worked := h.worked(func() {
			_, _, err = h.calendars.Put(t.Context(), h.acme, "c", calendars.Params{ICS: c.text}, "ann")
		})
		if err == nil {
			t.Errorf("%s was taken", name)
			continue
		}
		if f := faulty(t, err, 422, c.code); f.Fields[0].Pointer != "/ics" && c.code != "too_many" {
			t.Errorf("%s: got %+v", name, f.Fields)
		}
		if worked > 10*time.Second {
			t.Errorf("%s: %s of a processor", name, worked)
		}
	}
}

func TestCalendarsOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	const path = "/v1/calendars/us-holidays"
	e.want(404, "not_found", "GET", path, "")
	made := e.want(201, "", "PUT", path, `{"dates":["2027-01-01","2026-12-25","2027-01-01"]}`)
	if got := e.want(200, "", "GET", path, ""); got.body != made.body || !strings.Contains(got.body, `"dates":["2026-12-25","2027-01-01"]`) {
		t.Errorf("made %s, read %s", made.body, got.body)
	}
	if same := e.want(200, "", "PUT", path, `{"dates":["2026-12-25","2027-01-01"]}`); same.body != made.body {
		t.Errorf("made %s, put %s", made.body, same.body)
	}
	e.want(200, "", "PUT", path, `{}`)
	e.want(201, "", "PUT", "/v1/calendars/b", `{"dates":["2026-12-25"],"ics":"BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nDTSTART;VALUE=DATE:20270105\nEND:VEVENT\nEND:VCALENDAR\n"}`)
	page := e.want(200, "", "GET", "/v1/calendars?limit=1", "")
	cursor, _ := page.doc["next_cursor"].(string)
	if last := e.want(200, "", "GET", "/v1/calendars?limit=1&cursor="+cursor, ""); last.doc["next_cursor"] != nil || !strings.Contains(last.body, "us-holidays") {
		t.Errorf("got %s", last.body)
	}
	e.want(201, "", "PUT", aPath, `{"spec":{"cron":"0 12 * * *","exclude":{"named":["us-holidays"]}}}`)
	if a := e.want(409, "in_use", "DELETE", path, ""); a.doc["schedules"].(interface{ String() string }).String() != "1" {
		t.Errorf("got %s", a.body)
	}
	a := e.want(422, "unknown_calendar", "PUT", aPath, `{"spec":{"cron":"0 12 * * *","exclude":{"named":["none"]}}}`)
	if !strings.Contains(a.body, `"/spec/exclude/named/0"`) {
		t.Errorf("got %s", a.body)
	}
	e.want(422, "unknown_calendar", "POST", "/v1/schedules/preview", `{"spec":{"cron":"0 12 * * *","exclude":{"named":["none"]}}}`)
	e.want(200, "", "POST", "/v1/schedules/preview", `{"spec":{"cron":"0 12 * * *","exclude":{"named":["b"]}}}`)
	e.want(422, "date_syntax", "PUT", path, `{"dates":["2026-02-30"]}`)
	e.want(422, "ics_syntax", "PUT", path, `{"ics":"x"}`)
	e.want(422, "ics_event", "PUT", path, `{"ics":"BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nDTSTART:20270105T000000\nEND:VEVENT\nEND:VCALENDAR\n"}`)
	e.want(422, "too_many", "PUT", path, `{"dates":["2026-01-01"`+strings.Repeat(`,"2026-01-01"`, 5000)+`]}`)
	e.want(422, "invalid", "PUT", "/v1/calendars/a%20b", `{}`)
	e.want(400, "unknown_field", "PUT", path, `{"days":[]}`)
	e.want(415, "unsupported_media_type", "PUT", path, `{}`, "Content-Type", "text/plain")
	e.want(413, "body_too_large", "PUT", path, `{"ics":"`+strings.Repeat("x", 1<<20)+`"}`)
	e.want(422, "invalid_cursor", "GET", "/v1/calendars?cursor=x", "")
	e.want(422, "invalid", "GET", "/v1/calendars?limit=0", "")
	e.want(400, "unknown_parameter", "GET", path+"?x=1", "")
	e.want(403, "insufficient_scope", "PUT", path, `{}`, "Authorization", "Bearer "+e.token("acme", tenants.SchedulesRead))
	e.want(404, "not_found", "GET", path, "", "Authorization", "Bearer "+e.token("other", tenants.TenantAdmin))
	e.want(404, "not_found", "DELETE", path, "", "Authorization", "Bearer "+e.token("other", tenants.TenantAdmin))
	e.want(204, "", "DELETE", aPath, "")
	e.want(204, "", "DELETE", path, "")
	e.want(404, "not_found", "DELETE", path, "")
	for i := range 99 {
		e.want(201, "", "PUT", fmt.Sprintf("/v1/calendars/n%d", i), `{}`)
	}
	e.want(403, "quota_exceeded", "PUT", "/v1/calendars/more", `{}`)
}
