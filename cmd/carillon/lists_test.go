package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// Operations that take no name show nothing of another tenant: each list, export and overview of the document is empty for a tenant without
// things, beside a tenant with things of every kind. An iCalendar is only another form of an answer, so it is left out.
func TestNobodysListsHoldAnothers(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	all := documented(t)
	owner := s.settle(t, client, all)
	if _, err := tenants.Ensure(t.Context(), s.pool, "thief", tenants.Wide()); err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for _, tenant := range []string{"acme", "thief"} {
		tokens[tenant] = s.mint(t, tenant, tenants.TenantScopes()...)
	}
	asked := 0
	for _, a := range all {
		if a.method != http.MethodGet || !strings.HasPrefix(a.path, "/v1/") || strings.Contains(a.path, "{") || a.platform() {
			continue
		}
		asked++
		got, ok := s.ask(t, client, tokens["thief"], a.method, a.path, nil, nil, patience)
		if !ok || got.status != http.StatusOK || strings.Contains(string(got.body), owner.word+"-") {
			t.Errorf("%s: got %d %s", a.id, got.status, got.body)
		}
	}
	if asked < 10 {
		t.Errorf("only %d operations were asked", asked)
	}
	const upcoming = "/v1/workflows/mine-w/schedules/mine-k/upcoming"
	ics := http.Header{"Accept": {"text/calendar"}}
	if got, ok := s.ask(t, client, tokens["acme"], "GET", upcoming, ics, nil, patience); !ok || got.status != http.StatusOK || !strings.HasPrefix(got.header.Get("Content-Type"), "text/calendar") {
		t.Errorf("the owner got %d %s", got.status, got.body)
	}
	if got, ok := s.ask(t, client, tokens["thief"], "GET", upcoming, ics, nil, patience); !ok || got.status != http.StatusNotFound {
		t.Errorf("another got %d %s", got.status, got.body)
	}
}
