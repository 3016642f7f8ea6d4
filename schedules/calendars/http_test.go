package calendars_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

func TestCalendarsOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const path = "/v1/calendars/us-holidays"
	e.Want(404, "not_found", "GET", path, "")
	made := e.Want(201, "", "PUT", path, `{"dates":["2027-01-01","2026-12-25","2027-01-01"]}`)
	if got := e.Want(200, "", "GET", path, ""); got.Body != made.Body || !strings.Contains(got.Body, `"dates":["2026-12-25","2027-01-01"]`) {
		t.Errorf("made %s, read %s", made.Body, got.Body)
	}
	if same := e.Want(200, "", "PUT", path, `{"dates":["2026-12-25","2027-01-01"]}`); same.Body != made.Body {
		t.Errorf("made %s, put %s", made.Body, same.Body)
	}
	e.Want(422, "invalid", "PUT", path+"?dry_run=perhaps", `{}`)
	if shown := e.Want(200, "", "PUT", path+"?dry_run=true", `{"dates":["2027-01-02"]}`); !strings.Contains(shown.Body, `"dates":["2027-01-02"]`) {
		t.Errorf("a dry run answers %s", shown.Body)
	}
	e.Want(200, "", "PUT", "/v1/calendars/none?dry_run=true", `{}`)
	e.Want(404, "not_found", "GET", "/v1/calendars/none", "")
	if got := e.Want(200, "", "GET", path, ""); got.Body != made.Body {
		t.Errorf("after a dry run it is %s, was %s", got.Body, made.Body)
	}
	e.Want(200, "", "PUT", path, `{}`)
	e.Want(201, "", "PUT", "/v1/calendars/b", `{"dates":["2026-12-25"],"ics":"BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nDTSTART;VALUE=DATE:20270105\nEND:VEVENT\nEND:VCALENDAR\n"}`)
	page := e.Want(200, "", "GET", "/v1/calendars?limit=1", "")
	cursor, _ := page.Doc["next_cursor"].(string)
	if last := e.Want(200, "", "GET", "/v1/calendars?limit=1&cursor="+cursor, ""); last.Doc["next_cursor"] != nil || !strings.Contains(last.Body, "us-holidays") {
		t.Errorf("got %s", last.Body)
	}
	e.Want(201, "", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"0 12 * * *","exclude":{"named":["us-holidays"]}}}`)
	if a := e.Want(409, "in_use", "DELETE", path, ""); a.Doc["schedules"].(interface{ String() string }).String() != "1" {
		t.Errorf("got %s", a.Body)
	}
	a := e.Want(422, "unknown_calendar", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"0 12 * * *","exclude":{"named":["none"]}}}`)
	if !strings.Contains(a.Body, `"/spec/exclude/named/0"`) {
		t.Errorf("got %s", a.Body)
	}
	e.Want(422, "unknown_calendar", "POST", "/v1/schedules/preview", `{"spec":{"cron":"0 12 * * *","exclude":{"named":["none"]}}}`)
	e.Want(200, "", "POST", "/v1/schedules/preview", `{"spec":{"cron":"0 12 * * *","exclude":{"named":["b"]}}}`)
	e.Want(422, "date_syntax", "PUT", path, `{"dates":["2026-02-30"]}`)
	e.Want(422, "ics_syntax", "PUT", path, `{"ics":"x"}`)
	e.Want(422, "ics_event", "PUT", path, `{"ics":"BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nDTSTART:20270105T000000\nEND:VEVENT\nEND:VCALENDAR\n"}`)
	e.Want(422, "too_many", "PUT", path, `{"dates":["2026-01-01"`+strings.Repeat(`,"2026-01-01"`, 5000)+`]}`)
	e.Want(422, "invalid", "PUT", "/v1/calendars/a%20b", `{}`)
	e.Want(400, "unknown_field", "PUT", path, `{"days":[]}`)
	e.Want(415, "unsupported_media_type", "PUT", path, `{}`, "Content-Type", "text/plain")
	e.Want(413, "body_too_large", "PUT", path, `{"ics":"`+strings.Repeat("x", 1<<20)+`"}`)
	e.Want(422, "invalid_cursor", "GET", "/v1/calendars?cursor=x", "")
	e.Want(422, "invalid", "GET", "/v1/calendars?limit=0", "")
	e.Want(400, "unknown_parameter", "GET", path+"?x=1", "")
	e.Want(403, "insufficient_scope", "PUT", path, `{}`, "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
	e.Want(404, "not_found", "GET", path, "", "Authorization", "Bearer "+e.Token("other", tenants.TenantAdmin))
	e.Want(404, "not_found", "DELETE", path, "", "Authorization", "Bearer "+e.Token("other", tenants.TenantAdmin))
	e.Want(204, "", "DELETE", schedulestest.SchedulePath, "")
	e.Want(204, "", "DELETE", path, "")
	e.Want(404, "not_found", "DELETE", path, "")
	for i := range 99 {
		e.Want(201, "", "PUT", fmt.Sprintf("/v1/calendars/n%d", i), `{}`)
	}
	e.Want(403, "quota_exceeded", "PUT", "/v1/calendars/more", `{}`)
}
