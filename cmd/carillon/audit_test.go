package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// audited reads the whole audit, page by page, oldest first, and checks that each page is as long as it may be.
func (s whole) audited(t *testing.T, client *http.Client, token, query string) (all []tenants.AuditEntry) {
	t.Helper()
	cursor := ""
	for {
		status, body := s.send(t, client, token, "GET", "/v1/admin/audit?limit=7"+query+cursor, "", "")
		var page web.ListAnswer[tenants.AuditEntry]
		if err := json.Unmarshal(body, &page); status != 200 || err != nil {
			t.Fatalf("got %d %s, %v", status, body, err)
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			slices.Reverse(all)
			return all
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

func TestEachChangeIsAudited(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	platform, admin, other := s.mint(t, "", tenants.PlatformAdmin), s.mint(t, "shop", tenants.TenantAdmin), s.mint(t, "acme", tenants.TenantAdmin)
	const one, cron = "/v1/workflows/w/schedules/k%2F1", `{"spec": {"cron": "0 8 * * *"}, "payload": {"secret": 1}}`
	var want []string
	for _, step := range []struct {
		token, method, path, body string
		status                    int
		audited                   string // empty: no row
	}{
		{platform, "PUT", "/v1/platform/tenants/shop", `{"quotas": {"schedules": 3}}`, 201, "tenant.put platform/tenants/shop"},
		{admin, "PUT", one, cron, 201, "schedule.put workflows/w/schedules/k%2F1"},
		{admin, "PUT", one, cron, 200, ""},
		{admin, "PUT", one, `{"spec": {"cron": "x"}}`, 422, ""},
		{admin, "PUT", one, `{"spec": {"cron": "0 9 * * *"}}`, 200, "schedule.put workflows/w/schedules/k%2F1"},
		{admin, "PATCH", one, `{"note": "x"}`, 200, "schedule.patch workflows/w/schedules/k%2F1"},
		{admin, "PATCH", one, `{"note": "x"}`, 200, ""},
		{admin, "POST", one + "/skip", `{"count": 1}`, 200, "schedule.skip workflows/w/schedules/k%2F1"},
		{admin, "DELETE", one + "/skip", ``, 200, "schedule.unskip workflows/w/schedules/k%2F1"},
		{admin, "POST", one + "/pause", `{}`, 200, "schedule.pause workflows/w/schedules/k%2F1"},
		{admin, "POST", one + "/pause", `{}`, 200, ""},
		{admin, "POST", one + "/resume", `{}`, 200, "schedule.resume workflows/w/schedules/k%2F1"},
		{admin, "PUT", "/v1/calendars/c", `{"dates": ["2099-01-01"]}`, 201, "calendar.put calendars/c"},
		{admin, "PUT", "/v1/calendars/c", `{"dates": ["2099-01-01"]}`, 200, ""},
		{admin, "DELETE", "/v1/calendars/c", ``, 204, "calendar.delete calendars/c"},
		{admin, "PUT", "/v1/workflows/w", `{"version": "2"}`, 200, "workflow.put workflows/w"},
		{admin, "PATCH", "/v1/admin/settings", `{"fallback_timezone": "Europe/Berlin"}`, 202, "settings.patch admin/settings"},
		{admin, "PATCH", "/v1/admin/settings", `{"fallback_timezone": null}`, 200, "settings.patch admin/settings"},
		{admin, "PATCH", "/v1/admin/settings", `{"fallback_timezone": null}`, 200, ""},
		{admin, "PUT", "/v1/endpoints/e", `{"url": "https://example.com/hook", "headers": {"Authorization": "secret"}}`, 201, "endpoint.put endpoints/e"},
		{admin, "DELETE", "/v1/endpoints/e", ``, 204, "endpoint.delete endpoints/e"},
		{admin, "DELETE", "/v1/endpoints/e", ``, 404, ""},
		{admin, "POST", "/v1/admin/halt", `{}`, 200, "tenant.halt admin/halt"},
		{admin, "POST", "/v1/admin/continue", `{}`, 200, "tenant.continue admin/continue"},
		{admin, "POST", "/v1/admin/continue", `{}`, 200, ""},
		{admin, "PUT", "/v1/subjects/z", `{"timezone": "Europe/Berlin"}`, 201, "subject.put subjects/z"},
		{admin, "POST", "/v1/subjects/z/rename", `{"to": "y"}`, 200, "subject.rename subjects/z"},
		{admin, "PUT", "/v1/workflows/w/schedules/tmp", `{"subject": "y", "spec": {"cron": "0 8 * * *"}}`, 201, "schedule.put workflows/w/schedules/tmp"},
		{admin, "POST", "/v1/subjects/y/cancel", ``, 200, "subject.cancel subjects/y"},
		{admin, "POST", "/v1/subjects/y/cancel", ``, 200, ""},
		{admin, "DELETE", one, ``, 204, "schedule.delete workflows/w/schedules/k%2F1"},
		{admin, "DELETE", one, ``, 404, ""},
		{admin, "DELETE", "/v1/workflows/w", ``, 204, "workflow.delete workflows/w"},
	} {
		status, answer := s.send(t, client, step.token, step.method, step.path, "application/json", step.body)
		if status != step.status {
			t.Fatalf("%s %s %s: got %d %s, want %d", step.method, step.path, step.body, status, answer, step.status)
		}
		if step.audited != "" {
			want = append(want, step.audited)
		}
		var begun struct{ Operation struct{ ID string } }
		if json.Unmarshal(answer, &begun) == nil && begun.Operation.ID != "" {
			want = append(want, "operation.begin operations/"+begun.Operation.ID)
		}
	}
	status, _ := s.send(t, client, admin, "POST", "/v1/schedules/bulk", "application/x-ndjson",
		`{"workflow": "w", "key": "a", "spec": {"cron": "0 8 * * *"}}`+"\n"+`{"workflow": "w", "key": "b", "spec": {"cron": "0 8 * * *"}}`+"\n")
	if want = append(want, "schedules.bulk schedules/bulk"); status != 200 {
		t.Errorf("bulk: got %d", status)
	}
	for range 2 { // the second call changes nothing
		status, _ = s.send(t, client, admin, "POST", "/v1/subjects/bulk", "application/x-ndjson", `{"subject": "a", "timezone": "UTC"}`+"\n")
		if status != 200 {
			t.Errorf("bulk of subjects: got %d", status)
		}
	}
	want = append(want, "subjects.bulk subjects/bulk")
	s.expect(t, client, admin, "PUT", "/v1/workflows/v/schedules/k", `{"spec": {"cron": "0 8 * * *"}, "policy": {"overlap": "allow_all"}, "delivery": {"max_attempts": 1}}`, 201, "")
	trigger := func() (tick string) {
		t.Helper()
		return s.expect(t, client, admin, "POST", "/v1/workflows/v/schedules/k/trigger", `{"payload": "secret"}`, 202, "")["tick_id"].(string)
	}
	cancelled := trigger()
	s.expect(t, client, admin, "POST", "/v1/ticks/"+cancelled+"/cancel", "", 200, "")
	s.expect(t, client, admin, "POST", "/v1/ticks/"+cancelled+"/replay", "", 409, "tick_not_failed")
	failed := trigger()
	lease := s.expect(t, client, admin, "POST", "/v1/ticks/lease", `{"workflows": ["v"], "wait": "1m", "worker": "a"}`, 200, "")["ticks"].([]any)[0].(map[string]any)
	s.expect(t, client, admin, "POST", "/v1/ticks/"+failed+"/fail", fmt.Sprintf(`{"lease_token": %q, "error": "x", "retry": false}`, lease["lease_token"]), 204, "")
	s.expect(t, client, admin, "POST", "/v1/ticks/"+failed+"/replay", "", 202, "")
	op := s.expect(t, client, admin, "POST", "/v1/admin/dead-letters/replay", `{"filter": {"workflow": "v"}}`, 202, "")["id"].(string)
	want = append(want, "schedule.put workflows/v/schedules/k", "schedule.trigger workflows/v/schedules/k", "tick.cancel ticks/"+cancelled,
		"schedule.trigger workflows/v/schedules/k", "tick.replay ticks/"+failed, "operation.begin operations/"+op)
	all := s.audited(t, client, admin, "")
	if last := all[len(all)-1]; !strings.Contains(string(last.After), `{"workflow":"v"}`) {
		t.Errorf("the filter is not told: %s", last.After)
	}
	if replayed := all[len(all)-2]; !strings.Contains(string(replayed.Before), `"failed"`) || !strings.Contains(string(replayed.After), `"running"`) {
		t.Errorf("got %s, then %s", replayed.Before, replayed.After)
	}
	var got []string
	for _, e := range all {
		got = append(got, e.Action+" "+e.Target)
		if e.Actor == "" || e.Request == "" {
			t.Errorf("%s by %q in %q", e.Action, e.Actor, e.Request)
		}
		if text := string(e.Before) + string(e.After); strings.Contains(text, "secret") {
			t.Errorf("%s tells a secret: %s", e.Action, text)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if before, after := string(all[2].Before), string(all[2].After); !strings.Contains(before, "0 8 * * *") || !strings.Contains(after, "0 9 * * *") {
		t.Errorf("got %s, then %s", before, after)
	}
	if some := s.audited(t, client, admin, "&action=schedule.put&target=workflows/w/schedules/k%252F1&from=2020-01-01T00:00:00Z&to=2999-01-01T00:00:00Z"); len(some) != 2 {
		t.Errorf("got %d of one action", len(some))
	}
	if some := s.audited(t, client, admin, "&to=2020-01-01T00:00:00Z"); len(some) != 0 {
		t.Errorf("got %d from before all", len(some))
	}
	if foreign := s.audited(t, client, other, ""); len(foreign) != 0 {
		t.Errorf("another tenant reads %d", len(foreign))
	}
	s.expect(t, client, admin, "GET", "/v1/admin/audit?from=yesterday", "", 422, "invalid")
}

func TestAuditOfAnErasedKeyTellsAHash(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	admin := s.mint(t, "acme", tenants.TenantAdmin)
	s.expect(t, client, admin, "PUT", "/v1/workflows/w/schedules/customer-7", `{"spec": {"cron": "0 8 * * *"}, "note": "customer-7"}`, 201, "")
	s.expect(t, client, admin, "POST", "/v1/subjects/customer-7/rename", `{"to": "customer-8"}`, 200, "")
	s.expect(t, client, admin, "PUT", "/v1/subjects/customer-8", `{"timezone": "Europe/Berlin"}`, 201, "")
	s.expect(t, client, admin, "DELETE", "/v1/subjects/customer-8", "", 200, "")
	var actions []string
	for _, e := range s.audited(t, client, admin, "") {
		actions = append(actions, e.Action)
		if text, _ := json.Marshal(e); strings.Contains(string(text), "customer") {
			t.Errorf("the audit tells an erased key: %s", text)
		}
	}
	if diff := cmp.Diff([]string{"schedule.put", "subject.rename", "subject.put", "subject.erase"}, actions); diff != "" {
		t.Error(diff)
	}
}
