package schedules_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	ics "github.com/arran4/golang-ical"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

// A preview may exceed the quotas of the tenant. It warns of them.
func TestAPreviewWarnsOfASpecThatIsTooLarge(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	large := `{"spec":{"at":["2090-01-01T00:00:00"` + strings.Repeat(`,"2090-01-02T00:00:00"`, 300) + `]}}`
	if got := e.Want(413, "spec_too_large", "PUT", schedulestest.SchedulePath, large); got.Doc["quota"] != "spec_bytes" || !strings.Contains(got.Body, `"pointer":"/spec"`) {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(200, "", "POST", "/v1/schedules/preview", large); !strings.Contains(got.Body, `"code":"spec_too_large"`) {
		t.Errorf("got %s", got.Body)
	}
}

func TestComingTicksEndWithTheLimit(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	limited := schedulestest.ByCron("0 12 * * *")
	limited.Spec.MaxTicks = new(3)
	check := func(when string, from time.Time, want int) {
		t.Helper()
		got := h.Get("a")
		up, err := h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 10, from)
		if err != nil {
			t.Fatal(err)
		}
		if len(up.Ticks) != want || !up.Exhausted || got.Status == policy.Active && len(got.Upcoming) != 3 {
			t.Errorf("%s: got %+v and %v, want %d", when, up.Ticks, got.Upcoming, want)
		}
	}
	made := h.Put("a", limited)
	if len(made.Upcoming) != 3 {
		t.Errorf("made with %v", made.Upcoming)
	}
	check("active", time.Time{}, 3)
	check("from its first", made.Upcoming[0], 2)
	h.Pause("a", schedules.PauseParams{Until: new(made.Upcoming[0])})
	check("paused until the first", time.Time{}, 3)
	h.Pause("a", schedules.PauseParams{})
	check("paused", time.Time{}, 3)
	check("paused, from its first", made.Upcoming[0], 2)
	check("paused, long after", made.Upcoming[2], 0)
	h.Resume("a", schedules.ResumeParams{})
	check("resumed", time.Time{}, 3)
}

func TestComingTicksAsICalendar(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const key = `a;b,c\d "ü" ` + "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字"
	s := e.Put(key, schedulestest.Spec(calendar.Spec{Timezone: "Europe/Paris", Cron: calendar.StringList{"30 8 * * *"}}))
	path := "/v1/workflows/w/schedules/" + url.PathEscape(key) + "/upcoming?count=1000"
	fetch := func() string {
		t.Helper()
		status, header, body := text(e, path, "text/calendar")
		if status != 200 || header.Get("Content-Type") != "text/calendar; charset=utf-8" || header.Get("Vary") != "Accept" {
			t.Fatalf("got %d %s", status, header)
		}
		return body
	}
	body := fetch()
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\r\n"), "\r\n") {
		if len(line) > 75 || strings.ContainsAny(line, "\r\n") || !utf8.ValidString(line) {
			t.Fatalf("bad line %q", line)
		}
	}
	cal, err := ics.ParseCalendar(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	uids := func(body string) (list []string) {
		for line := range strings.SplitSeq(body, "\r\n") {
			if uid, ok := strings.CutPrefix(line, "UID:"); ok {
				list = append(list, uid)
			}
		}
		return list
	}
	events := cal.Events()
	first := uids(body)
	if len(events) != 1000 || len(slices.Compact(slices.Sorted(slices.Values(first)))) != 1000 {
		t.Fatalf("got %d events of %d ids", len(events), len(first))
	}
	for i, one := range events[:5] {
		at, err := one.GetStartAt()
		stamp, stampErr := one.GetDtStampTime()
		if err != nil || stampErr != nil || !at.Equal(s.Upcoming[i]) || time.Since(stamp) > time.Hour {
			t.Errorf("event %d is at %s, stamped %s: %v, %v", i, at, stamp, err, stampErr)
		}
		if text := ics.FromText(one.GetProperty(ics.ComponentPropertySummary).Value); text != "w/"+key {
			t.Errorf("got %q", text)
		}
		if start := one.GetProperty(ics.ComponentPropertyDtStart); !strings.HasSuffix(start.Value, "Z") {
			t.Errorf("DTSTART is %s", start.Value)
		}
	}
	if again := uids(fetch()); !slices.Equal(again, first) {
		t.Error("asked again, its events are others")
	}
	for accept, want := range map[string]string{
		"":                                      "application/json",
		"*/*":                                   "application/json",
		"text/*":                                "application/json",
		"text/html":                             "application/json",
		"text/calendar;q=0":                     "application/json",
		"text/calendar;q=x":                     "application/json",
		"text/calendar;q=0.5, application/json": "application/json",
		"application/json;q=0.5, Text/Calendar": "text/calendar; charset=utf-8",
		"text/html, text/calendar;q=0.9, */*;q=1": "text/calendar; charset=utf-8",
		"text/calendar;charset=utf-8":             "text/calendar; charset=utf-8",
	} {
		if _, header, _ := text(e, path, accept); header.Get("Content-Type") != want {
			t.Errorf("%q: got %s", accept, header.Get("Content-Type"))
		}
	}
	e.Want(404, "not_found", "GET", "/v1/workflows/w/schedules/none/upcoming", "", "Accept", "text/calendar")
	e.Want(422, "invalid", "GET", "/v1/workflows/w/schedules/none/upcoming?count=1001", "", "Accept", "text/calendar")
}

// text returns the answer to a GET, whatever its type.
func text(e *schedulestest.Site, path, accept string) (status int, header http.Header, body string) {
	e.T.Helper()
	r, err := http.NewRequestWithContext(e.T.Context(), http.MethodGet, e.URL+path, nil)
	if err != nil {
		e.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
	r.Header.Set("Accept", accept)
	resp, err := e.Client.Do(r)
	if err != nil {
		e.T.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		e.T.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(got)
}

func TestAScheduleIsReadByItsID(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	made := e.Want(201, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody)
	path := "/v1/schedules/" + made.Doc["id"].(string)
	byName, byID := e.Want(200, "", "GET", schedulestest.SchedulePath, ""), e.Want(200, "", "GET", path, "")
	if byID.Body != byName.Body || byID.Header.Get("ETag") != byName.Header.Get("ETag") {
		t.Errorf("by name %s, by id %s", byName.Body, byID.Body)
	}
	e.Want(304, "", "GET", path, "", "If-None-Match", byID.Header.Get("ETag"))
	e.Want(404, "not_found", "GET", path, "", "Authorization", "Bearer "+e.Token("other", tenants.TenantAdmin))
	for _, id := range []string{"sch_none", "x", strings.Repeat("x", 300)} {
		e.Want(404, "not_found", "GET", "/v1/schedules/"+id, "")
	}
	e.Want(400, "unknown_parameter", "GET", path+"?x=1", "")
	e.Want(204, "", "DELETE", schedulestest.SchedulePath, "")
	e.Want(404, "not_found", "GET", path, "")
}
