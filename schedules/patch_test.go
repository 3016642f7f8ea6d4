package schedules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules/schedulestest"
)

const mergeJSON = "application/merge-patch+json"

func TestAPatchOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", schedulestest.SchedulePath, `{"spec":{"timezone":"Europe/Berlin","cron":["0 9 * * *"]},"policy":{"missed":"all","max_lateness":"2h"},`+
		`"delivery":{"retention":{"failed":"7d"}},"payload":{"z": 1, "a": {"n":1e999,"m":2}},"labels":{"plan":"pro","x":"y"},"note":"n"}`)
	same := e.Want(200, "", "PATCH", schedulestest.SchedulePath, `{}`, "Content-Type", mergeJSON)
	for _, nothing := range []string{
		`{"spec":{"timezone":"Europe/Berlin"}}`, `{"payload":{"a":{"m":2}}}`, `{"labels":{"none":null}}`, `{"status":"active","note":"n"}`,
		`{"status":null}`, `{"policy":{"overlap":null}}`, `{"spec":{"dst":null}}`,
	} {
		if got := e.Want(200, "", "PATCH", schedulestest.SchedulePath, nothing, "Content-Type", mergeJSON); got.Body != same.Body || got.Header.Get("ETag") != `"1"` {
			t.Errorf("%s: got %s", nothing, got.Body)
		}
	}
	got := e.Want(200, "", "PATCH", schedulestest.SchedulePath, `{"payload":{"a":{"m":null,"k":[null, 1.0]}},"labels":{"x":null,"w":"v"},"policy":{"max_lateness":null},"note":null}`, "If-Match", `"1"`)
	if !strings.Contains(got.Body, `"payload":{"z":1,"a":{"n":1e999,"k":[null, 1.0]}}`) || got.Header.Get("ETag") != `"2"` || got.Doc["note"] != nil {
		t.Errorf("got %s", got.Body)
	}
	if diff := cmp.Diff(map[string]any{"plan": "pro", "w": "v"}, got.Doc["labels"]); diff != "" {
		t.Error(diff)
	}
	policy := got.Doc["policy"].(map[string]any)
	if policy["missed"] != "all" || policy["max_lateness"] != "24h" || got.Doc["next_at"] != same.Doc["next_at"] {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(200, "", "PATCH", schedulestest.SchedulePath, `{"spec":{"cron":"30 9 * * *","timezone":null},"delivery":null}`); got.Doc["next_at"] == same.Doc["next_at"] ||
		!strings.Contains(got.Body, `"spec":{"cron":["30 9 * * *"]}`) || strings.Contains(got.Body, `"7d"`) {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(200, "", "PATCH", schedulestest.SchedulePath, `{"status":"paused","payload":null}`); got.Doc["status"] != "paused" || got.Doc["payload"] != nil || got.Doc["next_at"] != nil {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(200, "", "PATCH", schedulestest.SchedulePath, `{"note":"still"}`); got.Doc["status"] != "paused" {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(200, "", "PATCH", schedulestest.SchedulePath, `{"status":null,"payload":"x"}`); got.Doc["status"] != "active" || got.Doc["payload"] != "x" || got.Doc["next_at"] == nil {
		t.Errorf("got %s", got.Body)
	}
}

func TestFaultsOfPatches(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody)
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
		e.Want(c.status, c.code, "PATCH", schedulestest.SchedulePath, c.body, c.headers...)
	}
	e.Want(404, "not_found", "PATCH", "/v1/workflows/w/schedules/none", `{}`)
	e.Want(400, "unknown_parameter", "PATCH", schedulestest.SchedulePath+"?x=1", `{}`)
	e.Want(403, "insufficient_scope", "PATCH", schedulestest.SchedulePath, `{}`, "Authorization", "Bearer "+e.Token("acme", "schedules:read"))
	if got := e.Want(200, "", "GET", schedulestest.SchedulePath, ""); got.Header.Get("ETag") != `"1"` {
		t.Errorf("it was changed: %s", got.Body)
	}
}
