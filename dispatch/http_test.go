package dispatch_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// site is a house that answers on loopback; each answer is held to the document.
type site struct {
	*house
	url    string
	client *http.Client
	minter tenants.Minter
}

// open serves a process of the house until the test ends.
func (h *house) open(d *process) *site {
	h.t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		h.t.Fatal(err)
	}
	s := &site{house: h, minter: tenants.NewIssuer(private, "test")}
	if _, err := tenants.Ensure(h.t.Context(), h.pool, "rival", tenants.Wide()); err != nil {
		h.t.Fatal(err)
	}
	verifier := tenants.NewVerifier(tenants.VerifierOptions{
		Issuer: "test", Keys: []tenants.Key{s.minter.Key()}, Tenants: tenants.NewDirectory(h.pool),
	})
	router := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	dispatch.Routes(router.Group("", tenants.Authenticate(verifier)), d.Dispatch)
	server := httptest.NewServer(router)
	base := http.DefaultTransport.(*http.Transport).Clone()
	h.t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	s.url, s.client = server.URL, &http.Client{Transport: apitest.Transport(h.t, base)}
	return s
}

// caller is who asks.
type caller struct {
	*site
	token string
}

func (s *site) as(tenant string, scopes ...string) caller {
	s.t.Helper()
	token, err := s.minter.Mint(tenants.Claims{Subject: "ann", Tenant: tenant, Scopes: scopes, TTL: time.Hour}, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	return caller{s, token}
}

func (s *site) operator() caller { return s.as("acme", tenants.TenantAdmin) }

// answer is what came back; Code and Errors are of one that refuses.
type answer struct {
	status int
	header http.Header
	body   []byte
	Code   string
	Errors []struct{ Pointer, Code string }
}

// do sends a request; headers are names and values in turn.
func (c caller) do(method, path, body string, headers ...string) answer {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		c.t.Fatal(err)
	}
	if a.status >= 400 {
		if err := json.Unmarshal(a.body, &a); err != nil {
			c.t.Fatalf("%v in %s", err, a.body)
		}
	}
	return a
}

