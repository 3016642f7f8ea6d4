package schedules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

func TestAScheduleOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	body := `{"spec":{"timezone":"Europe/Berlin","cron":["0 9 * * 1-5"],"jitter":"30s"},"policy":{"missed":"all"},"payload":{"z": 1, "a": [1e999,12345678901234567890]},"labels":{"plan":"pro"},"note":"n"}`
	made := e.Want(201, "", "PUT", schedulestest.SchedulePath, body, "If-None-Match", "*")
	if made.Header.Get("ETag") != `"1"` || !strings.Contains(made.Body, `"payload":{"z": 1, "a": [1e999,12345678901234567890]}`) {
		t.Errorf("got %v %s", made.Header, made.Body)
	}
	same := e.Want(200, "", "PUT", schedulestest.SchedulePath, body, "If-Match", `"1"`)
	if same.Header.Get("ETag") != `"1"` || same.Body != made.Body {
		t.Errorf("got %v %s", same.Header, same.Body)
	}
	if got := e.Want(200, "", "GET", schedulestest.SchedulePath, ""); got.Body != made.Body || got.Header.Get("ETag") != `"1"` {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(304, "", "GET", schedulestest.SchedulePath, "", "If-None-Match", `"1"`); got.Header.Get("ETag") != `"1"` {
		t.Errorf("got %v", got.Header)
	}
	e.Want(200, "", "GET", schedulestest.SchedulePath, "", "If-None-Match", `"2"`)
	paused := e.Want(200, "", "POST", schedulestest.SchedulePath+"/pause", `{"note":"leave","until":"2090-01-01T00:00:00+02:00"}`, "Idempotency-Key", "k")
	again := e.Want(200, "", "POST", schedulestest.SchedulePath+"/pause", `{"note":"leave","until":"2090-01-01T00:00:00+02:00"}`, "Idempotency-Key", "k")
	if paused.Header.Get("ETag") != `"2"` || again.Header.Get("ETag") != `"2"` || paused.Body != again.Body || paused.Doc["paused_until"] != "2089-12-31T22:00:00Z" {
		t.Errorf("got %v %s, then %v %s", paused.Header, paused.Body, again.Header, again.Body)
	}
	e.Want(422, "idempotency_key_reused", "POST", schedulestest.SchedulePath+"/pause", `{}`, "Idempotency-Key", "k")
	if got := e.Want(200, "", "POST", schedulestest.SchedulePath+"/resume", `{"fire_once":true}`, "If-Match", `"2"`); got.Header.Get("ETag") != `"3"` || got.Doc["status"] != "active" {
		t.Errorf("got %v %s", got.Header, got.Body)
	}
	e.Want(200, "", "POST", schedulestest.SchedulePath+"/pause", "")
	e.Want(200, "", "POST", schedulestest.SchedulePath+"/resume", "")
	up := e.Want(200, "", "GET", schedulestest.SchedulePath+"/upcoming?count=7&from=2090-03-24T12:00:00%2B01:00", "")
	ticks, _ := up.Doc["ticks"].([]any)
	if len(ticks) != 7 || ticks[0].(map[string]any)["local_time"] != "2090-03-27T09:00:00+02:00" || up.Doc["class"] != "fixed" {
		t.Errorf("got %s", up.Body)
	}
	e.Want(200, "", "GET", schedulestest.SchedulePath+"/upcoming", "")
	e.Want(204, "", "DELETE", schedulestest.SchedulePath, "", "If-Match", `"5"`)
	e.Want(404, "not_found", "GET", schedulestest.SchedulePath, "")
}

