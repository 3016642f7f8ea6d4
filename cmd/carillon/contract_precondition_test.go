package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// guarded are the routes that evaluate preconditions, each with a valid body.
var guarded = map[string]string{
	"GET /v1/workflows/:workflow/schedules/:key":             "",
	"PUT /v1/workflows/:workflow/schedules/:key":             `{"spec": {"cron": "0 8 * * *"}}`,
	"PATCH /v1/workflows/:workflow/schedules/:key":           `{}`,
	"DELETE /v1/workflows/:workflow/schedules/:key":          "",
	"POST /v1/workflows/:workflow/schedules/:key/pause":      `{}`,
	"POST /v1/workflows/:workflow/schedules/:key/resume":     `{}`,
	"POST /v1/workflows/:workflow/schedules/:key/trigger":    `{}`,
	"POST /v1/workflows/:workflow/schedules/:key/skip":       `{"count": 1}`,
	"DELETE /v1/workflows/:workflow/schedules/:key/skip":     "",
	"POST /v1/workflows/:workflow/schedules/:key/reschedule": `{"at": "2099-01-01T08:00:00Z", "to": "2099-01-01T09:00:00Z"}`,
	"POST /v1/workflows/:workflow/schedules/:key/backfill":   `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}`,
	"GET /v1/workflows/:workflow":                            "",
	"PUT /v1/workflows/:workflow":                            `{}`,
	"PATCH /v1/workflows/:workflow":                          `{}`,
	"DELETE /v1/workflows/:workflow":                         "",
	"POST /v1/workflows/:workflow/hold":                      "",
	"POST /v1/workflows/:workflow/release":                   "",
	"GET /v1/calendars/:calendar":                            "",
	"PUT /v1/calendars/:calendar":                            `{"dates": ["2026-12-25"]}`,
	"DELETE /v1/calendars/:calendar":                         "",
	"GET /v1/schedules/:id":                                  "",
	"GET /v1/zones":                                          "",
	"GET /v1/zones/:timezone":                                "",
	"GET /v1/admin/settings":                                 "",
	"PATCH /v1/admin/settings":                               `{}`,
	"GET /v1/admin/issuers":                                  "",
	"PUT /v1/admin/issuers":                                  `{"issuers": []}`,
	"GET /v1/subjects/:subject":                              "",
	"PUT /v1/subjects/:subject":                              `{"timezone": "UTC"}`,
	"DELETE /v1/subjects/:subject":                           "",
	"GET /v1/endpoints/:name":                                "",
	"PUT /v1/endpoints/:name":                                `{"url": "https://example.com/"}`,
	"PATCH /v1/endpoints/:name":                              `{}`,
	"DELETE /v1/endpoints/:name":                             "",
	"GET /v1/platform/tenants/:tenant":                       "",
	"PUT /v1/platform/tenants/:tenant":                       `{}`,
	"PATCH /v1/platform/tenants/:tenant":                     `{}`,
	"DELETE /v1/platform/tenants/:tenant":                    "",
	"GET /openapi.yaml":                                      "",
	"GET /docs":                                              "",
	"GET /docs/:file":                                        "",
	"GET /console":                                           "",
}