// get reads the answer to a request that must be answered with that status.
func get[T any](c caller, status int, method, path, body string, headers ...string) (v T) {
	c.t.Helper()
	a := c.do(method, path, body, headers...)
	if a.status != status {
		c.t.Fatalf("%s %s %s: got %d %s, want %d", method, path, body, a.status, a.body, status)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		c.t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// refused checks that a request is answered with that status and code, and which fields are named.
func (c caller) refused(status int, code, pointers string, method, path, body string, headers ...string) {
	c.t.Helper()
	a := c.do(method, path, body, headers...)
	var named []string
	for _, e := range a.Errors {
		named = append(named, e.Pointer)
	}
	if a.status != status || a.Code != code || strings.Join(named, " ") != pointers {
		c.t.Errorf("%s %s %s: got %d %s %q, want %d %s %q: %s", method, path, body, a.status, a.Code, named, status, code, pointers, a.body)
	}
}

// rarely is a schedule that does not fire by itself during a test.
func rarely(overlap string) schedules.Params {
	return schedules.Params{
		Spec: calendar.Spec{Cron: []string{"0 0 1 1 *"}}, Policy: &policy.Policy{Overlap: overlap}, Payload: web.Raw(`{"of": "schedule"}`),
	}
}

type page struct {
	Items      []history.Tick `json:"items"`
	NextCursor *string        `json:"next_cursor"`
}

const (
	trigger = "/v1/workflows/w/schedules/k/trigger"
	ticks   = "/v1/workflows/w/schedules/k/ticks"
)

func TestRoutesAskForTheirScopesAndNoOtherParameter(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	const read, write, work, endpoints = tenants.SchedulesRead, tenants.SchedulesWrite, tenants.TicksWork, tenants.EndpointsWrite
	for route, scopes := range map[string][]string{
		"POST " + trigger:                           {write},
		"GET " + ticks:                              {read},
		"GET " + explainPath:                        {read},
		"POST /v1/ticks/lease":                      {work},
		"POST /v1/ticks/finish":                     {work},
		"POST /v1/ticks/heartbeat":                  {work},
		"POST /v1/ticks/tick_x/fail":                {work},
		"POST /v1/ticks/tick_/complete":             {work},
		"POST /v1/ticks/tick/heartbeat":             {work},
		"GET /v1/ticks/tick_x":                      {read, work},
		"GET /v1/ticks":                             {read, work},
		"POST /v1/ticks/tick_x/cancel":              {write, work},
		"POST /v1/ticks/tick_x/replay":              {write, work},
		"GET /v1/admin/dead-letters":                {tenants.TenantAdmin},
		"GET /v1/endpoints":                         {read, endpoints},
		"GET /v1/endpoints/e":                       {read, endpoints},
		"PUT /v1/endpoints/e":                       {endpoints},
		"DELETE /v1/endpoints/e":                    {endpoints},
		"POST /v1/endpoints/e/secrets":              {endpoints},
		"POST /v1/endpoints/e/test":                 {endpoints},
		"POST /v1/admin/dead-letters/replay":        {tenants.TenantAdmin},
		"POST /v1/workflows/w/schedules/k/backfill": {write},
	} {
		method, path, _ := strings.Cut(route, " ")
		body := ""
		if method != "GET" && method != "DELETE" {
			body = `{}`
		}
		caller{s, ""}.refused(401, "unauthenticated", "", method, path, body)
		for _, scope := range []string{read, write, work, endpoints, tenants.TenantAdmin} {
			if scope == tenants.TenantAdmin || slices.Contains(scopes, scope) {
				s.as("acme", scope).refused(400, "unknown_parameter", "/colour", method, path+"?colour=red", body)
				continue
			}
			s.as("acme", scope).refused(403, "insufficient_scope", "", method, path, body)
		}
	}
}

func TestTriggerOverHTTP(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	before := h.put("w", "k", rarely("skip"))
	for _, path := range []string{trigger, "/v1/workflows/w/schedules/k/backfill"} {
		if got := c.do("POST", path, `{}`, "If-Match", `"9"`); got.status != 412 || got.Code != "version_mismatch" {
			t.Errorf("%s of another version: got %d %s", path, got.status, got.body)
		}
	}
	first := get[history.Tick](c, 202, "POST", trigger, `{"payload": {"n": 1.0}}`, "Idempotency-Key", "one", "If-Match", `"1"`)
	if first.State != "running" || first.Cause != "manual" || first.Occurrence != nil {
		t.Errorf("got %+v", first)
	}
	replayed := get[history.Tick](c, 202, "POST", trigger, `{"payload": {"n": 1.0}}`, "Idempotency-Key", "one")
	if replayed.TickID != first.TickID {
		t.Errorf("one key fired %s and %s", first.TickID, replayed.TickID)
	}
	c.refused(422, "idempotency_key_reused", "", "POST", trigger, `{"payload": {"n": 2}}`, "Idempotency-Key", "one")
	c.refused(400, "invalid_idempotency_key", "", "POST", trigger, "", "Idempotency-Key", strings.Repeat("x", 256))
	if second := get[history.Tick](c, 202, "POST", trigger, ""); second.State != "skipped" || second.Reason != "overlap" || second.TickID == first.TickID {
		t.Errorf("got %+v, want one that is skipped for the first", second)
	}
	h.put("w", "free", rarely("allow_all"))
	if _, _, err := h.schedules.Pause(t.Context(), h.tenant, "w", "free", schedules.PauseParams{}, schedules.Changer{}); err != nil {
		t.Fatal(err)
	}
	if got := get[history.Tick](c, 202, "POST", "/v1/workflows/w/schedules/free/trigger", `{}`); got.State != "running" {
		t.Errorf("a paused schedule that is triggered: got %+v", got)
	}
	c.refused(404, "not_found", "", "POST", "/v1/workflows/w/schedules/absent/trigger", "")
	c.refused(413, "payload_too_large", "", "POST", trigger, `{"payload": "`+strings.Repeat("x", 70_000)+`"}`)
	c.refused(400, "unknown_field", "/at", "POST", trigger, `{"at": 1}`)
	c.refused(415, "unsupported_media_type", "", "POST", trigger, "payload", "Content-Type", "text/plain")
	after, err := h.schedules.Get(t.Context(), h.tenant, "w", "k")
	if err != nil || !after.NextAt.Equal(*before.NextAt) || after.LastAt != nil || after.Version != before.Version {
		t.Errorf("the timing moved: got %+v, %v", after, err)
	}
}

func TestHistoryOverHTTP(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	h.put("w", "k", rarely("skip"))
	h.put("w", "other", rarely("skip"))
	want := make([]string, 5) // newest first
	for i := range want {
		want[len(want)-1-i] = get[history.Tick](c, 202, "POST", trigger, "").TickID
	}
	var got []string
	path, cursor := ticks+"?limit=2", ""
	for pages := 0; ; pages++ {
		p := get[page](c, 200, "GET", path+cursor, "")
		for _, one := range p.Items {
			got = append(got, one.TickID)
		}
		if p.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *p.NextCursor
		for _, elsewhere := range []string{"/v1/workflows/w/schedules/other/ticks?limit=2", ticks + "?limit=2&state=skipped"} {
			c.refused(422, "invalid_cursor", "/cursor", "GET", elsewhere+cursor, "")
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	all := get[page](c, 200, "GET", ticks, "").Items
	if len(all) != 5 || all[4].State != "running" || all[0].State != "skipped" {
		t.Fatalf("got %+v", all)
	}
	oldest, newest := all[4].Timestamp, all[0].Timestamp
	for query, n := range map[string]int{
		"state=skipped": 4,
		"state=running": 1,
		"state=failed":  0,
		"from=" + oldest.Format(time.RFC3339) + "&to=" + newest.Add(time.Second).Format(time.RFC3339): 5,
		"from=" + newest.Add(time.Second).Format(time.RFC3339):                                        0,
		"to=" + oldest.Format(time.RFC3339):                                                           0,
		"to=" + newest.Add(time.Second).Format(time.RFC3339) + "&state=skipped&limit=3":               3,
	} {
		if p := get[page](c, 200, "GET", ticks+"?"+query, ""); len(p.Items) != n {
			t.Errorf("%s: got %d ticks, want %d", query, len(p.Items), n)
		}
	}
	for query, pointer := range map[string]string{"state=late": "/state", "from=yesterday": "/from", "to=1": "/to", "limit=0": "/limit", "limit=1001": "/limit"} {
		c.refused(422, "invalid", pointer, "GET", ticks+"?"+query, "")
	}
	c.refused(404, "not_found", "", "GET", "/v1/workflows/w/schedules/absent/ticks", "")

	one := get[history.Tick](c, 200, "GET", "/v1/ticks/"+want[0], "")
	if one.TickID != want[0] || one.State != "skipped" {
		t.Errorf("got %+v", one)
	}
	for _, id := range []string{"tick_0a1b2c3d4e5f6g7h8i9jklmnop", "x", want[0] + "0"} {
		c.refused(404, "not_found", "", "GET", "/v1/ticks/"+id, "")
	}
}

func TestAnotherTenantsTicksAreAbsent(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	h.start(h.dispatch)
	acme, rival := s.operator(), s.as("rival", tenants.TenantAdmin)
	h.put("w", "k", rarely("allow_all"))
	get[history.Tick](acme, 202, "POST", trigger, "")
	theirs := acme.leaseAll(1)[0]
	const absent = "tick_0a1b2c3d4e5f6g7h8i9jklmnop"
	for _, route := range []string{
		"GET /v1/ticks/ID ", `POST /v1/ticks/ID/complete {"lease_token": "TOKEN"}`, `POST /v1/ticks/ID/heartbeat {"lease_token": "TOKEN"}`,
		`POST /v1/ticks/ID/fail {"lease_token": "TOKEN", "error": "x"}`,
		`POST /v1/ticks/finish {"ticks": [{"tick_id": "ID", "lease_token": "TOKEN", "outcome": "complete"}]}`,
		`POST /v1/ticks/heartbeat {"ticks": [{"tick_id": "ID", "lease_token": "TOKEN"}]}`,
	} {
		seen := func(id string) string {
			parts := strings.SplitN(strings.NewReplacer("ID", id, "TOKEN", theirs.LeaseToken).Replace(route), " ", 3)
			a := rival.do(parts[0], parts[1], parts[2])
			body := bytes.ReplaceAll(a.body, []byte(id), []byte("ID"))
			return fmt.Sprint(a.status, string(bytes.ReplaceAll(body, []byte(a.header.Get("X-Request-Id")), nil)))
		}
		if a, b := seen(theirs.TickID), seen(absent); a != b || !strings.Contains(a, "404") {
			t.Errorf("%s: another's is %s, an absent one %s", route, a, b)
		}
	}
	rival.refused(404, "not_found", "", "GET", ticks, "")
	rival.refused(404, "not_found", "", "POST", trigger, "")
	if got := get[history.Tick](acme, 200, "GET", "/v1/ticks/"+theirs.TickID, ""); got.State != "running" {
		t.Errorf("got %+v", got)
	}
}
