package schedules_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// edge is the API of schedules over HTTP; each of its answers is held to the OpenAPI document.
type edge struct {
	*home
	client *http.Client
	url    string
	minter tenants.Minter
	ahead  atomic.Int64 // by how much the clock that tokens are checked with runs ahead
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	h := newHome(t)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{home: h, minter: tenants.NewIssuer(key, "test")}
	verifier := tenants.NewVerifier(tenants.VerifierOptions{
		Issuer: "test", Keys: []tenants.Key{e.minter.Key()}, Tenants: tenants.NewDirectory(h.pool),
		Now: func() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) },
	})
	router := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	authenticated := router.Group("", tenants.Authenticate(verifier))
	schedules.Routes(authenticated, h.schedules)
	bulk.Routes(authenticated, h.inBulk)
	forecast.Routes(authenticated, h.schedules.Forecasts)
	calendars.Routes(authenticated, h.calendars)
	subjects.Routes(authenticated, h.subjects)
	operations.Routes(authenticated, h.schedules.Operations)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	e.url = server.URL
	e.client = &http.Client{Transport: apitest.Transport(t, server.Client().Transport)}
	return e
}

func (e *edge) token(tenant string, scopes ...string) string {
	e.t.Helper()
	token, err := e.minter.Mint(tenants.Claims{Subject: "ann", Tenant: tenant, Scopes: scopes, TTL: time.Minute}, time.Now())
	if err != nil {
		e.t.Fatal(err)
	}
	return token
}

// answer is what came back; doc is its body.
type answer struct {
	status int
	header http.Header
	body   string
	doc    map[string]any
}

// ask sends a request as one who may all in acme. Headers come in pairs; one without a value is left out.
func (e *edge) ask(method, path, body string, headers ...string) answer {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.token("acme", tenants.TenantAdmin))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	resp, err := e.client.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(got)}
	if len(got) > 0 {
		d := json.NewDecoder(bytes.NewReader(got))
		d.UseNumber() // payloads have numbers of any size
		if err := d.Decode(&a.doc); err != nil {
			e.t.Fatalf("%s: %v", got, err)
		}
	}
	return a
}

// want asks and fails unless the answer has the status and, where it is a problem, the code.
func (e *edge) want(status int, code, method, path, body string, headers ...string) answer {
	e.t.Helper()
	a := e.ask(method, path, body, headers...)
	if got, _ := a.doc["code"].(string); a.status != status || status >= 400 && got != code {
		e.t.Errorf("%s %s %.200s: got %d %s, want %d %s", method, path, body, a.status, a.body, status, code)
	}
	return a
}

const (
	aPath = "/v1/workflows/w/schedules/a"
	daily = `{"spec":{"cron":"0 12 * * *"}}`
)

func TestAScheduleOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	body := `{"spec":{"timezone":"Europe/Berlin","cron":["0 9 * * 1-5"],"jitter":"30s"},"policy":{"missed":"all"},"payload":{"z": 1, "a": [1e999,12345678901234567890]},"labels":{"plan":"pro"},"note":"n"}`
	made := e.want(201, "", "PUT", aPath, body, "If-None-Match", "*")
	if made.header.Get("ETag") != `"1"` || !strings.Contains(made.body, `"payload":{"z": 1, "a": [1e999,12345678901234567890]}`) {
		t.Errorf("got %v %s", made.header, made.body)
	}
	same := e.want(200, "", "PUT", aPath, body, "If-Match", `"1"`)
	if same.header.Get("ETag") != `"1"` || same.body != made.body {
		t.Errorf("got %v %s", same.header, same.body)
	}
	if got := e.want(200, "", "GET", aPath, ""); got.body != made.body || got.header.Get("ETag") != `"1"` {
		t.Errorf("got %s", got.body)
	}
	if got := e.want(304, "", "GET", aPath, "", "If-None-Match", `"1"`); got.header.Get("ETag") != `"1"` {
		t.Errorf("got %v", got.header)
	}
	e.want(200, "", "GET", aPath, "", "If-None-Match", `"2"`)
	paused := e.want(200, "", "POST", aPath+"/pause", `{"note":"leave","until":"2090-01-01T00:00:00+02:00"}`, "Idempotency-Key", "k")
	again := e.want(200, "", "POST", aPath+"/pause", `{"note":"leave","until":"2090-01-01T00:00:00+02:00"}`, "Idempotency-Key", "k")
	if paused.header.Get("ETag") != `"2"` || again.header.Get("ETag") != `"2"` || paused.body != again.body || paused.doc["paused_until"] != "2089-12-31T22:00:00Z" {
		t.Errorf("got %v %s, then %v %s", paused.header, paused.body, again.header, again.body)
	}
	e.want(422, "idempotency_key_reused", "POST", aPath+"/pause", `{}`, "Idempotency-Key", "k")
	if got := e.want(200, "", "POST", aPath+"/resume", `{"fire_once":true}`, "If-Match", `"2"`); got.header.Get("ETag") != `"3"` || got.doc["status"] != "active" {
		t.Errorf("got %v %s", got.header, got.body)
	}
	e.want(200, "", "POST", aPath+"/pause", "")
	e.want(200, "", "POST", aPath+"/resume", "")
	up := e.want(200, "", "GET", aPath+"/upcoming?count=7&from=2027-03-26T12:00:00%2B01:00", "")
	ticks, _ := up.doc["ticks"].([]any)
	if len(ticks) != 7 || ticks[0].(map[string]any)["local_time"] != "2027-03-29T09:00:00+02:00" || up.doc["class"] != "fixed" {
		t.Errorf("got %s", up.body)
	}
	e.want(200, "", "GET", aPath+"/upcoming", "")
	e.want(204, "", "DELETE", aPath, "", "If-Match", `"5"`)
	e.want(404, "not_found", "GET", aPath, "")
}

