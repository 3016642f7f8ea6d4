package dispatch_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

const (
	ticks = "/v1/workflows/w/schedules/k/ticks"
)

func TestRoutesAskForTheirScopesAndNoOtherParameter(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	const read, write, work, endpoints = tenants.SchedulesRead, tenants.SchedulesWrite, tenants.TicksWork, tenants.EndpointsWrite
	for route, scopes := range map[string][]string{
		"POST " + dispatchtest.Trigger:              {write},
		"GET " + ticks:                              {read},
		"GET " + dispatchtest.ExplainPath:           {read},
		"POST /v1/ticks/lease":                      {work},
		"POST /v1/ticks/finish":                     {work},
		"POST /v1/ticks/heartbeat":                  {work},
		"POST /v1/ticks/tick_x/fail":                {work},
		"POST /v1/ticks/tick_/complete":             {work},
		"POST /v1/ticks/tick/heartbeat":             {work},
		"GET /v1/ticks/tick_x":                      {read, work},
		"GET /v1/ticks":                             {read, work},
		"POST /v1/ticks/tick_x/cancel":              {write, work},
		"POST /v1/ticks/tick_x/replay":              {write, work},
		"GET /v1/admin/dead-letters":                {tenants.TenantAdmin},
		"GET /v1/endpoints":                         {read, endpoints},
		"GET /v1/endpoints/e":                       {read, endpoints},
		"PUT /v1/endpoints/e":                       {endpoints},
		"DELETE /v1/endpoints/e":                    {endpoints},
		"POST /v1/endpoints/e/secrets":              {endpoints},
		"POST /v1/endpoints/e/test":                 {endpoints},
		"POST /v1/admin/dead-letters/replay":        {tenants.TenantAdmin},
		"POST /v1/workflows/w/schedules/k/backfill": {write},
	} {
		method, path, _ := strings.Cut(route, " ")
		body := ""
		if method != "GET" && method != "DELETE" {
			body = `{}`
		}
		s.Anyone().Refused(401, "unauthenticated", "", method, path, body)
		for _, scope := range []string{read, write, work, endpoints, tenants.TenantAdmin} {
			if scope == tenants.TenantAdmin || slices.Contains(scopes, scope) {
				s.As("acme", scope).Refused(400, "unknown_parameter", "/colour", method, path+"?colour=red", body)
				continue
			}
			s.As("acme", scope).Refused(403, "insufficient_scope", "", method, path, body)
		}
	}
}

func TestTriggerOverHTTP(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	before := h.Put("w", "k", dispatchtest.Rarely("skip"))
	for _, path := range []string{dispatchtest.Trigger, "/v1/workflows/w/schedules/k/backfill"} {
		if got := c.Do("POST", path, `{}`, "If-Match", `"9"`); got.Status != 412 || got.Code != "version_mismatch" {
			t.Errorf("%s of another version: got %d %s", path, got.Status, got.Body)
		}
	}
	first := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, `{"payload": {"n": 1.0}}`, "Idempotency-Key", "one", "If-Match", `"1"`)
	if first.State != "running" || first.Cause != "manual" || first.Occurrence != nil {
		t.Errorf("got %+v", first)
	}
	replayed := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, `{"payload": {"n": 1.0}}`, "Idempotency-Key", "one")
	if replayed.TickID != first.TickID {
		t.Errorf("one key fired %s and %s", first.TickID, replayed.TickID)
	}
	c.Refused(422, "idempotency_key_reused", "", "POST", dispatchtest.Trigger, `{"payload": {"n": 2}}`, "Idempotency-Key", "one")
	c.Refused(400, "invalid_idempotency_key", "", "POST", dispatchtest.Trigger, "", "Idempotency-Key", strings.Repeat("x", 256))
	if second := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, ""); second.State != "skipped" || second.Reason != "overlap" || second.TickID == first.TickID {
		t.Errorf("got %+v, want one that is skipped for the first", second)
	}
	h.Put("w", "free", dispatchtest.Rarely("allow_all"))
	if _, _, err := h.Schedules.Pause(t.Context(), h.Tenant, "w", "free", schedules.PauseParams{}, schedules.Changer{}); err != nil {
		t.Fatal(err)
	}
	if got := dispatchtest.Get[history.Tick](c, 202, "POST", "/v1/workflows/w/schedules/free/trigger", `{}`); got.State != "running" {
		t.Errorf("a paused schedule that is triggered: got %+v", got)
	}
	c.Refused(404, "not_found", "", "POST", "/v1/workflows/w/schedules/absent/trigger", "")
	c.Refused(413, "payload_too_large", "/payload", "POST", dispatchtest.Trigger, `{"payload": "`+strings.Repeat("x", 70_000)+`"}`)
	c.Refused(422, "wrong_type", "/at", "POST", dispatchtest.Trigger, `{"at": 1}`)
	c.Refused(400, "unknown_field", "/when", "POST", dispatchtest.Trigger, `{"when": 1}`)
	c.Refused(415, "unsupported_media_type", "", "POST", dispatchtest.Trigger, "payload", "Content-Type", "text/plain")
	after, err := h.Schedules.Get(t.Context(), h.Tenant, "w", "k")
	if err != nil || !after.NextAt.Equal(*before.NextAt) || after.LastAt != nil || after.Version != before.Version {
		t.Errorf("the timing moved: got %+v, %v", after, err)
	}
}

