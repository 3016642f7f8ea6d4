package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// An API key that is limited to a workflow reaches no other one by any operation of the document.
func TestALimitedKeyReachesItsOwnWorkflowsOnly(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	all := documented(t)
	theirs := s.settle(t, client, all) // things of the workflow mine-w
	operator := s.mint(t, "acme", tenants.TenantScopes()...)
	s.expect(t, client, operator, "PUT", "/v1/workflows/own/schedules/k", `{"spec": {"cron": "0 8 1 1 *"}}`, 201, "")
	made := s.expect(t, client, operator, "POST", "/v1/admin/api-keys", `{"name": "limited", "scopes": ["schedules:read", "schedules:write", "ticks:work"], "workflows": ["own"]}`, 201, "")
	token := fmt.Sprint(s.expect(t, client, "", "POST", "/v1/token", fmt.Sprintf(`{"api_key": %q}`, made["key"]), 200, "")["access_token"])
	s.expect(t, client, token, "GET", "/v1/workflows/own/schedules/k", "", 200, "")
	s.expect(t, client, token, "POST", "/v1/ticks/lease", `{"workflows": ["own"], "wait": "0s", "worker": "a"}`, 200, "")

	before := s.print(t, "acme")
	for _, a := range all {
		if !strings.HasPrefix(a.path, "/v1/") || a.public || a.id == "getSelf" || a.id == "listZones" || a.id == "getZone" {
			continue
		}
		for _, body := range theirs.bytes(t, a) {
			h := http.Header{}
			if body != nil {
				h.Set("Content-Type", a.media)
			}
			got, ok := s.ask(t, client, token, a.method, theirs.path(a), h, body, patience)
			many := got.status == http.StatusOK && (a.path == "/v1/ticks/finish" || a.path == "/v1/ticks/heartbeat")
			if many && !strings.Contains(string(got.body), `"status":20`) {
				continue // each tick is refused by itself
			}
			if !ok || got.status != http.StatusForbidden && got.status != http.StatusConflict && got.status != http.StatusUnprocessableEntity {
				t.Errorf("%s: got %d %.200s", a.id, got.status, got.body)
			}
		}
	}
	for table, rows := range s.print(t, "acme") {
		if rows != before[table] {
			t.Errorf("rows of %s have changed", table)
		}
	}
}
