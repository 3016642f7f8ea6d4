package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

var parameter = regexp.MustCompile(`:[a-z]+`)

// Each route refuses each kind of wrong request with a 4xx that the document allows.
func TestEveryRefusalIsInTheContract(t *testing.T) {
	t.Parallel()
	s := serveHouse(t)
	client := checked(t)
	ask := func(token, method, path, media, body string) {
		t.Helper()
		if status, answer := s.send(t, client, token, method, path, media, body); status < 400 || status > 499 {
			t.Errorf("%s %s with %.80q was answered %d %s", method, path, body, status, answer)
		}
	}
	operator, platform := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	for _, r := range s.routes {
		if !strings.HasPrefix(r.Path, "/v1/") {
			continue
		}
		token, other := operator, platform
		if strings.HasPrefix(r.Path, "/v1/platform/") {
			token, other = platform, operator
		}
		path := parameter.ReplaceAllString(r.Path, "x")
		ask("", r.Method, path, "", "")
		ask("no.token.at-all", r.Method, path, "", "")
		if r.Path != "/v1/self" && !strings.HasPrefix(r.Path, "/v1/zones") { // these answer everyone
			ask(other, r.Method, path, "", "")
		}
		ask(token, r.Method, path+"?colour=red", "", "")
		ask(token, r.Method, path+"?%zz", "", "")
		if r.Method == http.MethodGet {
			for _, wrong := range []string{"limit=0", "limit=x", "limit=1&limit=2", "cursor=x", "cursor=%FF"} {
				ask(token, r.Method, path+"?"+wrong, "", "")
			}
		}
		if strings.Contains(r.Path, ":") {
			for _, wrong := range []string{"%00", "%FF", "%0A", strings.Repeat("x", 300)} {
				ask(token, r.Method, parameter.ReplaceAllString(r.Path, wrong), "application/json", `{"spec": {"cron": "* * * * *"}}`)
			}
		}
		if r.Method != http.MethodPut && r.Method != http.MethodPost && r.Method != http.MethodPatch {
			continue
		}
		for _, wrong := range []string{
			`{`, `[]`, `"x"`, `nul`, `{"colour": 1}`, `{"a": 1, "a": 2}`, "{\"a\": \"\xff\"}", `{"a": "\ud800"}`, strings.Repeat(`[`, 200), `{} {}`,
			`{"payload": "\u0000", "note": "\u0000", "workflows": ["\u0000"], "ticks": [{"tick_id": "\u0000"}]}`,
		} {
			ask(token, r.Method, path, "application/json", wrong)
		}
		ask(token, r.Method, path, "text/plain", "x")
	}
}

func TestSuspendedTenantIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	platform, read := s.mint(t, "", tenants.PlatformAdmin), s.mint(t, "shop", tenants.SchedulesRead)
	const path = "/v1/platform/tenants/shop"
	for _, step := range []struct {
		status                    int
		token, method, path, body string
	}{
		{404, platform, "GET", path, ""},
		{201, platform, "PUT", path, `{"quotas": {"schedules": 10}, "issuers": [{"issuer": "https://login.example.com", "jwks_uri": "https://login.example.com/jwks.json", "algorithms": ["ES256"]}]}`},
		{200, platform, "GET", path, ""},
		{200, platform, "GET", "/v1/platform/tenants?limit=1", ""},
		{200, read, "GET", "/v1/schedules", ""},
		{200, platform, "PUT", path, `{"status": "suspended"}`},
		{401, read, "GET", "/v1/schedules", ""},
		{200, platform, "PUT", path, `{"status": "active", "quotas": {}}`},
		{200, read, "GET", "/v1/schedules", ""},
		{422, platform, "PUT", path, `{"status": "asleep"}`},
		{422, platform, "PUT", path, `{"issuers": [{"issuer": "x", "jwks_uri": "https://10.0.0.1/"}]}`},
	} {
		if status, answer := s.send(t, client, step.token, step.method, step.path, "application/json", step.body); status != step.status {
			t.Fatalf("%s %s %s: got %d %s, want %d", step.method, step.path, step.body, status, answer, step.status)
		}
	}
}

func TestTenantIsErased(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	platform, write := s.mint(t, "", tenants.PlatformAdmin), s.mint(t, "shop", tenants.SchedulesWrite)
	const path = "/v1/platform/tenants/shop"
	s.expect(t, client, platform, "DELETE", path, "", 404, "not_found")
	s.expect(t, client, platform, "PUT", path, "{}", 201, "")
	s.expect(t, client, write, "PUT", "/v1/workflows/w/schedules/k", `{"spec": {"cron": "* * * * * *"}, "labels": {"a": "b"}}`, 422, "interval_too_small")
	s.expect(t, client, write, "PUT", "/v1/workflows/w/schedules/k", `{"spec": {"cron": "* * * * *"}, "labels": {"a": "b"}}`, 201, "")
	if _, err := s.pool.Exec(t.Context(), `UPDATE tenant SET status = 'suspended', erasing_at = now() WHERE name = 'shop'`); err != nil {
		t.Fatal(err)
	}
	s.expect(t, client, platform, "PUT", path, `{"status": "active"}`, 409, "tenant_erasing")
	status := http.StatusAccepted
	for status == http.StatusAccepted { // a loaded machine may need more than one
		status, _ = s.send(t, client, platform, "DELETE", path, "", "")
	}
	if status != http.StatusNoContent {
		t.Errorf("got %d", status)
	}
	s.expect(t, client, platform, "GET", path, "", 404, "not_found")
	s.expect(t, client, write, "GET", "/v1/workflows", "", 401, "invalid_token")
	s.expect(t, client, platform, "PUT", path, "{}", 201, "")
}
