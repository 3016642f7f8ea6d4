package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/carillonhq/carillon/tenants"
)

// hostile are values that have broken services before, for any member of any body.
var hostile = []any{
	nil, true, false, 0, -1, 1, 1<<31 - 1, 1 << 31, 1<<53 + 1, json.Number("1e999"), json.Number("-1e-999"), json.Number("0.5"),
	json.Number("123456789012345678901234567890"), "", " ", "\x00", "a\x00b", "\u202e", "\ufeffx", "é\u0301", "0", "-1", strings.Repeat("x", 300), strings.Repeat("ü", 70_000),
	"9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2100-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "2026-11-21T08:00:60Z", "2026-02-30", "2027-01-01", "2026-12-24T18:00:00", "2026-12-24T18:00:00.5Z", "2026-11-21T08:00:00+23:59",
	"0s", "1s", "-1s", "1d", "99999999999999999w", "1ns", "1h1h", "200w", "P1D",
	"@subject", "Local", "UTC", "America/New_York", "../../etc/passwd", "Etc/GMT+14", "Pacific/Apia",
	"* * * * *", "* * * * * *", "* * * * * * *", "0 0 30 2 *", "0 0 29 2 1", "@every 1s", "@reboot", "H H * * *", "0 0 LW * *", "0 0 * * 5#5", "0 0 1 1 * 2100", "CRON_TZ=UTC 0 0 * * *",
	"RRULE:FREQ=SECONDLY", "DTSTART:19700101T000000\nRRULE:FREQ=SECONDLY;INTERVAL=1", "RRULE:FREQ=HOURLY;INTERVAL=2;BYHOUR=1", "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "RRULE:FREQ=DAILY;COUNT=2147483648", "RRULE:FREQ=YEARLY;BYEASTER=1",
	"drop", "skip", "all", "none", "last", "cancel_other", "buffer_all", "fixed_delay", "shift_forward", "both", "pause", "delete", "retime",
	"https://127.0.0.1/", "https://example.com/", "BEGIN:VCALENDAR\r\nEND:VCALENDAR", "'; DROP TABLE schedule; --", "%s%n", "$1", "{{7*7}}",
	[]any{}, map[string]any{}, []any{nil}, []any{[]any{}}, map[string]any{"": nil}, map[string]any{"__proto__": 1}, []any{"a", "a"},
	json.RawMessage(`"\ud800"`), json.RawMessage(`{"a":1,"a":2}`), json.RawMessage(strings.Repeat("[", 130) + strings.Repeat("]", 130)),
	slices.Repeat([]any{"0 8 * * *"}, 1001), slices.Repeat([]any{map[string]any{}}, 1001), slices.Repeat([]any{"2027-01-01"}, 10_001),
}

// mangler makes requests from the document's examples. The same seed makes the same requests.
type mangler struct {
	*rand.Rand
	known map[string][]string // values of parameters that name something
}

func pick[T any](m mangler, all []T) T { return all[m.IntN(len(all))] }

// texts are values for parameters.
var texts = []string{"x", "0", "-1", "1", "1000", "1001", "99999999999999999999", "true", "\x00", "\xff", "%", "a/b", "..", "a b", "é", strings.Repeat("x", 256), strings.Repeat("y", 257),
	"2026-11-21T08:00:00Z", "2100-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "2026-03-29T02:30", "2026-03-29T02:30:00", "0001-01-01T00:00:00Z", "2026-11-21", "W/\"1\"", "\"1\"", "*", "\"1\", \"2\"", "name:value", ":", "keep", "delete", "5%", "101%", "-1%"}

// value returns a value of a parameter: a known one, one of its schema, or a hostile one.
func (m mangler) value(p *openapi3.Parameter) string {
	if known := m.known[p.Name]; len(known) > 0 && m.IntN(5) > 0 {
		return pick(m, known)
	}
	if s := p.Schema; s != nil && m.IntN(3) > 0 {
		switch {
		case len(s.Value.Enum) > 0:
			return fmt.Sprint(pick(m, s.Value.Enum))
		case p.Example != nil:
			return fmt.Sprint(p.Example)
		case s.Value.Max != nil && s.Value.Min != nil:
			return strconv.FormatFloat(pick(m, []float64{*s.Value.Min - 1, *s.Value.Min, *s.Value.Max, *s.Value.Max + 1}), 'f', -1, 64)
		case s.Value.MaxLength != nil:
			return strings.Repeat("k", min(int(*s.Value.MaxLength)+m.IntN(2), 5000))
		}
	}
	return pick(m, texts)
}