func TestKeysArePathsOfTheirOwn(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for path, key := range map[string]string{"a%2Fb": "a/b", "a%252Fb": "a%2Fb", "%E6%97%A5": "日", "%2E%2E": "..", "a%20b": "a b", "pause": "pause"} {
		a := e.Want(201, "", "PUT", "/v1/workflows/w/schedules/"+path, schedulestest.DailyBody)
		if a.Doc["key"] != key {
			t.Errorf("%s: got key %v", path, a.Doc["key"])
		}
		e.Want(200, "", "GET", "/v1/workflows/w/schedules/"+path+"/upcoming", "")
	}
	for _, path := range []string{"%00", "%FF", "a%0Ab", strings.Repeat("x", 257)} {
		e.Want(422, "invalid", "PUT", "/v1/workflows/w/schedules/"+path, schedulestest.DailyBody)
	}
	e.Want(404, "not_found", "PUT", "/v1/workflows/w/schedules/", schedulestest.DailyBody)
}

func TestFaultsOfSchedulesOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody)
	const many = "/v1/schedules"
	for _, c := range []struct {
		status             int
		code, method, path string
		body               string
		headers            []string
	}{
		{400, "invalid_json", "PUT", schedulestest.SchedulePath, `{`, nil},
		{400, "unknown_field", "PUT", schedulestest.SchedulePath, `{"spec":{"crn":"* * * * *"}}`, nil},
		{400, "unknown_field", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"* * * * *"},"Payload":1}`, nil},
		{400, "duplicate_member", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"* * * * *"},"payload":{"a":1,"a":2}}`, nil},
		{400, "unknown_parameter", "PUT", schedulestest.SchedulePath + "?x=1", schedulestest.DailyBody, nil},
		{400, "malformed_header", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody, []string{"If-Match", "1"}},
		{412, "version_mismatch", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody, []string{"If-Match", `"9"`}},
		{412, "version_mismatch", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody, []string{"If-None-Match", `*`}},
		{413, "payload_too_large", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"0 12 * * *"},"payload":"` + strings.Repeat("x", 70_000) + `"}`, nil},
		{413, "body_too_large", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"0 12 * * *"},"payload":"` + strings.Repeat("x", 1<<20) + `"}`, nil},
		{415, "unsupported_media_type", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody, []string{"Content-Type", "text/plain"}},
		{422, "never_fires", "PUT", schedulestest.SchedulePath, `{"spec":{"at":["2020-01-01T00:00:00"]}}`, nil},
		{422, "nul", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"0 12 * * *"},"note":"\u0000"}`, nil},
		{422, "invalid", "PUT", "/v1/workflows/a%20b/schedules/a", schedulestest.DailyBody, nil},
		{422, "spec_empty", "PUT", schedulestest.SchedulePath, `{}`, nil},
		{400, "unknown_parameter", "GET", schedulestest.SchedulePath + "?x=1", "", nil},
		{404, "not_found", "GET", "/v1/workflows/w/schedules/none", "", nil},
		{404, "not_found", "DELETE", "/v1/workflows/w/schedules/none", "", nil},
		{400, "unknown_parameter", "DELETE", schedulestest.SchedulePath + "?x", "", nil},
		{412, "version_mismatch", "DELETE", schedulestest.SchedulePath, "", []string{"If-Match", `"9"`}},
		{404, "not_found", "POST", "/v1/workflows/w/schedules/none/pause", "", nil},
		{400, "unknown_parameter", "POST", schedulestest.SchedulePath + "/pause?x=1", "", nil},
		{400, "invalid_idempotency_key", "POST", schedulestest.SchedulePath + "/pause", "", []string{"Idempotency-Key", "\u00e9"}},
		{412, "version_mismatch", "POST", schedulestest.SchedulePath + "/pause", "", []string{"If-Match", `"9"`}},
		{422, "invalid", "POST", schedulestest.SchedulePath + "/pause", `{"until":"2020-01-01T00:00:00Z"}`, nil},
		{422, "invalid", "POST", schedulestest.SchedulePath + "/pause", `{"note":"` + strings.Repeat("x", 1001) + `"}`, nil},
		{404, "not_found", "POST", "/v1/workflows/w/schedules/none/resume", "", nil},
		{400, "unknown_field", "POST", schedulestest.SchedulePath + "/resume", `{"fire":true}`, nil},
		{415, "unsupported_media_type", "POST", schedulestest.SchedulePath + "/resume", `{}`, []string{"Content-Type", "text/plain"}},
		{404, "not_found", "GET", "/v1/workflows/w/schedules/none/upcoming", "", nil},
		{400, "unknown_parameter", "GET", schedulestest.SchedulePath + "/upcoming?limit=5", "", nil},
		{400, "duplicate_parameter", "GET", schedulestest.SchedulePath + "/upcoming?count=5&count=6", "", nil},
		{422, "invalid", "GET", schedulestest.SchedulePath + "/upcoming?count=", "", nil},
		{422, "invalid", "GET", schedulestest.SchedulePath + "/upcoming?count=1001", "", nil},
		{422, "invalid", "GET", schedulestest.SchedulePath + "/upcoming?count=x", "", nil},
		{422, "invalid", "GET", schedulestest.SchedulePath + "/upcoming?from=", "", nil},
		{422, "invalid", "GET", schedulestest.SchedulePath + "/upcoming?from=2026-01-01", "", nil},
		{422, "invalid", "GET", many + "?limit=0", "", nil},
		{422, "invalid", "GET", many + "?limit=1001", "", nil},
		{422, "invalid", "GET", many + "?limit=", "", nil},
		{422, "invalid", "GET", many + "?workflow=", "", nil},
		{422, "invalid", "GET", many + "?workflow=a%20b", "", nil},
		{422, "invalid", "GET", many + "?status=on", "", nil},
		{422, "invalid", "GET", many + "?status=", "", nil},
		{422, "invalid", "GET", many + "?key_prefix=", "", nil},
		{422, "invalid", "GET", many + "?key_prefix=%FF", "", nil},
		{422, "invalid", "GET", many + "?key_prefix=" + strings.Repeat("x", 257), "", nil},
		{422, "invalid", "GET", many + "?cursor=", "", nil},
		{422, "invalid_cursor", "GET", many + "?cursor=x", "", nil},
		{422, "invalid", "GET", many + "?label=x", "", nil},
		{422, "invalid", "GET", many + "?label=", "", nil},
		{422, "invalid", "GET", many + "?label=a%20b:c", "", nil},
		{422, "invalid", "GET", many + "?label=a:b&key_prefix=c", "", nil},
		{422, "invalid", "GET", many + "?due_before=2026-01-01", "", nil},
		{422, "invalid", "GET", many + "?due_before=", "", nil},
		{422, "invalid", "GET", many + "?due_before=2026-01-01T00:00:00Z&label=a:b", "", nil},
		{400, "unknown_parameter", "GET", many + "?colour=x", "", nil},
		{400, "unknown_parameter", "POST", many + "/preview?x=1", schedulestest.DailyBody, nil},
		{400, "invalid_json", "POST", many + "/preview", " ", nil},
		{415, "unsupported_media_type", "POST", many + "/preview", "", nil},
		{422, "invalid", "POST", many + "/preview", `{"spec":{"cron":"0 12 * * *"},"count":0}`, nil},
		{405, "method_not_allowed", "POST", "/v1/workflows/w", "", nil},
	} {
		e.Want(c.status, c.code, c.method, c.path, c.body, c.headers...)
	}
	if got := e.Want(200, "", "GET", schedulestest.SchedulePath, ""); got.Header.Get("ETag") != `"1"` {
		t.Errorf("it was changed: %s", got.Body)
	}
}

func TestAListOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	if got := e.Want(200, "", "GET", "/v1/schedules", ""); got.Body != `{"items":[],"next_cursor":null}` {
		t.Errorf("got %s", got.Body)
	}
	for i := range 5 {
		e.Want(201, "", "PUT", fmt.Sprint("/v1/workflows/w/schedules/", i), schedulestest.DailyBody)
	}
	n, next := 0, ""
	for {
		page := e.Want(200, "", "GET", "/v1/schedules?limit=2&workflow=w&status=active"+next, "")
		n += len(page.Doc["items"].([]any))
		cursor, more := page.Doc["next_cursor"].(string)
		if !more {
			break
		}
		next = "&cursor=" + cursor
	}
	if n != 5 {
		t.Errorf("the pages hold %d", n)
	}
	e.Want(200, "", "GET", "/v1/schedules?key_prefix=3", "")
	e.Want(200, "", "GET", "/v1/schedules?label=plan:pro:1", "")
	if got := e.Want(200, "", "GET", "/v1/schedules?limit=3&due_before=2090-01-01T00:00:00%2B01:00", ""); len(got.Doc["items"].([]any)) != 3 {
		t.Errorf("got %s", got.Body)
	}
	e.Want(422, "invalid_cursor", "GET", "/v1/schedules?limit=2"+next, "")
}

func TestManyOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for _, key := range []string{"a", "b", "a%2Fb"} {
		e.Want(201, "", "PUT", "/v1/workflows/w/schedules/"+key, schedulestest.DailyBody)
	}
	const path = "/v1/schedules/get"
	got := []string{}
	for _, item := range e.Want(200, "", "POST", path, `{"workflow":"w","keys":["b","none","a/b","a"]}`).Doc["items"].([]any) {
		got = append(got, item.(map[string]any)["key"].(string))
	}
	if want := "b a/b a"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e.Want(200, "", "POST", path, `{"workflow":"other","keys":["b"]}`)
	if a := e.Want(200, "", "POST", path, `{"workflow":"w","keys":["b"]}`, "Authorization", "Bearer "+e.Token("other", tenants.SchedulesRead)); a.Body != `{"items":[]}` {
		t.Errorf("another tenant got %s", a.Body)
	}
	e.Want(422, "out_of_range", "POST", path, `{"workflow":"w","keys":[]}`)
	e.Want(422, "out_of_range", "POST", path, `{"workflow":"w","keys":["k"`+strings.Repeat(`,"k"`, 1000)+`]}`)
	e.Want(422, "invalid", "POST", path, `{"workflow":"w","keys":["a","\n"]}`)
	e.Want(422, "invalid", "POST", path, `{"keys":["a"]}`)
	e.Want(403, "insufficient_scope", "POST", path, `{}`, "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesWrite))
}

func TestAPreviewOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Quotas = tenants.Defaults()
	preview := func(body string) schedulestest.Answer { return e.Want(200, "", "POST", "/v1/schedules/preview", body) }
	has := func(a schedulestest.Answer, code string) bool {
		for _, w := range a.Doc["warnings"].([]any) {
			if w.(map[string]any)["code"] == code {
				return true
			}
		}
		return false
	}
	a := preview(`{"spec":{"timezone":"Europe/Berlin","cron":"30 2 * * *"},"from":"2027-03-27T12:00:00Z","count":2}`)
	first := a.Doc["ticks"].([]any)[0].(map[string]any)
	if first["dst"] != "gap" || first["timestamp"] != "2027-03-28T01:30:00Z" || first["local_time"] != "2027-03-28T03:30:00+02:00" {
		t.Errorf("got %s", a.Body)
	}
	if a = preview(`{"spec":{"cron":"* * * * * *"}}`); !has(a, "interval_too_small") || len(a.Doc["ticks"].([]any)) != 5 {
		t.Errorf("got %s", a.Body)
	}
	if a = preview(`{"spec":{"cron":"0 0 30 2 *"}}`); !has(a, "never_fires") || a.Doc["exhausted"] != true || len(a.Doc["ticks"].([]any)) != 0 {
		t.Errorf("got %s", a.Body)
	}
	if a = preview(`{"spec":{"intervals":[{"every":"1h","mode":"fixed_delay"}]}}`); !has(a, "depends_on_run") || len(a.Doc["ticks"].([]any)) != 5 {
		t.Errorf("got %s", a.Body)
	}
	if a = preview(`{"spec":{"cron":"0 12 * * *","max_ticks":2},"count":3}`); a.Doc["exhausted"] != true || len(a.Doc["ticks"].([]any)) != 2 {
		t.Errorf("got %s", a.Body)
	}
	if a = preview(`{"spec":{"cron":"0 12 * * *"},"from":"2026-01-01T00:00:00Z","until":"2026-01-03T12:00:00Z","count":1000}`); a.Doc["exhausted"] != false || len(a.Doc["ticks"].([]any)) != 3 {
		t.Errorf("got %s", a.Body)
	}
	for _, from := range []string{"1970-01-01T00:00:00Z", "2099-12-31T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"} {
		preview(`{"spec":{"timezone":"Africa/Monrovia","cron":"0 12 * * *"},"from":"` + from + `","count":3}`)
	}
}

func TestWorkflowsOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const path = "/v1/workflows/daily"
	e.Want(404, "not_found", "GET", path, "")
	if got := e.Want(200, "", "GET", "/v1/workflows", ""); got.Body != `{"items":[],"next_cursor":null}` {
		t.Errorf("got %s", got.Body)
	}
	made := e.Want(201, "", "PUT", path, `{"version":"1","defaults":{"policy":{"max_lateness":"1h"},"delivery":{"timeout":"5m"}}}`)
	if got := e.Want(200, "", "GET", path, ""); got.Body != made.Body {
		t.Errorf("made %s, read %s", made.Body, got.Body)
	}
	e.Want(200, "", "PUT", path, `{"endpoint":null}`)
	e.Want(201, "", "PUT", "/v1/workflows/weekly", `{}`)
	page := e.Want(200, "", "GET", "/v1/workflows?limit=1", "")
	cursor, _ := page.Doc["next_cursor"].(string)
	if last := e.Want(200, "", "GET", "/v1/workflows?limit=1&cursor="+cursor, ""); last.Doc["next_cursor"] != nil {
		t.Errorf("got %s", last.Body)
	}
	e.Want(422, "no_endpoint", "PUT", path, `{"endpoint":"none"}`)
	e.Want(422, "invalid", "PUT", path, `{"max_running":0,"defaults":{"policy":{"missed":"all"}}}`)
	e.Want(422, "invalid", "PUT", "/v1/workflows/a%20b", `{}`)
	e.Want(400, "unknown_field", "PUT", path, `{"url":"x"}`)
	e.Want(415, "unsupported_media_type", "PUT", path, `{}`, "Content-Type", "text/plain")
	e.Want(422, "invalid", "GET", "/v1/workflows?cursor=", "")
	e.Want(422, "invalid_cursor", "GET", "/v1/workflows?cursor=x", "")
	e.Want(422, "invalid", "GET", "/v1/workflows?limit=0", "")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		e.Want(400, "unknown_parameter", method, path+"?x=1", map[string]string{"PUT": `{}`}[method])
	}
	e.Want(400, "unknown_parameter", "GET", "/v1/workflows?x=1", "")
	e.Want(204, "", "DELETE", path, "")
	e.Want(404, "not_found", "DELETE", path, "")
}

func TestEachRouteNeedsItsScope(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for _, c := range []struct {
		method, path string
		scopes       []string
	}{
		{"PUT", schedulestest.SchedulePath, []string{tenants.SchedulesWrite}},
		{"GET", schedulestest.SchedulePath, []string{tenants.SchedulesRead, tenants.TenantRead}},
		{"DELETE", schedulestest.SchedulePath, []string{tenants.SchedulesWrite}},
		{"POST", schedulestest.SchedulePath + "/pause", []string{tenants.SchedulesWrite}},
		{"POST", schedulestest.SchedulePath + "/resume", []string{tenants.SchedulesWrite}},
		{"GET", schedulestest.SchedulePath + "/upcoming", []string{tenants.SchedulesRead, tenants.TenantRead}},
		{"GET", "/v1/schedules", []string{tenants.SchedulesRead, tenants.TenantRead}},
		{"GET", "/v1/zones", tenants.TenantScopes()},
		{"GET", "/v1/zones/Europe%2FBerlin", tenants.TenantScopes()},
		{"GET", "/v1/admin/settings", []string{tenants.TenantRead}},
		{"PATCH", "/v1/admin/settings", []string{tenants.TenantAdmin}},
		{"GET", "/v1/schedules/sch_none", []string{tenants.SchedulesRead, tenants.TenantRead}},
		{"POST", "/v1/schedules/preview", []string{tenants.SchedulesRead, tenants.TenantRead}},
		{"GET", "/v1/admin/forecast", []string{tenants.TenantRead}},
		{"DELETE", "/v1/subjects/none", []string{tenants.SubjectsErase}},
		{"POST", "/v1/subjects/none/cancel", []string{tenants.SchedulesWrite}},
		{"GET", "/v1/workflows", []string{tenants.SchedulesRead, tenants.SchedulesWrite, tenants.TenantRead}},
		{"PUT", "/v1/workflows/w", []string{tenants.SchedulesWrite}},
		{"GET", "/v1/workflows/w", []string{tenants.SchedulesRead, tenants.SchedulesWrite, tenants.TenantRead}},
		{"DELETE", "/v1/workflows/w", []string{tenants.SchedulesWrite}},
	} {
		for _, scope := range tenants.TenantScopes() {
			a := e.Ask(c.method, c.path, "", "Authorization", "Bearer "+e.Token("acme", scope))
			may := scope == tenants.TenantAdmin
			for _, enough := range c.scopes {
				may = may || scope == enough
			}
			if may == (a.Status == 403) {
				t.Errorf("%s %s with %s: got %d", c.method, c.path, scope, a.Status)
			}
		}
		e.Want(401, "unauthenticated", c.method, c.path, "", "Authorization", "")
		e.Want(401, "invalid_token", c.method, c.path, "", "Authorization", "Bearer a.b.c")
	}
	e.Want(201, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody)
	e.Want(404, "not_found", "GET", schedulestest.SchedulePath, "", "Authorization", "Bearer "+e.Token("other", tenants.TenantAdmin))
}

func TestFixedDelayOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	made := e.Want(201, "", "PUT", schedulestest.SchedulePath, `{"spec":{"intervals":[{"every":"1h","mode":"fixed_delay","first":"after"}]}}`)
	if got := made.Doc["upcoming"].([]any); len(got) != 1 || got[0] != made.Doc["next_at"] || !strings.Contains(made.Body, "depends_on_run") {
		t.Errorf("got %s", made.Body)
	}
	if got := e.Want(200, "", "GET", schedulestest.SchedulePath+"/upcoming?count=3", ""); len(got.Doc["ticks"].([]any)) != 1 || got.Doc["exhausted"] != false {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(200, "", "GET", "/v1/schedules?due_before=2090-01-01T00:00:00Z", ""); len(got.Doc["items"].([]any)) != 1 {
		t.Errorf("got %s", got.Body)
	}
	e.Want(422, "fixed_delay_alone", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"0 12 * * *","intervals":[{"every":"1h","mode":"fixed_delay"}]}}`)
	first := e.Want(200, "", "POST", "/v1/schedules/preview", `{"spec":{"intervals":[{"every":"1h","mode":"fixed_delay"}],"start_at":"2090-01-01T00:00:00Z"},"count":1}`)
	if ticks := first.Doc["ticks"].([]any); ticks[0].(map[string]any)["timestamp"] != "2090-01-01T00:00:00Z" {
		t.Errorf("got %s", first.Body)
	}
}
