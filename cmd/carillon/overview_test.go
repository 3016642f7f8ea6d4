package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/tenants"
	"github.com/google/go-cmp/cmp"
)

func TestOverview(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	admin, other := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "rival", tenants.TenantAdmin)
	s.expect(t, client, s.mint(t, "", tenants.PlatformAdmin), "PUT", "/v1/platform/tenants/rival", `{}`, 201, "")
	view := func(token string) (v history.Overview) {
		t.Helper()
		status, body := s.send(t, client, token, "GET", "/v1/admin/overview", "", "")
		if err := json.Unmarshal(body, &v); status != 200 || err != nil {
			t.Fatalf("got %d %s, %v", status, body, err)
		}
		return v
	}
	until := func(what string, holds func(history.Overview) bool) (v history.Overview) {
		t.Helper()
		for deadline := time.Now().Add(inTime); ; <-time.After(100 * time.Millisecond) {
			if v = view(admin); holds(v) {
				return v
			}
			if time.Now().After(deadline) {
				t.Fatalf("never %s: %+v", what, v)
			}
		}
	}
	empty := view(other)
	if empty.Schedules.Total != 0 || len(empty.Schedules.Workflows) != 0 || empty.Lateness.P50 != nil || empty.Backlog.OldestAt != nil || len(empty.Throttling) != 0 || len(empty.Quotas) != 23 {
		t.Errorf("got %+v", empty)
	}

	const cron = `{"spec": {"cron": "0 8 * * *"}, "policy": {"overlap": "allow_all"}, "delivery": {"max_attempts": 1}}`
	for n := range 5 {
		s.expect(t, client, admin, "PUT", fmt.Sprintf("/v1/workflows/w/schedules/k%d", n), cron, 201, "")
	}
	s.expect(t, client, admin, "PUT", "/v1/workflows/v/schedules/k", cron, 201, "")
	s.expect(t, client, admin, "POST", "/v1/workflows/w/schedules/k0/pause", `{}`, 200, "")
	s.expect(t, client, admin, "POST", "/v1/workflows/w/schedules/k1/pause", `{"until": "2090-01-01T00:00:00Z"}`, 200, "")
	s.expect(t, client, admin, "DELETE", "/v1/workflows/w/schedules/k4", ``, 204, "")
	for range 3 {
		s.expect(t, client, admin, "POST", "/v1/workflows/w/schedules/k2/trigger", `{}`, 202, "")
	}
	until("three are ready", func(v history.Overview) bool { return v.Backlog.Ready == 3 })
	leased := s.expect(t, client, admin, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "max": 2, "wait": "1m", "worker": "a"}`, 200, "")["ticks"].([]any)
	first := leased[0].(map[string]any)
	s.expect(t, client, admin, "POST", "/v1/ticks/"+first["tick_id"].(string)+"/fail", fmt.Sprintf(`{"lease_token": %q, "error": "x", "retry": false}`, first["lease_token"]), 204, "")
	s.expect(t, client, admin, "PUT", "/v1/endpoints/e", `{"url": "https://example.com/", "state": "held"}`, 201, "")

	v := until("all is counted by workflow, and what comes is computed", func(v history.Overview) bool {
		return v.Due != nil && v.Due.Day >= 3 && len(v.Schedules.Workflows) == 2 && v.Schedules.Workflows[0].Paused == 2 && v.Schedules.Workflows[0].Active == 2
	})
	want := history.ScheduleCounts{
		Total: 5, StateCounts: history.StateCounts{Active: 3, Paused: 2},
		Workflows: []history.WorkflowCounts{
			{Workflow: "w", StateCounts: history.StateCounts{Active: 2, Paused: 2}},
			{Workflow: "v", StateCounts: history.StateCounts{Active: 1}},
		},
	}
	if diff := cmp.Diff(want, v.Schedules); diff != "" {
		t.Error(diff)
	}
	if v.Running.Leased != 1 || v.Backlog.Ready != 1 || v.Failures.DeadLetters != 1 || v.Failures.LastHour != 1 ||
		len(v.Failures.Endpoints) != 1 || v.Failures.Endpoints[0].State != "held" || v.Lateness.Ticks != 3 || v.Lateness.P99 == nil {
		t.Errorf("got %+v", v)
	}
	if used := v.Quotas["endpoints"]; used.Used == nil || *used.Used != 1 {
		t.Errorf("got %+v", v.Quotas)
	}

	if _, err := s.pool.Exec(t.Context(), `UPDATE schedule SET paused_until = now() - interval '1 s' WHERE key = 'k1'`); err != nil {
		t.Fatal(err)
	}
	until("a pause that has ended counts as none", func(v history.Overview) bool {
		w := v.Schedules.Workflows[0]
		return v.Schedules.Paused == 1 && v.Schedules.Active == 4 && w.Paused == 1 && w.Active == 3
	})

	s.expect(t, client, admin, "POST", "/v1/admin/halt", `{"note": "the mail is down"}`, 200, "")
	s.expect(t, client, admin, "PUT", "/v1/workflows/v/schedules/soon", `{"spec": {"intervals": [{"every": "1s"}]}}`, 201, "")
	v = until("a tick waits", func(v history.Overview) bool { return v.Backlog.Unswept == 1 })
	if v.Firing.HaltedAt == nil || *v.Firing.Note != "the mail is down" || v.Backlog.OldestAt == nil {
		t.Errorf("got %+v", v)
	}
	if v := view(other); v.Schedules.Total != 0 || v.Backlog.Ready != 0 || v.Failures.DeadLetters != 0 || v.Running.Leased != 0 {
		t.Errorf("another tenant sees %+v", v)
	}
	s.expect(t, client, s.mint(t, "acme", tenants.SchedulesRead), "GET", "/v1/admin/overview", "", 403, "insufficient_scope")
}
