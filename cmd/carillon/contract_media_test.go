package main

import (
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// Each PATCH refuses a body that is no JSON by its content type, and changes nothing.
func TestAPatchHasAContentType(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	admin, platform := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	for _, c := range []struct{ token, path, put, patch string }{
		{admin, "/v1/workflows/w", `{}`, `{"version": "2"}`},
		{admin, "/v1/endpoints/e", `{"url": "https://example.com/hook"}`, `{"batch": 7}`},
		{admin, "/v1/workflows/w/schedules/k", `{"spec": {"cron": "0 8 * * *"}}`, `{"note": "a"}`},
		{platform, "/v1/platform/tenants/other", `{}`, `{"quotas": {"schedules": 7}}`},
	} {
		s.expect(t, client, c.token, "PUT", c.path, c.put, 201, "")
		_, before := s.send(t, client, c.token, "GET", c.path, "", "")
		for _, media := range []string{"text/plain", "application/x-ndjson", "application/json; charset=latin1"} {
			if status, answer := s.send(t, client, c.token, "PATCH", c.path, media, c.patch); status != 415 {
				t.Errorf("PATCH %s as %s: got %d %s", c.path, media, status, answer)
			}
		}
		if _, after := s.send(t, client, c.token, "GET", c.path, "", ""); string(after) != string(before) {
			t.Errorf("%s was %s and is %s", c.path, before, after)
		}
	}
}