func TestKeysArePathsOfTheirOwn(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for path, key := range map[string]string{"a%2Fb": "a/b", "a%252Fb": "a%2Fb", "%E6%97%A5": "日", "%2E%2E": "..", "a%20b": "a b", "pause": "pause"} {
		a := e.want(201, "", "PUT", "/v1/workflows/w/schedules/"+path, daily)
		if a.doc["key"] != key {
			t.Errorf("%s: got key %v", path, a.doc["key"])
		}
		e.want(200, "", "GET", "/v1/workflows/w/schedules/"+path+"/upcoming", "")
	}
	for _, path := range []string{"%00", "%FF", "a%0Ab", strings.Repeat("x", 257)} {
		e.want(422, "invalid", "PUT", "/v1/workflows/w/schedules/"+path, daily)
	}
	e.want(404, "not_found", "PUT", "/v1/workflows/w/schedules/", daily)
}

func TestFaultsOfSchedulesOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.want(201, "", "PUT", aPath, daily)
	const many = "/v1/schedules"
	for _, c := range []struct {
		status             int
		code, method, path string
		body               string
		headers            []string
	}{
		{400, "invalid_json", "PUT", aPath, `{`, nil},
		{400, "unknown_field", "PUT", aPath, `{"spec":{"crn":"* * * * *"}}`, nil},
		{400, "unknown_field", "PUT", aPath, `{"spec":{"cron":"* * * * *"},"Payload":1}`, nil},
		{400, "duplicate_member", "PUT", aPath, `{"spec":{"cron":"* * * * *"},"payload":{"a":1,"a":2}}`, nil},
		{400, "unknown_parameter", "PUT", aPath + "?x=1", daily, nil},
		{400, "malformed_header", "PUT", aPath, daily, []string{"If-Match", "1"}},
		{412, "version_mismatch", "PUT", aPath, daily, []string{"If-Match", `"9"`}},
		{412, "version_mismatch", "PUT", aPath, daily, []string{"If-None-Match", `*`}},
		{413, "payload_too_large", "PUT", aPath, `{"spec":{"cron":"0 12 * * *"},"payload":"` + strings.Repeat("x", 70_000) + `"}`, nil},
		{413, "body_too_large", "PUT", aPath, `{"spec":{"cron":"0 12 * * *"},"payload":"` + strings.Repeat("x", 1<<20) + `"}`, nil},
		{415, "unsupported_media_type", "PUT", aPath, daily, []string{"Content-Type", "text/plain"}},
		{422, "never_fires", "PUT", aPath, `{"spec":{"at":["2020-01-01T00:00:00"]}}`, nil},
		{422, "nul", "PUT", aPath, `{"spec":{"cron":"0 12 * * *"},"note":"\u0000"}`, nil},
		{422, "invalid", "PUT", "/v1/workflows/a%20b/schedules/a", daily, nil},
		{422, "spec_empty", "PUT", aPath, `{}`, nil},
		{400, "unknown_parameter", "GET", aPath + "?x=1", "", nil},
		{404, "not_found", "GET", "/v1/workflows/w/schedules/none", "", nil},
		{404, "not_found", "DELETE", "/v1/workflows/w/schedules/none", "", nil},
		{400, "unknown_parameter", "DELETE", aPath + "?x", "", nil},
		{412, "version_mismatch", "DELETE", aPath, "", []string{"If-Match", `"9"`}},
		{404, "not_found", "POST", "/v1/workflows/w/schedules/none/pause", "", nil},
		{400, "unknown_parameter", "POST", aPath + "/pause?x=1", "", nil},
		{400, "invalid_idempotency_key", "POST", aPath + "/pause", "", []string{"Idempotency-Key", "\u00e9"}},
		{412, "version_mismatch", "POST", aPath + "/pause", "", []string{"If-Match", `"9"`}},
		{422, "invalid", "POST", aPath + "/pause", `{"until":"2020-01-01T00:00:00Z"}`, nil},
		{422, "invalid", "POST", aPath + "/pause", `{"note":"` + strings.Repeat("x", 1001) + `"}`, nil},
		{404, "not_found", "POST", "/v1/workflows/w/schedules/none/resume", "", nil},
		{400, "unknown_field", "POST", aPath + "/resume", `{"fire":true}`, nil},
		{415, "unsupported_media_type", "POST", aPath + "/resume", `{}`, []string{"Content-Type", "text/plain"}},
		{404, "not_found", "GET", "/v1/workflows/w/schedules/none/upcoming", "", nil},
		{400, "unknown_parameter", "GET", aPath + "/upcoming?limit=5", "", nil},
		{400, "duplicate_parameter", "GET", aPath + "/upcoming?count=5&count=6", "", nil},
		{422, "invalid", "GET", aPath + "/upcoming?count=", "", nil},
		{422, "invalid", "GET", aPath + "/upcoming?count=1001", "", nil},
		{422, "invalid", "GET", aPath + "/upcoming?count=x", "", nil},
		{422, "invalid", "GET", aPath + "/upcoming?from=", "", nil},
		{422, "invalid", "GET", aPath + "/upcoming?from=2026-01-01", "", nil},
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
		{400, "unknown_parameter", "POST", many + "/preview?x=1", daily, nil},
		{400, "invalid_json", "POST", many + "/preview", " ", nil},
		{415, "unsupported_media_type", "POST", many + "/preview", "", nil},
		{422, "invalid", "POST", many + "/preview", `{"spec":{"cron":"0 12 * * *"},"count":0}`, nil},
		{405, "method_not_allowed", "PATCH", "/v1/workflows/w", "", nil},
	} {
		e.want(c.status, c.code, c.method, c.path, c.body, c.headers...)
	}
	if got := e.want(200, "", "GET", aPath, ""); got.header.Get("ETag") != `"1"` {
		t.Errorf("it was changed: %s", got.body)
	}
}

func TestAListOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	if got := e.want(200, "", "GET", "/v1/schedules", ""); got.body != `{"items":[],"next_cursor":null}` {
		t.Errorf("got %s", got.body)
	}
	for i := range 5 {
		e.want(201, "", "PUT", fmt.Sprint("/v1/workflows/w/schedules/", i), daily)
	}
	n, next := 0, ""
	for {
		page := e.want(200, "", "GET", "/v1/schedules?limit=2&workflow=w&status=active"+next, "")
		n += len(page.doc["items"].([]any))
		cursor, more := page.doc["next_cursor"].(string)
		if !more {
			break
		}
		next = "&cursor=" + cursor
	}
	if n != 5 {
		t.Errorf("the pages hold %d", n)
	}
	e.want(200, "", "GET", "/v1/schedules?key_prefix=3", "")
	e.want(200, "", "GET", "/v1/schedules?label=plan:pro:1", "")
	if got := e.want(200, "", "GET", "/v1/schedules?limit=3&due_before=2090-01-01T00:00:00%2B01:00", ""); len(got.doc["items"].([]any)) != 3 {
		t.Errorf("got %s", got.body)
	}
	e.want(422, "invalid_cursor", "GET", "/v1/schedules?limit=2"+next, "")
}

func TestManyOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, key := range []string{"a", "b", "a%2Fb"} {
		e.want(201, "", "PUT", "/v1/workflows/w/schedules/"+key, daily)
	}
	const path = "/v1/schedules/get"
	got := []string{}
	for _, item := range e.want(200, "", "POST", path, `{"workflow":"w","keys":["b","none","a/b","a"]}`).doc["items"].([]any) {
		got = append(got, item.(map[string]any)["key"].(string))
	}
	if want := "b a/b a"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e.want(200, "", "POST", path, `{"workflow":"other","keys":["b"]}`)
	if a := e.want(200, "", "POST", path, `{"workflow":"w","keys":["b"]}`, "Authorization", "Bearer "+e.token("other", tenants.SchedulesRead)); a.body != `{"items":[]}` {
		t.Errorf("another tenant got %s", a.body)
	}
	e.want(422, "out_of_range", "POST", path, `{"workflow":"w","keys":[]}`)
	e.want(422, "out_of_range", "POST", path, `{"workflow":"w","keys":["k"`+strings.Repeat(`,"k"`, 1000)+`]}`)
	e.want(422, "invalid", "POST", path, `{"workflow":"w","keys":["a","\n"]}`)
	e.want(422, "invalid", "POST", path, `{"keys":["a"]}`)
	e.want(403, "insufficient_scope", "POST", path, `{}`, "Authorization", "Bearer "+e.token("acme", tenants.SchedulesWrite))
}

func TestAPreviewOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.quotas = tenants.Defaults()
	preview := func(body string) answer { return e.want(200, "", "POST", "/v1/schedules/preview", body) }
	has := func(a answer, code string) bool {
		for _, w := range a.doc["warnings"].([]any) {
			if w.(map[string]any)["code"] == code {
				return true
			}
		}
		return false
	}
	a := preview(`{"spec":{"timezone":"Europe/Berlin","cron":"30 2 * * *"},"from":"2027-03-27T12:00:00Z","count":2}`)
	first := a.doc["ticks"].([]any)[0].(map[string]any)
	if first["dst"] != "gap" || first["timestamp"] != "2027-03-28T01:30:00Z" || first["local_time"] != "2027-03-28T03:30:00+02:00" {
		t.Errorf("got %s", a.body)
	}
	if a = preview(`{"spec":{"cron":"* * * * * *"}}`); !has(a, "interval_too_small") || len(a.doc["ticks"].([]any)) != 5 {
		t.Errorf("got %s", a.body)
	}
	if a = preview(`{"spec":{"cron":"0 0 30 2 *"}}`); !has(a, "never_fires") || a.doc["exhausted"] != true || len(a.doc["ticks"].([]any)) != 0 {
		t.Errorf("got %s", a.body)
	}
	if a = preview(`{"spec":{"intervals":[{"every":"1h","mode":"fixed_delay"}]}}`); !has(a, "depends_on_run") || len(a.doc["ticks"].([]any)) != 5 {
		t.Errorf("got %s", a.body)
	}
	if a = preview(`{"spec":{"cron":"0 12 * * *","max_ticks":2},"count":3}`); a.doc["exhausted"] != true || len(a.doc["ticks"].([]any)) != 2 {
		t.Errorf("got %s", a.body)
	}
	if a = preview(`{"spec":{"cron":"0 12 * * *"},"from":"2026-01-01T00:00:00Z","until":"2026-01-03T12:00:00Z","count":1000}`); a.doc["exhausted"] != false || len(a.doc["ticks"].([]any)) != 3 {
		t.Errorf("got %s", a.body)
	}
	for _, from := range []string{"1970-01-01T00:00:00Z", "2099-12-31T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"} {
		preview(`{"spec":{"timezone":"Africa/Monrovia","cron":"0 12 * * *"},"from":"` + from + `","count":3}`)
	}
}

func TestWorkflowsOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	const path = "/v1/workflows/daily"
	e.want(404, "not_found", "GET", path, "")
	if got := e.want(200, "", "GET", "/v1/workflows", ""); got.body != `{"items":[],"next_cursor":null}` {
		t.Errorf("got %s", got.body)
	}
	made := e.want(201, "", "PUT", path, `{"version":"1","defaults":{"policy":{"max_lateness":"1h"},"delivery":{"timeout":"5m"}}}`)
	if got := e.want(200, "", "GET", path, ""); got.body != made.body {
		t.Errorf("made %s, read %s", made.body, got.body)
	}
	e.want(200, "", "PUT", path, `{"endpoint":null}`)
	e.want(201, "", "PUT", "/v1/workflows/weekly", `{}`)
	page := e.want(200, "", "GET", "/v1/workflows?limit=1", "")
	cursor, _ := page.doc["next_cursor"].(string)
	if last := e.want(200, "", "GET", "/v1/workflows?limit=1&cursor="+cursor, ""); last.doc["next_cursor"] != nil {
		t.Errorf("got %s", last.body)
	}
	e.want(422, "no_endpoint", "PUT", path, `{"endpoint":"none"}`)
	e.want(422, "invalid", "PUT", path, `{"max_running":0,"defaults":{"policy":{"missed":"all"}}}`)
	e.want(422, "invalid", "PUT", "/v1/workflows/a%20b", `{}`)
	e.want(400, "unknown_field", "PUT", path, `{"url":"x"}`)
	e.want(415, "unsupported_media_type", "PUT", path, `{}`, "Content-Type", "text/plain")
	e.want(422, "invalid", "GET", "/v1/workflows?cursor=", "")
	e.want(422, "invalid_cursor", "GET", "/v1/workflows?cursor=x", "")
	e.want(422, "invalid", "GET", "/v1/workflows?limit=0", "")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		e.want(400, "unknown_parameter", method, path+"?x=1", map[string]string{"PUT": `{}`}[method])
	}
	e.want(400, "unknown_parameter", "GET", "/v1/workflows?x=1", "")
	e.want(204, "", "DELETE", path, "")
	e.want(404, "not_found", "DELETE", path, "")
}

