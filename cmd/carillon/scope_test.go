package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// A token with one scope may do exactly what the document lists for the scope, or for a scope that it implies.
func TestEachScopeAllowsWhatTheDocumentStates(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	implied := map[string][]string{tenants.TenantRead: {tenants.SchedulesRead}, tenants.TenantAdmin: tenants.TenantScopes()}
	for _, scope := range append(tenants.TenantScopes(), tenants.PlatformAdmin) {
		tenant := "acme"
		if scope == tenants.PlatformAdmin {
			tenant = ""
		}
		token, has := s.mint(t, tenant, scope), append([]string{scope}, implied[scope]...)
		for _, a := range documented(t) {
			if !strings.HasPrefix(a.path, "/v1/") || a.public {
				continue
			}
			values := map[string]string{}
			for _, p := range a.params {
				values[p.Value.Name] = "absent"
			}
			got, ok := s.ask(t, client, token, a.method, a.fill(values), http.Header{}, nil, patience)
			allowed := len(a.scopes) == 0 || slices.ContainsFunc(a.scopes, func(s string) bool { return slices.Contains(has, s) })
			if refused := strings.Contains(string(got.body), `"insufficient_scope"`); !ok || refused == allowed || refused != (got.status == http.StatusForbidden) {
				t.Errorf("%s with %s: got %d %.200s", a.id, scope, got.status, got.body)
			}
		}
	}
}
