package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// costly returns specs that cost more than they seem to.
func costly() map[string]string {
	repeat := func(n int, item func(i int) string) string {
		var all []string
		for i := range n {
			all = append(all, item(i))
		}
		return strings.Join(all, ",")
	}
	all := map[string]string{
		"every second":            `{"cron": "* * * * * *"}`,
		"never":                   `{"cron": "0 0 30 2 *"}`,
		"leap day on a Monday":    `{"cron": "0 0 29 2 1", "day_match": "and"}`,
		"the last year":           `{"cron": "0 0 0 1 1 * 2099"}`,
		"a year past":             `{"cron": "0 0 0 1 1 * 1971"}`,
		"fifth weekday in Feb":    `{"cron": "0 0 * 2 1#5"}`,
		"many crons":              `{"cron": [` + repeat(200, func(i int) string { return fmt.Sprintf(`"%d %d * * *"`, i%60, i%24) }) + `]}`,
		"many that never fire":    `{"cron": [` + repeat(200, func(i int) string { return fmt.Sprintf(`"%d %d 30 2 *"`, i%60, i%24) }) + `]}`,
		"all days are excluded":   `{"cron": "* * * * * *", "exclude": {"calendars": [{}]}}`,
		"all seconds excluded":    `{"cron": "* * * * * *", "exclude": {"calendars": [{"hour": "*", "minute": "*", "second": "*"}]}}`,
		"all but leap days":       `{"cron": "* * * * * *", "exclude": {"calendars": [{"month": "1,3-12"}, {"day_of_month": "1-28"}]}}`,
		"all but one second":      `{"cron": "* * * * * *", "exclude": {"calendars": [{"hour": "*", "minute": "*", "second": "0-58"}]}}`,
		"all but a year":          `{"cron": "* * * * * *", "exclude": {"calendars": [{"year": "1970-2098"}]}}`,
		"excluded and moved":      `{"cron": "* * * * *", "exclude": {"calendars": [{}], "then": "next"}}`,
		"moved back":              `{"cron": "* * * * *", "exclude": {"calendars": [{"year": "2000-2098"}], "then": "previous"}}`,
		"moved onto leap days":    `{"cron": "* * * * *", "exclude": {"calendars": [{"month": "1,3-12"}, {"day_of_month": "1-28"}], "then": "next"}}`,
		"odd days exclude":        `{"cron": "0 0 1-31/2 * *", "exclude": {"calendars": [{"day_of_month": "1-31/2"}]}}`,
		"weekday against weekday": `{"cron": "0 0 * * 1", "exclude": {"calendars": [{"day_of_week": "1"}]}}`,
		"many exclusions":         `{"cron": "* * * * * *", "exclude": {"calendars": [` + repeat(60, func(i int) string { return fmt.Sprintf(`{"hour": "*", "minute": "%d", "second": "*"}`, i) }) + `]}}`,
		"smallest interval":       `{"intervals": [{"every": "1s"}]}`,
		"coprime intervals":       `{"intervals": [` + repeat(50, func(i int) string { return fmt.Sprintf(`{"every": "%ds", "offset": "%ds"}`, 61+2*i, i) }) + `], "exclude": {"calendars": [{"month": "1-11"}]}}`,
		"interval all excluded":   `{"intervals": [{"every": "1s"}], "exclude": {"calendars": [{}]}}`,
		"interval on even":        `{"intervals": [{"every": "2s"}], "exclude": {"calendars": [{"hour": "*", "minute": "*", "second": "*/2"}]}}`,
		"vast interval":           `{"intervals": [{"every": "5000w"}]}`,
		"interval, far start":     `{"intervals": [{"every": "1s", "mode": "fixed_rate"}], "start_at": "1970-01-01T00:00:00Z"}`,
		"one second of rules":     `{"rrule": "DTSTART:19700101T000000\nRRULE:FREQ=SECONDLY"}`,
		"rule of minutes":         `{"rrule": "DTSTART:19700101T000000\nRRULE:FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=29;BYHOUR=23;BYMINUTE=59"}`,
		"rule that never meets":   `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=HOURLY;INTERVAL=2;BYHOUR=1"}`,
		"rule of no day":          `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}`,
		"rule of no day, second":  `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"}`,
		"rule of yearday 366":     `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=SECONDLY;BYYEARDAY=366;BYDAY=MO;BYHOUR=23;BYSECOND=59"}`,
		"rule of positions":       `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=YEARLY;BYHOUR=` + repeat(24, strconv.Itoa) + `;BYMINUTE=` + repeat(60, strconv.Itoa) + `;BYSECOND=` + repeat(60, strconv.Itoa) + `;BYSETPOS=-1"}`,
		"rule of many counts":     `{"rrule": "DTSTART:19700101T000000\nRRULE:FREQ=SECONDLY;COUNT=2000000000"}`,
		"rule, interval vast":     `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=SECONDLY;INTERVAL=2147483647;BYMONTH=2"}`,
		"rule, interval coprime":  `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY;INTERVAL=7919;BYHOUR=3;BYMINUTE=7;BYDAY=FR;BYMONTHDAY=13"}`,
		"rule all excluded":       `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY", "exclude": {"calendars": [{}]}}`,
		"rule half excluded":      `{"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=8", "exclude": {"calendars": [{"hour": "8", "minute": "*", "second": "*"}]}}`,
		"far maximum":             `{"cron": "* * * * * *", "max_ticks": 100000}`,
		"a union of all":          `{"cron": ["* * * * *", "*/7 * * * *"], "calendars": [{"minute": "*/11", "hour": "*"}], "intervals": [{"every": "90s"}, {"every": "77s"}], "rrule": "DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY;INTERVAL=13", "at": ["2090-01-01T00:00:00"], "exclude": {"calendars": [{"month": "*", "year": "1970-2089"}]}}`,
		"where a day is missing":  `{"timezone": "Pacific/Apia", "cron": "* * * * * *", "exclude": {"calendars": [{"year": "2000-2100"}]}}`,
		"jitter beyond":           `{"cron": "0 0 29 2 *", "jitter": "1000w"}`,
	}
	dates := repeat(366, func(i int) string { return fmt.Sprintf(`"2027-%02d-%02d"`, 1+i/31%12, 1+i%28) })
	all["a year of dates"] = `{"cron": "* * * * * *", "exclude": {"dates": [` + dates + `], "then": "next"}}`
	return all
}