func TestEachRouteNeedsItsScope(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, c := range []struct {
		method, path string
		scopes       []string
	}{
		{"PUT", aPath, []string{tenants.SchedulesWrite}},
		{"GET", aPath, []string{tenants.SchedulesRead}},
		{"DELETE", aPath, []string{tenants.SchedulesWrite}},
		{"POST", aPath + "/pause", []string{tenants.SchedulesWrite}},
		{"POST", aPath + "/resume", []string{tenants.SchedulesWrite}},
		{"GET", aPath + "/upcoming", []string{tenants.SchedulesRead}},
		{"GET", "/v1/schedules", []string{tenants.SchedulesRead}},
		{"POST", "/v1/schedules/preview", []string{tenants.SchedulesRead}},
		{"GET", "/v1/admin/forecast", nil},
		{"DELETE", "/v1/keys/none", []string{tenants.SubjectsErase}},
		{"GET", "/v1/workflows", []string{tenants.SchedulesRead, tenants.SchedulesWrite}},
		{"PUT", "/v1/workflows/w", []string{tenants.SchedulesWrite}},
		{"GET", "/v1/workflows/w", []string{tenants.SchedulesRead, tenants.SchedulesWrite}},
		{"DELETE", "/v1/workflows/w", []string{tenants.SchedulesWrite}},
	} {
		for _, scope := range tenants.TenantScopes() {
			a := e.ask(c.method, c.path, "", "Authorization", "Bearer "+e.token("acme", scope))
			may := scope == tenants.TenantAdmin
			for _, enough := range c.scopes {
				may = may || scope == enough
			}
			if may == (a.status == 403) {
				t.Errorf("%s %s with %s: got %d", c.method, c.path, scope, a.status)
			}
		}
		e.want(401, "unauthenticated", c.method, c.path, "", "Authorization", "")
		e.want(401, "invalid_token", c.method, c.path, "", "Authorization", "Bearer a.b.c")
	}
	e.want(201, "", "PUT", aPath, daily)
	e.want(404, "not_found", "GET", aPath, "", "Authorization", "Bearer "+e.token("other", tenants.TenantAdmin))
}

func TestFixedDelayOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	made := e.want(201, "", "PUT", aPath, `{"spec":{"intervals":[{"every":"1h","mode":"fixed_delay","first":"after"}]}}`)
	if got := made.doc["upcoming"].([]any); len(got) != 1 || got[0] != made.doc["next_at"] || !strings.Contains(made.body, "depends_on_run") {
		t.Errorf("got %s", made.body)
	}
	if got := e.want(200, "", "GET", aPath+"/upcoming?count=3", ""); len(got.doc["ticks"].([]any)) != 1 || got.doc["exhausted"] != false {
		t.Errorf("got %s", got.body)
	}
	if got := e.want(200, "", "GET", "/v1/schedules?due_before=2090-01-01T00:00:00Z", ""); len(got.doc["items"].([]any)) != 1 {
		t.Errorf("got %s", got.body)
	}
	e.want(422, "fixed_delay_alone", "PUT", aPath, `{"spec":{"cron":"0 12 * * *","intervals":[{"every":"1h","mode":"fixed_delay"}]}}`)
	first := e.want(200, "", "POST", "/v1/schedules/preview", `{"spec":{"intervals":[{"every":"1h","mode":"fixed_delay"}],"start_at":"2090-01-01T00:00:00Z"},"count":1}`)
	if ticks := first.doc["ticks"].([]any); ticks[0].(map[string]any)["timestamp"] != "2090-01-01T00:00:00Z" {
		t.Errorf("got %s", first.body)
	}
}
