package main

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// A session of the console acts with the key that signed in: with its scopes, in its tenant, under its name in the audit, and no longer than
// the key lives.
func TestTheConsoleActsWithItsKey(t *testing.T) {
	t.Parallel()
	s := serveHouse(t)
	client, admin := checked(t), s.mint(t, "acme", tenants.TenantAdmin)
	made := s.expect(t, client, admin, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:read", "schedules:write"]}`, 201, "")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: patience}
	ask := func(method, path, body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Carillon-Console", "1")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		answer, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	const schedule = "/v1/workflows/w/schedules/k"
	for _, step := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", schedule, "", 401},
		{"POST", "/console/session", `{"api_key": "carillon_key_wrong"}`, 401},
		{"POST", "/console/session", fmt.Sprintf(`{"api_key": %q}`, made["key"]), 200},
		{"PUT", schedule, `{"spec": {"cron": "0 8 * * *"}}`, 201},
		{"GET", schedule, "", 200},
		{"POST", "/v1/admin/halt", "{}", 403},
	} {
		if got := ask(step.method, step.path, step.body); got != step.want {
			t.Fatalf("%s %s: got %d, want %d", step.method, step.path, got, step.want)
		}
	}
	entries := s.audited(t, client, admin, "&action=schedule.put")
	if len(entries) != 1 || entries[0].Actor != made["id"] || entries[0].Through == nil || *entries[0].Through != "console" {
		t.Errorf("the audit has %+v", entries)
	}
	s.expect(t, client, admin, "DELETE", fmt.Sprintf("/v1/admin/api-keys/%s", made["id"]), "", 204, "")
	for deadline := time.Now().Add(inForce); ask("GET", schedule, "") != 401; <-time.After(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the session outlives its key")
		}
	}
}
