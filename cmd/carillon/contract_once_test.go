package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// A repeated request with the same Idempotency-Key gets the same status, bytes and headers, and a header that marks the answer as
// replayed. A replayed answer omits the secret.
func TestReplayedAnswersAreAlikeAndSaySo(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	token := s.mint(t, "acme", append(tenants.TenantScopes(), tenants.TenantAdmin)...)
	endpoint := httptest.NewServer(http.NotFoundHandler())
	defer endpoint.Close()
	const one = "/v1/workflows/w/schedules/k"
	s.expect(t, client, token, "PUT", "/v1/endpoints/hook", fmt.Sprintf(`{"url": %q, "headers": {"X-B": "b", "X-A": "<a>"}}`, endpoint.URL), 201, "")
	s.expect(t, client, token, "PUT", one, `{"spec": {"cron": "0 8 * * *", "jitter": "10m"}, "policy": {"overlap": "allow_all"}, "delivery": {"max_attempts": 1},
		"payload": { "z" : 1.0, "a": "<&>" }, "labels": {"b": "1", "a": "2"}, "note": "é <n>"}`, 201, "")
	s.expect(t, client, token, "PUT", "/v1/workflows/w/schedules/k%20x", `{"spec": {"cron": "0 8 * * *"}}`, 201, "")
	made := s.expect(t, client, token, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:read"], "expires_at": "2090-01-01T00:00:00+02:00"}`, 201, "")
	s.expect(t, client, token, "POST", one+"/trigger", `{}`, 202, "")
	leased := s.expect(t, client, token, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "wait": "1m", "worker": "a"}`, 200, "")
	tick := leased["ticks"].([]any)[0].(map[string]any)
	failed := "/v1/ticks/" + tick["tick_id"].(string)
	s.expect(t, client, token, "POST", failed+"/fail", fmt.Sprintf(`{"lease_token": %q, "error": "<x> \u00e9", "retry": false}`, tick["lease_token"]), 204, "")
	next := s.expect(t, client, token, "GET", one, "", 200, "")["next_at"].(string)
	at, err := time.Parse(time.RFC3339Nano, next)
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().UTC().Truncate(time.Hour)
	span := fmt.Sprintf(`"from": %q, "to": %q`, past.Add(-72*time.Hour).Format(time.RFC3339), past.Format(time.RFC3339))
	keyed := http.Header{"Idempotency-Key": {"a"}, "Content-Type": {"application/json"}}
	for _, c := range []struct {
		path, body string
		status     int
		header     string // another header that the answer has
		secret     string // a member that only the first answer has
	}{
		{one + "/trigger", `{"payload": { "b" : 1.0 }}`, 202, "", ""},
		{failed + "/replay", ``, 202, "", ""},
		{one + "/reschedule", fmt.Sprintf(`{"at": %q, "to": %q}`, next, at.Add(time.Hour).Format(time.RFC3339)), 200, "ETag", ""},
		{one + "/skip", `{"count": 2}`, 200, "ETag", ""},
		{one + "/pause", `{"note": "<why>"}`, 200, "ETag", ""},
		{one + "/resume", `{"fire_once": true}`, 200, "ETag", ""},
		{one + "/backfill", `{` + span + `, "dry_run": true}`, 200, "", ""},
		{"/v1/workflows/w/schedules/k%20x/backfill", `{` + span + `}`, 202, "Location", ""},
		{"/v1/schedules/actions", `{"action": "pause", "filter": {"workflow": "other", "key_prefix": "<&>"}}`, 202, "Location", ""},
		{"/v1/admin/dead-letters/replay", `{"filter": {"workflow": "other"}}`, 202, "Location", ""},
		{"/v1/endpoints/hook/test", ``, 200, "", ""},
		{"/v1/endpoints/hook/secrets", ``, 201, "", "secret"},
		{"/v1/admin/api-keys", `{"name": "<b>", "scopes": ["schedules:read", "ticks:work"]}`, 201, "", "key"},
		{"/v1/admin/api-keys/" + made["id"].(string) + "/rotate", ``, 201, "", "key"},
		{"/v1/subjects/k/rename", `{"to": "<j>"}`, 200, "", ""},
		{"/v1/subjects/%3Cj%3E/cancel", `{"label": "none:<&>"}`, 200, "", ""},
	} {
		first, _ := s.ask(t, client, token, "POST", c.path, keyed, []byte(c.body), patience)
		again, _ := s.ask(t, client, token, "POST", c.path, keyed, []byte(c.body), patience)
		if first.status != c.status || again.status != c.status {
			t.Errorf("%s: got %d %s, then %d %s", c.path, first.status, first.body, again.status, again.body)
		}
		for header, equal := range map[string]bool{"ETag": c.header == "ETag", "Location": c.header == "Location"} {
			if is := first.header.Get(header); is != again.header.Get(header) || (is != "") != equal {
				t.Errorf("%s: got %s %q, then %q", c.path, header, is, again.header.Get(header))
			}
		}
		if first.header.Get("Idempotency-Replayed") != "" || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: the answers say that they are replayed: %v, %v", c.path, first.header, again.header)
		}
		want := string(first.body)
		if c.secret != "" {
			want = without(t, first.body, c.secret)
		}
		if string(again.body) != want {
			t.Errorf("%s: got %s, then %s, want %s", c.path, first.body, again.body, want)
		}
	}
}

// without returns a JSON object without one of its members, which must be there.
func without(t *testing.T, object []byte, member string) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil || members[member] == nil {
		t.Fatalf("%s has no %s: %v", object, member, err)
	}
	text := strings.Replace(string(object), fmt.Sprintf(",%q:%s", member, members[member]), "", 1)
	return strings.Replace(text, fmt.Sprintf("%q:%s,", member, members[member]), "", 1)
}
