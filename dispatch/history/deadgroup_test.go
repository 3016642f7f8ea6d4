package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/tenants"
)

// Dead letters are grouped by workflow and by what their errors share.
func TestDeadLettersAreGrouped(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Catcher("pushed", 1, nil)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	at := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	number := 0
	fail := func(workflow, text string, n int) {
		t.Helper()
		for i := range n {
			number++
			h.Exec(`
				INSERT INTO dead_letter (tenant_id, schedule_id, nominal_at, seq, workflow, key, failed_at, fired_at, version, missed_count, shard, attempt, cause, dst, error)
				VALUES ($1, $2::bigint, $3, 0, $4, 'k' || $2::bigint, now(), now(), 1, 0, 0, 1, 0, 0, $5)`,
				h.Tenant, number, at.Add(time.Duration(i)*time.Minute), workflow, strings.ReplaceAll(text, "#", fmt.Sprint(100000+number)))
		}
	}
	fail("pushed", "503 Service Unavailable\nrequest #", 3)
	fail("pushed", "404 Not Found", 1)
	fail("pulled", "user usr_#ab is gone: try #", 2)
	fail("pulled", "", 1)
	const path = "/v1/admin/dead-letters/groups"
	show := func(query string) (text []string) {
		t.Helper()
		got := dispatchtest.Get[history.DeadGroups](c, 200, "GET", path+query, "")
		if got.Truncated {
			t.Errorf("%s is truncated", query)
		}
		for _, g := range got.Items {
			endpoint := "-"
			if g.Endpoint != nil {
				endpoint = *g.Endpoint
			}
			text = append(text, fmt.Sprintf("%s %s %q %d %s", g.Workflow, endpoint, g.Error, g.Count, g.LastAt.Sub(g.FirstAt)))
			if sample := c.Do("GET", "/v1/ticks/"+g.SampleID, ""); sample.Status != 200 {
				t.Errorf("the sample of %s: %d", g.Error, sample.Status)
			}
		}
		return text
	}
	want := []string{
		`pushed pushed "503 Service Unavailable" 3 2m0s`, `pulled - "user * is gone: try *" 2 1m0s`,
		`pulled - "" 1 0s`, `pushed pushed "404 Not Found" 1 0s`,
	}
	if got, want := show("?endpoint=pushed"), []string{want[0], want[3]}; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("of an endpoint: got %s", got)
	}
	if got := show("?endpoint=none"); len(got) != 0 {
		t.Errorf("of no endpoint: got %s", got)
	}
	list := dispatchtest.Get[struct {
		Items []history.Tick
		Next  *string `json:"next_cursor"`
	}](c, 200, "GET", "/v1/admin/dead-letters?endpoint=pushed&limit=3", "")
	if len(list.Items) != 3 || list.Next == nil || list.Items[0].Workflow != "pushed" || !list.Items[0].Timestamp.After(list.Items[2].Timestamp) {
		t.Errorf("got %+v", list)
	}
	preview := dispatchtest.Get[control.DeadReplayPreview](c, 200, "POST", "/v1/admin/dead-letters/replay", `{"filter": {"endpoint": "pushed"}, "dry_run": true}`)
	if preview.Matched != 4 || len(preview.Sample) != 4 {
		t.Errorf("a dry run tells %+v", preview)
	}
	h.Exec(`INSERT INTO operation (tenant_id, kind, started_by, params) SELECT $1, 'count', 'ann', '{}' FROM generate_series(1, 100)`, h.Tenant)
	c.Refused(409, "too_many_operations", "", "POST", "/v1/admin/dead-letters/replay", `{"filter": {"endpoint": "pushed"}}`)
	c.Refused(422, "invalid", "/endpoint", "GET", "/v1/admin/dead-letters?endpoint=a+b", "")
	if got := show(""); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if got := show("?workflow=pulled"); len(got) != 2 {
		t.Errorf("got %q", got)
	}
	if got := show("?from=" + at.Add(time.Minute).Format(time.RFC3339)); len(got) != 2 {
		t.Errorf("got %q", got)
	}
	if got := dispatchtest.Get[history.DeadGroups](s.As("rival", tenants.TenantAdmin), 200, "GET", path, ""); len(got.Items) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	c.Refused(422, "invalid", "/workflow", "GET", path+"?workflow=a%20b", "")
	c.Refused(422, "invalid", "/from", "GET", path+"?from=2026-03-01T00:00:00%2B24:00", "") // offsets end at ±23:59: RFC 3339, section 5.6
	fail("many", "x", 300)
	h.Exec(`UPDATE dead_letter SET error = 'e' || translate(schedule_id::text, '0123456789', 'abcdefghij') WHERE workflow = 'many' AND $1 > 0`, h.Tenant)
	if got := dispatchtest.Get[history.DeadGroups](c, 200, "GET", path, ""); len(got.Items) != 200 || !got.Truncated {
		t.Errorf("got %d groups, truncated: %t", len(got.Items), got.Truncated)
	}
}
