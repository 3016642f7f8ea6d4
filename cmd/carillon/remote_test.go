package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// The audit has the address of the client, also for puts that are stored together. Erasing a key erases the addresses of its rows.
func TestTheAuditTellsTheAddressOfTheClient(t *testing.T) {
	t.Parallel()
	s := serveAs(t, func(p *options) { p.proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	client, admin := checked(t), s.mint(t, "acme", tenants.TenantAdmin)
	from := func(address, method, path, body string) {
		t.Helper()
		sent := http.Header{"X-Forwarded-For": {address}, "Content-Type": {"application/json"}}
		if strings.HasSuffix(path, "/bulk") {
			sent.Set("Content-Type", "application/x-ndjson")
		}
		if got, ok := s.ask(t, client, admin, method, path, sent, []byte(body), patience); ok && got.status/100 != 2 {
			t.Errorf("%s %s: got %d %s", method, path, got.status, got.body)
		}
	}
	want := map[string]string{ // by target
		"calendars/a": "203.0.113.7", "calendars/b": "2001:db8::1", "calendars/c": "203.0.113.8", "schedules/bulk": "203.0.113.9",
	}
	from("203.0.113.7", "PUT", "/v1/calendars/a", `{"dates": ["2099-01-01"]}`)
	from("2001:db8::1", "PUT", "/v1/calendars/b", `{"dates": ["2099-01-01"]}`)
	from("::ffff:203.0.113.8", "PUT", "/v1/calendars/c", `{"dates": ["2099-01-01"]}`)
	from("203.0.113.9", "POST", "/v1/schedules/bulk", `{"workflow": "w", "key": "line", "spec": {"cron": "0 8 * * *"}}`)
	var puts sync.WaitGroup
	for n := range 60 { // of one subject, so that some are stored together
		path, address := fmt.Sprintf("workflows/w/schedules/k%d", n), fmt.Sprintf("198.51.100.%d", n)
		want[path] = address
		puts.Go(func() { from(address, "PUT", "/v1/"+path, `{"spec": {"cron": "0 8 * * *"}}`) })
	}
	puts.Wait()
	for _, e := range s.audited(t, client, admin, "") {
		if e.Remote == nil || *e.Remote != want[e.Target] {
			t.Errorf("%s: got %v, want %s", e.Target, e.Remote, want[e.Target])
		}
		delete(want, e.Target)
	}
	if len(want) != 0 {
		t.Errorf("nothing is told of %v", want)
	}
	from("203.0.113.10", "DELETE", "/v1/subjects/k7", "")
	for _, e := range s.audited(t, client, admin, "") {
		erased := e.Action == "schedule.put" && strings.HasPrefix(e.Target, "subjects/")
		if text, _ := json.Marshal(e); strings.Contains(string(text), `"198.51.100.7"`) || erased != (e.Remote == nil) {
			t.Errorf("the key is erased, and the audit tells %s", text)
		}
	}
}