// aSecond bounds an answer, with a large reserve for a busy machine. A slower request is repeated a few times: one that costs too much is slow
// each time.
const (
	aSecond  = 20 * time.Second
	mostSlow = 5
)

// backfillOf26Days asks for almost as many days as ticks are kept, so that it is not refused before it costs anything.
func backfillOf26Days() string {
	to := time.Now().UTC().AddDate(0, 0, -1)
	return fmt.Sprintf(`{"from": %q, "to": %q, "dry_run": true}`, to.AddDate(0, 0, -26).Format(time.RFC3339), to.Format(time.RFC3339))
}

// Preview, put, explanation, calendar and backfill of each costly spec are answered in time, with 2xx or 4xx.
func TestNoSpecCostsMoreThanASecond(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	token := s.mint(t, "acme", tenants.TenantAdmin)
	header := http.Header{"Content-Type": {"application/json"}}
	swift := func(what, method, path, body string) answer {
		t.Helper()
		h := header
		if body == "" {
			h = nil
		}
		var got answer
		for range mostSlow {
			var ok bool
			got, ok = s.ask(t, client, token, method, path, h, []byte(body), patience)
			if ok && got.status < 500 && got.took <= aSecond {
				return got
			}
			if ok && got.status >= 500 && got.status != http.StatusServiceUnavailable {
				break
			}
		}
		t.Errorf("%s: %s %s took %s: %d %.200s", what, method, path, got.took, got.status, got.body)
		return got
	}
	specs := costly()
	n := 0
	for _, what := range slices.Sorted(maps.Keys(specs)) {
		spec := specs[what]
		n++
		for _, more := range []string{`"count": 1000`, `"from": "1970-01-01T00:00:00Z", "count": 1000`, `"from": "2026-01-01T00:00:00Z", "until": "2100-12-31T00:00:00Z", "count": 1000`, `"from": "2099-12-31T00:00:00Z"`} {
			swift(what, "POST", "/v1/schedules/preview", `{"spec": `+spec+`, `+more+`}`)
		}
		path := fmt.Sprintf("/v1/workflows/w/schedules/k%d", n)
		if got := swift(what, "PUT", path, `{"spec": `+spec+`}`); got.status != http.StatusCreated && got.status != http.StatusOK {
			continue
		}
		for _, at := range []string{"1970-01-01T00:00:00Z", "2026-11-22T08:00:00Z", "2100-12-31T23:59:59Z", "2090-02-28T00:00", "9999-12-31T23:59:59Z"} {
			swift(what, "GET", path+"/explain?at="+url.QueryEscape(at), "")
		}
		swift(what, "GET", path+"/upcoming?count=1000", "")
		swift(what, "GET", path+"/upcoming?count=1000&from=2099-12-31T00:00:00Z", "")
		swift(what, "POST", path+"/backfill", backfillOf26Days())
		swift(what, "POST", path+"/backfill", `{"from": "1970-01-01T00:00:00Z", "to": "2026-11-20T00:00:00Z", "dry_run": true}`)
		swift(what, "POST", path+"/skip", `{"count": 100}`)
		swift(what, "POST", path+"/pause", `{}`)
		swift(what, "POST", path+"/resume", `{"fire_once": true}`)
		swift(what, "PATCH", path, `{"spec": {"timezone": "Pacific/Apia"}}`)
		swift(what, "PATCH", path, `{"status": "paused"}`)
	}
	swift("forecast", "GET", "/v1/admin/forecast?hours=24", "")
	swift("forecast", "GET", "/v1/admin/forecast?hours=168", "")
	days := make([]string, 10_000)
	for i := range days {
		days[i] = fmt.Sprintf("%d-%02d-%02d", 2000+i/336, 1+i/28%12, 1+i%28)
	}
	raw, err := json.Marshal(map[string]any{"dates": days})
	if err != nil {
		t.Fatal(err)
	}
	swift("calendar", "PUT", "/v1/calendars/all", string(raw))
	swift("calendar", "PUT", "/v1/workflows/w/schedules/named", `{"spec": {"cron": "* * * * * *", "exclude": {"named": ["all"], "then": "next"}}}`)
	var ics strings.Builder
	ics.WriteString("BEGIN:VCALENDAR\r\n")
	for i := range 2000 {
		fmt.Fprintf(&ics, "BEGIN:VEVENT\r\nUID:%d\r\nDTSTART;VALUE=DATE:19700101\r\nDTEND;VALUE=DATE:21001231\r\nRRULE:FREQ=DAILY\r\nEND:VEVENT\r\n", i)
	}
	ics.WriteString("END:VCALENDAR\r\n")
	for what, text := range map[string]string{
		"many long events": ics.String(),
		"a folded bomb":    "BEGIN:VCALENDAR\r\n" + strings.Repeat(" x\r\n", 100_000),
		"nested":           strings.Repeat("BEGIN:VCALENDAR\r\n", 20_000),
		"no end":           "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20260101\r\nRRULE:FREQ=DAILY;INTERVAL=1\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
		"an age":           "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:00010101\r\nDTEND;VALUE=DATE:99991231\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
		"NUL":              "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:\x00\r\nDTSTART;VALUE=DATE:20260101\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
	} {
		raw, err := json.Marshal(map[string]any{"ics": text})
		if err != nil {
			t.Fatal(err)
		}
		swift("ics: "+what, "PUT", "/v1/calendars/ics", string(raw))
	}
}