// No route ignores a precondition. One that does not hold is 412, or 304 if the client of a GET has the present version. Routes that evaluate
// none refuse it.
func TestNoRouteIgnoresAPrecondition(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	operator, platform := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	s.expect(t, client, platform, "PUT", "/v1/platform/tenants/x", `{}`, 201, "")
	for _, path := range []string{"/v1/workflows/x", "/v1/calendars/x", "/v1/subjects/x", "/v1/endpoints/x", "/v1/workflows/x/schedules/x"} {
		s.expect(t, client, operator, "PUT", path, guarded["PUT "+strings.NewReplacer(
			"workflows/x", "workflows/:workflow", "schedules/x", "schedules/:key", "calendars/x", "calendars/:calendar",
			"subjects/x", "subjects/:subject", "endpoints/x", "endpoints/:name").Replace(path)], 201, "")
	}
	stored := s.expect(t, client, operator, "GET", "/v1/workflows/x/schedules/x", "", 200, "")
	evaluated := map[string]bool{}
	for _, r := range s.routes {
		if strings.HasPrefix(r.Method, "echo_") {
			continue
		}
		token, path := operator, pathParameter.ReplaceAllString(r.Path, "x")
		switch r.Path {
		case "/docs/:file":
			path = "/docs/start.js"
		case "/v1/zones/:timezone":
			path = "/v1/zones/UTC"
		case "/v1/schedules/:id":
			path = "/v1/schedules/" + fmt.Sprint(stored["id"])
		}
		if strings.HasPrefix(path, "/v1/platform/") {
			token = platform
		}
		body, evaluates := guarded[r.Method+" "+r.Path]
		evaluated[r.Method+" "+r.Path] = evaluates
		for header, value := range map[string]string{"If-Match": `"0"`, "If-None-Match": "*"} {
			want, code := 400, "precondition_not_supported"
			if evaluates {
				want, code = 412, "version_mismatch"
			}
			if evaluates && r.Method == http.MethodGet && header == "If-None-Match" {
				want, code = 304, ""
			}
			sent := http.Header{header: {value}}
			if body != "" {
				sent.Set("Content-Type", "application/json")
			}
			got, _ := s.ask(t, client, token, r.Method, path, sent, []byte(body), patience)
			if got.status != want || !strings.Contains(string(got.body), code) {
				t.Errorf("%s %s with %s %s: got %d %s, want %d %s", r.Method, path, header, value, got.status, got.body, want, code)
			}
			if want == 400 && token != "" && strings.HasPrefix(path, "/v1/") && path != tenants.TokenRoute && got.header.Get("RateLimit") == "" {
				t.Errorf("%s %s: a refusal has no RateLimit", r.Method, path)
			}
		}
	}
	for _, route := range slices.Sorted(maps.Keys(guarded)) {
		if !evaluated[route] {
			t.Errorf("%s is no route", route)
		}
	}
}

// The tag of an answer allows the next change. After another change the old tag is refused.
func TestATagGuardsAChange(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	operator, platform := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	for _, c := range []struct{ token, path, body, other string }{
		{operator, "/v1/workflows/x", `{}`, `{"version": "2"}`},
		{operator, "/v1/calendars/x", `{}`, `{"dates": ["2026-12-25"]}`},
		{operator, "/v1/endpoints/x", `{"url": "https://example.com/"}`, `{"url": "https://example.com/", "state": "held"}`},
		{operator, "/v1/subjects/x", `{"timezone": "UTC"}`, `{"timezone": "Asia/Tokyo"}`},
		{platform, "/v1/platform/tenants/x", `{}`, `{"quotas": {"schedules": 1}}`},
	} {
		ask := func(want int, method, body, header, value string) string {
			t.Helper()
			sent := http.Header{header: {value}}
			if body != "" {
				sent.Set("Content-Type", "application/json")
			}
			got, _ := s.ask(t, client, c.token, method, c.path, sent, []byte(body), patience)
			if got.status != want {
				t.Errorf("%s %s with %s %s: got %d %s, want %d", method, c.path, header, value, got.status, got.body, want)
			}
			return got.header.Get("ETag")
		}
		ask(412, "PUT", c.body, "If-Match", "*")
		first := ask(201, "PUT", c.body, "If-None-Match", "*")
		if read := ask(304, "GET", "", "If-None-Match", first); first == "" || read != first {
			t.Errorf("%s: made with tag %s, read with %s", c.path, first, read)
		}
		ask(200, "GET", "", "If-Match", first)
		second := ask(200, "PUT", c.other, "If-Match", first)
		if second == first {
			t.Errorf("%s: changed, and the tag is %s still", c.path, first)
		}
		ask(412, "PUT", c.body, "If-Match", first)
		ask(412, "PUT", c.body, "If-None-Match", "*")
		ask(200, "GET", "", "If-None-Match", first)
		ask(412, "DELETE", "", "If-Match", first)
		want := http.StatusNoContent
		if strings.HasPrefix(c.path, "/v1/subjects/") {
			want = http.StatusOK
		}
		if c.token == platform { // its erasure waits until no process accepts its tokens any more
			continue
		}
		ask(want, "DELETE", "", "If-Match", second)
	}
}
