package schedules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mergeJSON = "application/merge-patch+json"

func TestAPatchOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.want(201, "", "PUT", aPath, `{"spec":{"timezone":"Europe/Berlin","cron":["0 9 * * *"]},"policy":{"missed":"all","max_lateness":"2h"},`+
		`"delivery":{"retention":{"failed":"7d"}},"payload":{"z": 1, "a": {"n":1e999,"m":2}},"labels":{"plan":"pro","x":"y"},"note":"n"}`)
	same := e.want(200, "", "PATCH", aPath, `{}`, "Content-Type", mergeJSON)
	for _, nothing := range []string{
		`{"spec":{"timezone":"Europe/Berlin"}}`, `{"payload":{"a":{"m":2}}}`, `{"labels":{"none":null}}`, `{"status":"active","note":"n"}`,
		`{"status":null}`, `{"policy":{"overlap":null}}`, `{"spec":{"dst":null}}`,
	} {
		if got := e.want(200, "", "PATCH", aPath, nothing, "Content-Type", mergeJSON); got.body != same.body || got.header.Get("ETag") != `"1"` {
			t.Errorf("%s: got %s", nothing, got.body)
		}
	}
	got := e.want(200, "", "PATCH", aPath, `{"payload":{"a":{"m":null,"k":[null, 1.0]}},"labels":{"x":null,"w":"v"},"policy":{"max_lateness":null},"note":null}`, "If-Match", `"1"`)
	if !strings.Contains(got.body, `"payload":{"z":1,"a":{"n":1e999,"k":[null, 1.0]}}`) || got.header.Get("ETag") != `"2"` || got.doc["note"] != nil {
		t.Errorf("got %s", got.body)
	}
	if diff := cmp.Diff(map[string]any{"plan": "pro", "w": "v"}, got.doc["labels"]); diff != "" {
		t.Error(diff)
	}
	policy := got.doc["policy"].(map[string]any)
	if policy["missed"] != "all" || policy["max_lateness"] != "24h" || got.doc["next_at"] != same.doc["next_at"] {
		t.Errorf("got %s", got.body)
	}
	if got := e.want(200, "", "PATCH", aPath, `{"spec":{"cron":"30 9 * * *","timezone":null},"delivery":null}`); got.doc["next_at"] == same.doc["next_at"] ||
		!strings.Contains(got.body, `"spec":{"cron":["30 9 * * *"]}`) || strings.Contains(got.body, `"7d"`) {
		t.Errorf("got %s", got.body)
	}
	if got := e.want(200, "", "PATCH", aPath, `{"status":"paused","payload":null}`); got.doc["status"] != "paused" || got.doc["payload"] != nil || got.doc["next_at"] != nil {
		t.Errorf("got %s", got.body)
	}
	if got := e.want(200, "", "PATCH", aPath, `{"note":"still"}`); got.doc["status"] != "paused" {
		t.Errorf("got %s", got.body)
	}
	if got := e.want(200, "", "PATCH", aPath, `{"status":null,"payload":"x"}`); got.doc["status"] != "active" || got.doc["payload"] != "x" || got.doc["next_at"] == nil {
		t.Errorf("got %s", got.body)
	}
}

func TestFaultsOfPatches(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.want(201, "", "PUT", aPath, daily)
	for _, c := range []struct {
		status     int
		code, body string
		headers    []string
	}{
		{400, "invalid_json", "", []string{"Content-Type", mergeJSON}},
		{400, "unknown_field", `{"spcc":null}`, nil},
		{400, "unknown_field", `{"spec":{"crn":null}}`, nil},
		{400, "duplicate_member", `{"payload":{"a":1,"a":null}}`, nil},
		{422, "wrong_type", `{"spec":{"timezone":1}}`, nil},
		{422, "wrong_type", `[]`, nil},
		{422, "wrong_type", `null`, nil},
		{422, "spec_empty", `{"spec":null}`, nil},
		{422, "never_fires", `{"spec":{"end_at":"2020-01-01T00:00:00Z"}}`, nil},
		{422, "unknown_timezone", `{"spec":{"timezone":"Mars"}}`, nil},
		{422, "invalid", `{"status":"on"}`, nil},
		{412, "version_mismatch", `{}`, []string{"If-Match", `"9"`}},
		{412, "version_mismatch", `{}`, []string{"If-None-Match", `*`}},
		{415, "unsupported_media_type", `{}`, []string{"Content-Type", "application/json-patch+json"}},
		{413, "payload_too_large", `{"payload":{"a":"` + strings.Repeat("x", 70_000) + `"}}`, nil},
	} {
		e.want(c.status, c.code, "PATCH", aPath, c.body, c.headers...)
	}
	e.want(404, "not_found", "PATCH", "/v1/workflows/w/schedules/none", `{}`)
	e.want(400, "unknown_parameter", "PATCH", aPath+"?x=1", `{}`)
	e.want(403, "insufficient_scope", "PATCH", aPath, `{}`, "Authorization", "Bearer "+e.token("acme", "schedules:read"))
	if got := e.want(200, "", "GET", aPath, ""); got.header.Get("ETag") != `"1"` {
		t.Errorf("it was changed: %s", got.body)
	}
}