// mangle returns a copy of a JSON value with some changes.
func (m mangler) mangle(v any, odds int) any {
	if m.IntN(odds) == 0 {
		return pick(m, hostile)
	}
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out[name] = m.mangle(v[name], odds)
			if m.IntN(2*odds) == 0 {
				delete(out, name)
			}
		}
		if m.IntN(2*odds) == 0 {
			out[pick(m, []string{"colour", "", "\x00", "Spec", "tenant_id", "id", "until", "from", "to", "at", "ics", "dry_run"})] = pick(m, hostile)
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, m.mangle(e, odds))
		}
		return out
	}
	return v
}

// body returns an example body of the operation, unchanged or mangled, or a text that is not JSON.
func (m mangler) body(t *testing.T, a attacked) []byte {
	t.Helper()
	if a.media == "" || m.IntN(12) == 0 {
		return []byte(pick(m, []string{"", "{", "[]", `"x"`, "nul", "{} {}", "\xff", "{\"a\":\"\xff\"}", `{"colour":1}`, "null", "{}", strings.Repeat("{\"a\":", 5000)}))
	}
	if len(a.bodies) == 0 {
		t.Fatalf("%s has no example of its body", a.id)
	}
	if a.media == "application/x-ndjson" {
		var lines bytes.Buffer
		for range 1 + m.IntN(4) {
			for _, v := range lined(t, pick(m, a.bodies)) {
				lines.Write(marshal(t, m.mangle(v, 10)))
				lines.WriteByte('\n')
			}
		}
		return lines.Bytes()
	}
	return marshal(t, m.mangle(pick(m, a.bodies), pick(m, []int{5, 10, 20, 1 << 30})))
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// request returns a path with a query, headers and a body for the operation.
func (m mangler) request(t *testing.T, a attacked) (string, http.Header, []byte) {
	t.Helper()
	segments, query, header := map[string]string{}, url.Values{}, http.Header{}
	for _, p := range a.params {
		p := p.Value
		switch p.In {
		case "path":
			segments[p.Name] = m.value(p)
		case "query":
			if p.Required || m.IntN(2) == 0 {
				query.Add(p.Name, m.value(p))
			}
			if m.IntN(20) == 0 {
				query.Add(p.Name, m.value(p))
			}
		case "header":
			if v := m.value(p); m.IntN(3) == 0 && !strings.ContainsAny(v, "\x00\n\r") {
				header.Set(p.Name, v)
			}
		}
	}
	if m.IntN(30) == 0 {
		query.Add("colour", "red")
	}
	var body []byte
	if a.media != "" || a.method != http.MethodGet {
		body = m.body(t, a)
	}
	if len(body) > 0 {
		media := a.media
		if m.IntN(25) == 0 {
			media = pick(m, []string{"text/plain", "application/json; charset=latin1", "", "application/xml", "multipart/form-data", "application/x-ndjson"})
		}
		header.Set("Content-Type", media)
	}
	if a.media != "" && m.IntN(50) == 0 {
		header.Set("Content-Encoding", pick(m, []string{"gzip", "br", "identity", "gzip, gzip"}))
	}
	if m.IntN(10) == 0 {
		header.Set("Accept", pick(m, []string{"text/calendar", "application/xml", "*/*", ";;", "text/html"}))
	}
	path := a.fill(segments)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, header, body
}

// fuzzing returns the number or the time of made-up requests, and their seed: CARILLON_FUZZ=10m CARILLON_FUZZ_SEED=7.
func fuzzing(t *testing.T) (requests int, until time.Time, seed uint64) {
	t.Helper()
	requests, until, seed = 1200, time.Now().Add(time.Minute), 20261121
	if v := os.Getenv("CARILLON_FUZZ"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal(err)
		}
		requests, until, seed = 1<<30, time.Now().Add(d), rand.Uint64()
	}
	if v := os.Getenv("CARILLON_FUZZ_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	return requests, until, seed
}

// No made-up request gets a 5xx, a late answer, an answer that the document does not allow, or data without a token.
func TestNoRequestBreaksTheServer(t *testing.T) {
	t.Parallel()
	requests, until, seed := fuzzing(t)
	s, client := serveHouse(t), checked(t)
	operator, platform := s.mint(t, "acme", tenants.TenantScopes()...), s.mint(t, "", tenants.PlatformAdmin)
	m := mangler{rand.New(rand.NewPCG(seed, 0)), s.furnish(t, client, operator)}
	all := documented(t)
	for n := 0; n < requests && time.Now().Before(until); n++ {
		a := all[n%len(all)]
		path, header, body := m.request(t, a)
		token, wrong := operator, platform
		if a.platform() {
			token, wrong = platform, operator
		}
		told := fmt.Sprintf("seed %d: %s %s %v %.2000q", seed, a.method, path, header, body)
		if len(a.scopes) > 0 && n%5 == 0 {
			for _, stranger := range []string{"", wrong} {
				if got, ok := s.ask(t, client, stranger, a.method, path, header, body, patience); !ok || got.status < 400 || got.status > 499 {
					t.Errorf("%s\nwas answered %d %.300s to who may not ask", told, got.status, got.body)
				}
			}
		}
		wait := patience
		if a.id == "leaseTicks" { // it waits for ticks as long as the request says
			wait = time.Second / 5
		}
		got, ok := s.ask(t, client, token, a.method, path, header, body, wait)
		if !ok && a.id != "leaseTicks" {
			t.Errorf("%s\nwas not answered within %s", told, wait)
		}
		if got.status >= 500 && (got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "") {
			t.Errorf("%s\nwas answered %d %s", told, got.status, got.body)
		}
		if t.Failed() {
			t.Log(told)
		}
	}
}

// patience bounds an answer: a second, with a large reserve for a busy machine.
const patience = 40 * time.Second

// furnish creates one thing of each kind for acme, and returns the values of the parameters that name them.
func (s whole) furnish(t *testing.T, client *http.Client, token string) map[string][]string {
	t.Helper()
	s.expect(t, client, token, "PUT", "/v1/calendars/days", `{"dates": ["2026-12-25"]}`, 201, "")
	s.expect(t, client, token, "PUT", "/v1/endpoints/hook", `{"url": "https://hook.example.com/", "state": "held"}`, 201, "")
	s.expect(t, client, token, "PUT", "/v1/workflows/w", `{}`, 201, "")
	s.expect(t, client, token, "PUT", "/v1/subjects/k", `{"timezone": "Europe/Berlin"}`, 201, "")
	s.expect(t, client, token, "PUT", "/v1/workflows/w/schedules/k", `{"spec": {"cron": "0 8 * * *", "timezone": "@subject"}, "policy": {"overlap": "allow_all"}}`, 201, "")
	s.expect(t, client, token, "PUT", "/v1/workflows/w/schedules/a%2Fb", `{"spec": {"intervals": [{"every": "1h"}], "exclude": {"named": ["days"]}}}`, 201, "")
	tick := s.expect(t, client, token, "POST", "/v1/workflows/w/schedules/k/trigger", `{}`, 202, "")
	key := s.expect(t, client, token, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:read"]}`, 201, "")
	operation := s.expect(t, client, token, "POST", "/v1/schedules/actions", `{"action": "pause", "filter": {"workflow": "none"}}`, 202, "")
	name := func(v any) string { return fmt.Sprint(v) }
	return map[string][]string{
		"workflow": {"w", "w", "daily-digest"}, "key": {"k", "k", "a/b", "user_123"}, "subject": {"k", "k", "a/b", "user_123"}, "calendar": {"days", "us-holidays"}, "name": {"hook", "mailer"},
		"id": {name(tick["tick_id"]), name(tick["tick_id"]), name(key["id"]), name(operation["id"]), "tick_0a1b2c3d4e5f6g7h8i9jklmnop"}, "tenant": {"other", "shop"},
	}
}
