package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

func TestExportIsWhatBulkTakesBack(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	admin, platform := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	s.expect(t, client, platform, "PUT", "/v1/platform/tenants/twin", `{}`, 201, "")
	s.expect(t, client, platform, "PUT", "/v1/platform/tenants/shop", `{}`, 201, "")
	twin := s.mint(t, "twin", tenants.TenantAdmin)
	var lines strings.Builder
	for n := range 1100 { // more than are read at once
		fmt.Fprintf(&lines, `{"workflow": "w%d", "key": "k/%04d é", "spec": {"timezone": "Europe/Berlin", "cron": ["%d 8 * * *"]}}`+"\n", n%2, n, n%60)
	}
	for _, one := range []string{
		`"spec": {"at": ["2099-01-01T00:00:00"]}, "payload": {"n": 1.000, "big": 123456789012345678901234567890}, "labels": {"a": "b"}, "note": "x"`,
		`"spec": {"cron": "0 8 * * *", "jitter": "5m", "exclude": {"dates": ["2099-01-01"]}}, "policy": {"overlap": "skip", "max_lateness": "1h"}, "status": "paused"`,
		`"spec": {"intervals": [{"every": "1h"}], "max_ticks": 7}, "delivery": {"priority": 1, "timeout": "90s"}`,
	} {
		fmt.Fprintf(&lines, `{"workflow": "odd", "key": %q, %s}`+"\n", fmt.Sprint(lines.Len()), one)
	}
	if status, answer := s.send(t, client, admin, "POST", "/v1/schedules/bulk?results=errors", "application/x-ndjson", lines.String()); status != 200 || !strings.Contains(string(answer), `"inserted":1103`) {
		t.Fatalf("got %d %s", status, answer)
	}
	read := func(token, query string) string {
		t.Helper()
		status, text := s.send(t, client, token, "GET", "/v1/schedules/export"+query, "", "")
		if status != 200 {
			t.Fatalf("got %d %s", status, text)
		}
		return string(text)
	}
	all := read(admin, "")
	if got := strings.Count(all, "\n"); got != 1103 {
		t.Fatalf("got %d lines", got)
	}
	for token, want := range map[string]string{admin: `"unchanged":1103`, twin: `"inserted":1103`} {
		if status, answer := s.send(t, client, token, "POST", "/v1/schedules/bulk?results=errors", "application/x-ndjson", all); status != 200 || !strings.Contains(string(answer), want) {
			t.Errorf("got %d %s, want %s", status, answer, want)
		}
	}
	if again := read(twin, ""); again != all {
		t.Error("another tenant's export of the same is another")
	}
	if got := strings.Count(read(admin, "?workflow=odd"), "\n"); got != 3 {
		t.Errorf("got %d of one workflow", got)
	}
	if got := read(s.mint(t, "shop", tenants.SchedulesRead), ""); got != "" {
		t.Errorf("a tenant without schedules got %q", got)
	}
}
