package main

import (
	"fmt"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// A merge patch changes what it names in a workflow, an endpoint or a tenant; null restores the default; the rest stays.
func TestPartsAreChangedByAMergePatch(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	operator, platform := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	for _, step := range []struct {
		token, method, path, body string
		status                    int
		code                      string
		want                      map[string]string // members of the answer
	}{
		{operator, "PATCH", "/v1/endpoints/hook", `{"batch": 2}`, 404, "not_found", nil},
		{operator, "PUT", "/v1/endpoints/hook", `{"url": "https://hook.example.com/", "headers": {"A": "1", "B": "2"}, "state": "held", "events": ["tick.failed"]}`, 201, "", nil},
		{operator, "PATCH", "/v1/endpoints/hook", `{"batch": 2, "headers": {"A": null, "C": "3"}}`, 200, "", map[string]string{"batch": "2", "headers": "map[B:… C:…]", "state": "held", "url": "https://hook.example.com/", "events": "[tick.failed]", "secret": "<nil>"}},
		{operator, "PATCH", "/v1/endpoints/hook", `{"batch": null, "state": "enabled"}`, 200, "", map[string]string{"batch": "1", "state": "enabled"}},
		{operator, "PATCH", "/v1/endpoints/hook", `{"url": null}`, 422, "invalid", nil},
		{operator, "PUT", "/v1/endpoints/hook", `{"url": "https://hook.example.com/"}`, 200, "", map[string]string{"state": "enabled"}},

		{operator, "PATCH", "/v1/workflows/w", `{"version": "2"}`, 404, "not_found", nil},
		{operator, "PUT", "/v1/workflows/w", `{"endpoint": "hook", "version": "1", "max_running": 3, "defaults": {"policy": {"max_lateness": "1h", "missed": "all"}}}`, 201, "", nil},
		{operator, "PATCH", "/v1/workflows/w", `{"version": "2", "max_running": null, "defaults": {"policy": {"max_lateness": null}}}`, 200, "", map[string]string{"version": "2", "max_running": "<nil>", "endpoint": "hook", "defaults": "map[policy:map[missed:all]]"}},
		{operator, "PATCH", "/v1/workflows/w", `{"endpoint": "none"}`, 422, "no_endpoint", nil},
		{operator, "PATCH", "/v1/workflows/w", `{"colour": null}`, 400, "unknown_field", nil},
		{operator, "PATCH", "/v1/workflows/w", `null`, 422, "wrong_type", nil},

		{platform, "PATCH", "/v1/platform/tenants/shop", `{}`, 404, "not_found", nil},
		{platform, "PUT", "/v1/platform/tenants/shop", `{"quotas": {"workflows": 1, "endpoints": 3}, "status": "suspended"}`, 201, "", nil},
		{platform, "PATCH", "/v1/platform/tenants/shop", `{"quotas": {"endpoints": null, "api_keys": 5}}`, 200, "", map[string]string{"status": "suspended"}},
		{platform, "PATCH", "/v1/platform/tenants/shop", `{"status": "active"}`, 200, "", map[string]string{"status": "active"}},
		{platform, "PATCH", "/v1/platform/tenants/shop", `{"quotas": {"colour": null}}`, 400, "unknown_field", nil},
	} {
		got := s.expect(t, client, step.token, step.method, step.path, step.body, step.status, step.code)
		for name, want := range step.want {
			if fmt.Sprint(got[name]) != want {
				t.Errorf("%s %s: %s is %v, want %s", step.path, step.body, name, got[name], want)
			}
		}
		if quotas, ok := got["quotas"].(map[string]any); ok && step.method == "PATCH" && fmt.Sprint(quotas["workflows"], quotas["endpoints"], quotas["api_keys"]) != "1 10 5" {
			t.Errorf("got %v", quotas)
		}
	}
	// The new quota is in force: it counts a workflow that its first schedule registers too.
	shop := s.mint(t, "shop", tenants.TenantAdmin)
	s.expect(t, client, shop, "PUT", "/v1/workflows/a", `{}`, 201, "")
	s.expect(t, client, shop, "PATCH", "/v1/workflows/a", `{"version": "2"}`, 200, "")
	s.expect(t, client, shop, "PUT", "/v1/workflows/b", `{}`, 403, "quota_exceeded")
	s.expect(t, client, shop, "PUT", "/v1/workflows/b/schedules/k", `{"spec": {"cron": "0 8 * * *"}}`, 403, "quota_exceeded")
}