func TestHistoryOverHTTP(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Put("w", "k", dispatchtest.Rarely("skip"))
	h.Put("w", "other", dispatchtest.Rarely("skip"))
	want := make([]string, 5) // newest first
	for i := range want {
		want[len(want)-1-i] = dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "").TickID
	}
	var got []string
	path, cursor := ticks+"?limit=2", ""
	for pages := 0; ; pages++ {
		p := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", path+cursor, "")
		for _, one := range p.Items {
			got = append(got, one.TickID)
		}
		if p.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *p.NextCursor
		for _, elsewhere := range []string{"/v1/workflows/w/schedules/other/ticks?limit=2", ticks + "?limit=2&state=skipped"} {
			c.Refused(422, "invalid_cursor", "/cursor", "GET", elsewhere+cursor, "")
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	all := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", ticks, "").Items
	if len(all) != 5 || all[4].State != "running" || all[0].State != "skipped" {
		t.Fatalf("got %+v", all)
	}
	oldest, newest := all[4].Timestamp, all[0].Timestamp
	for query, n := range map[string]int{
		"state=skipped": 4,
		"state=running": 1,
		"state=failed":  0,
		"from=" + oldest.Format(time.RFC3339) + "&to=" + newest.Add(time.Second).Format(time.RFC3339): 5,
		"from=" + newest.Add(time.Second).Format(time.RFC3339):                                        0,
		"to=" + oldest.Format(time.RFC3339):                                                           0,
		"to=" + newest.Add(time.Second).Format(time.RFC3339) + "&state=skipped&limit=3":               3,
	} {
		if p := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", ticks+"?"+query, ""); len(p.Items) != n {
			t.Errorf("%s: got %d ticks, want %d", query, len(p.Items), n)
		}
	}
	for query, pointer := range map[string]string{"state=late": "/state", "from=yesterday": "/from", "to=1": "/to", "limit=0": "/limit", "limit=1001": "/limit"} {
		c.Refused(422, "invalid", pointer, "GET", ticks+"?"+query, "")
	}
	c.Refused(404, "not_found", "", "GET", "/v1/workflows/w/schedules/absent/ticks", "")

	one := dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+want[0], "")
	if one.TickID != want[0] || one.State != "skipped" {
		t.Errorf("got %+v", one)
	}
	for _, id := range []string{"tick_0a1b2c3d4e5f6g7h8i9jklmnop", "x", want[0] + "0"} {
		c.Refused(404, "not_found", "", "GET", "/v1/ticks/"+id, "")
	}
}

func TestAnotherTenantsTicksAreAbsent(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	h.Start(h.Dispatch)
	acme, rival := s.Operator(), s.As("rival", tenants.TenantAdmin)
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	dispatchtest.Get[history.Tick](acme, 202, "POST", dispatchtest.Trigger, "")
	theirs := acme.LeaseAll(1)[0]
	const absent = "tick_0a1b2c3d4e5f6g7h8i9jklmnop"
	for _, route := range []string{
		"GET /v1/ticks/ID ", `POST /v1/ticks/ID/complete {"lease_token": "TOKEN"}`, `POST /v1/ticks/ID/heartbeat {"lease_token": "TOKEN"}`,
		`POST /v1/ticks/ID/fail {"lease_token": "TOKEN", "error": "x"}`,
		`POST /v1/ticks/finish {"ticks": [{"tick_id": "ID", "lease_token": "TOKEN", "outcome": "complete"}]}`,
		`POST /v1/ticks/heartbeat {"ticks": [{"tick_id": "ID", "lease_token": "TOKEN"}]}`,
	} {
		seen := func(id string) string {
			parts := strings.SplitN(strings.NewReplacer("ID", id, "TOKEN", theirs.LeaseToken).Replace(route), " ", 3)
			a := rival.Do(parts[0], parts[1], parts[2])
			body := bytes.ReplaceAll(a.Body, []byte(id), []byte("ID"))
			return fmt.Sprint(a.Status, string(bytes.ReplaceAll(body, []byte(a.Header.Get("X-Request-Id")), nil)))
		}
		if a, b := seen(theirs.TickID), seen(absent); a != b || !strings.Contains(a, "404") {
			t.Errorf("%s: another's is %s, an absent one %s", route, a, b)
		}
	}
	rival.Refused(404, "not_found", "", "GET", ticks, "")
	rival.Refused(404, "not_found", "", "POST", dispatchtest.Trigger, "")
	if got := dispatchtest.Get[history.Tick](acme, 200, "GET", "/v1/ticks/"+theirs.TickID, ""); got.State != "running" {
		t.Errorf("got %+v", got)
	}
}
