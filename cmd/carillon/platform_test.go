package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/platform"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// The platform's operator sees the processes, what waits, and what each tenant used on a day. A tenant's operator sees none of it.
func TestThePlatformIsShown(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	ops, admin := s.mint(t, "", tenants.PlatformAdmin), s.mint(t, "acme", tenants.TenantScopes()...)
	s.expect(t, client, ops, "PUT", "/v1/platform/tenants/quiet", `{}`, 201, "")
	s.expect(t, client, ops, "PUT", "/v1/platform/tenants/resting", `{"status": "suspended"}`, 201, "")
	for _, path := range []string{"/v1/platform/overview", "/v1/platform/usage", "/v1/platform/audit"} {
		s.expect(t, client, admin, "GET", path, "", 403, "insufficient_scope")
	}
	read := func(path string, into any) {
		t.Helper()
		status, body := s.send(t, client, ops, "GET", path, "", "")
		if err := json.Unmarshal(body, into); status != http.StatusOK || err != nil {
			t.Fatalf("got %d %s, %v", status, body, err)
		}
	}

	var v platform.Overview
	until(t, "one process is shown, whose last heartbeat is young", func() bool {
		v = platform.Overview{}
		read("/v1/platform/overview", &v)
		return len(v.Processes) == 1 && v.Processes[0].BeatAgeMS < 5000
	})
	if p := v.Processes[0]; p.Name != processName() || !slices.Equal(p.Roles, []string{"api", "sweep", "dispatch"}) || p.Version != thisEdition().Version || p.Shards != 64 {
		t.Errorf("got %+v", p)
	}
	if want := (platform.Tenants{Active: 2, Suspended: 1}); v.Tenants != want || len(v.Queues) != 4 || v.BrokenPromises != 0 {
		t.Errorf("got %+v", v)
	}

	s.expect(t, client, admin, "PUT", "/v1/workflows/w/schedules/k", `{"spec": {"cron": "0 8 1 1 *"}, "policy": {"overlap": "allow_all"}}`, 201, "")
	before := time.Now().UTC().Format(time.DateOnly)
	tick := s.expect(t, client, admin, "POST", "/v1/workflows/w/schedules/k/trigger", `{}`, 202, "")
	day, _, _ := strings.Cut(fmt.Sprint(tick["timestamp"]), "T") // another may begin meanwhile
	for deadline := time.Now().Add(inTime); ; <-time.After(50 * time.Millisecond) {
		var page web.ListAnswer[platform.TenantUse]
		read("/v1/platform/usage?limit=2&day="+day, &page)
		if len(page.Items) != 2 || page.NextCursor == nil || page.Items[0].Tenant != "acme" || page.Items[1].Tenant != "quiet" || page.Items[1].Ticks != 0 {
			t.Fatalf("got %+v", page)
		}
		if use := page.Items[0]; use.Ticks == 1 && use.Schedules == 1 && use.StoredBytes > 0 && use.Day == day {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %+v", page)
		}
	}
	var page web.ListAnswer[platform.TenantUse]
	if read("/v1/platform/usage?limit=2", &page); len(page.Items) != 2 || page.Items[0].Day < before {
		t.Errorf("got %+v", page)
	}
	read("/v1/platform/usage?day=2020-02-29", &page)
	if len(page.Items) != 3 || page.Items[0].Ticks != 0 || page.Items[0].Day != "2020-02-29" {
		t.Errorf("got %+v", page)
	}
	for _, day := range []string{"", "2026-02-30", "x", "0001-01-01"} {
		s.expect(t, client, ops, "GET", "/v1/platform/usage?day="+day, "", 422, "invalid")
	}
}

// What the platform's operator changes of a tenant stays readable when the tenant is gone.
func TestTheAuditOfThePlatformOutlivesATenant(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	ops := s.mint(t, "", tenants.PlatformAdmin)
	const path = "/v1/platform/tenants/gone"
	s.expect(t, client, ops, "PUT", path, `{"quotas": {"schedules": 7}}`, 201, "")
	s.expect(t, client, ops, "PATCH", path, `{"quotas": {"schedules": 8}}`, 200, "")
	for status := http.StatusAccepted; status == http.StatusAccepted; { // a loaded machine may need more than one
		status, _ = s.send(t, client, ops, "DELETE", path, "", "")
	}
	s.expect(t, client, ops, "GET", path, "", 404, "not_found")
	list := func(query string) (found []tenants.AuditEntry) {
		t.Helper()
		var page web.ListAnswer[tenants.AuditEntry]
		for next := ""; ; next = "&cursor=" + *page.NextCursor {
			status, body := s.send(t, client, ops, "GET", "/v1/platform/audit?limit=2"+query+next, "", "")
			page = web.ListAnswer[tenants.AuditEntry]{}
			if err := json.Unmarshal(body, &page); status != http.StatusOK || err != nil {
				t.Fatalf("got %d %s, %v", status, body, err)
			}
			if found = append(found, page.Items...); page.NextCursor == nil {
				return found
			}
		}
	}
	var told []string
	for _, e := range list("&target=platform/tenants/gone") {
		told = append(told, fmt.Sprintf("%s %t %t", e.Action, string(e.Before) != "null", string(e.After) != "null"))
		if e.Actor == "" || e.Request == "" || e.Remote == nil {
			t.Errorf("got %+v", e)
		}
	}
	if want := []string{"tenant.erase false true", "tenant.put true true", "tenant.put false true"}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
	if some := list("&action=tenant.erase"); len(some) != 1 {
		t.Errorf("got %d of one action", len(some))
	}
}
