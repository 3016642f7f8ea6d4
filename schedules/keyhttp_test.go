package schedules_test

import (
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

const keyPath = "/v1/keys/user%2F1"

func TestAProfileOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.want(404, "not_found", "GET", keyPath, "")
	made := e.want(201, "", "PUT", keyPath, `{"timezone":"Europe/Berlin","quiet_hours":{"from":"22:00","to":"07:00"}}`, "If-None-Match", "*")
	if made.header.Get("ETag") != `"1"` || made.doc["key"] != "user/1" || made.doc["quiet_hours"].(map[string]any)["then"] != "defer" {
		t.Errorf("got %v %s", made.header, made.body)
	}
	if got := e.want(200, "", "GET", keyPath, ""); got.body != made.body || got.header.Get("ETag") != `"1"` {
		t.Errorf("got %s", got.body)
	}
	if same := e.want(200, "", "PUT", keyPath, `{"timezone":"Europe/Berlin","quiet_hours":{"from":"22:00","to":"07:00","then":"defer"}}`); same.body != made.body {
		t.Errorf("got %s", same.body)
	}
	path := "/v1/workflows/w/schedules/user%2F1"
	e.want(201, "", "PUT", path, `{"spec":{"timezone":"@key","cron":"0 8 * * *"}}`)
	before := e.want(200, "", "GET", path, "")
	if got := e.want(200, "", "PUT", keyPath, `{"timezone":"Asia/Tokyo","quiet_hours":null}`, "If-Match", `"1"`); got.header.Get("ETag") != `"2"` || got.doc["quiet_hours"] != nil {
		t.Errorf("got %v %s", got.header, got.body)
	}
	if after := e.want(200, "", "GET", path, ""); after.doc["next_at"] == before.doc["next_at"] || after.header.Get("ETag") != before.header.Get("ETag") {
		t.Errorf("before %s, after %s", before.body, after.body)
	}
	if up := e.want(200, "", "GET", path+"/upcoming?count=1", ""); !strings.Contains(up.body, "T08:00:00+09:00") {
		t.Errorf("got %s", up.body)
	}
	e.want(201, "", "PUT", "/v1/keys/a", `{"timezone":"UTC"}`)
	e.want(201, "", "PUT", "/v1/keys/user%2F2", `{"timezone":"UTC","quiet_hours":{"from":"00:00","to":"23:59","then":"skip"}}`)
	page := e.want(200, "", "GET", "/v1/keys?limit=1&key_prefix=user%2F", "")
	cursor, _ := page.doc["next_cursor"].(string)
	last := e.want(200, "", "GET", "/v1/keys?limit=1&key_prefix=user%2F&cursor="+cursor, "")
	if !strings.Contains(page.body, `"key":"user/1"`) || !strings.Contains(last.body, `"key":"user/2"`) || last.doc["next_cursor"] != nil {
		t.Errorf("got %s, then %s", page.body, last.body)
	}
	if all := e.want(200, "", "GET", "/v1/keys", ""); len(all.doc["items"].([]any)) != 3 {
		t.Errorf("got %s", all.body)
	}
	if others := e.want(200, "", "GET", "/v1/keys", "", "Authorization", "Bearer "+e.token("other", tenants.SchedulesRead)); others.body != `{"items":[],"next_cursor":null}` {
		t.Errorf("another tenant got %s", others.body)
	}
	e.want(404, "not_found", "GET", keyPath, "", "Authorization", "Bearer "+e.token("other", tenants.SchedulesRead))
}

func TestFaultsOfKeysOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.want(201, "", "PUT", keyPath, `{"timezone":"Europe/Berlin"}`)
	for _, c := range []struct {
		status             int
		code, method, path string
		body               string
		headers            []string
	}{
		{422, "unknown_timezone", "PUT", keyPath, `{"timezone":"Amerika/New_York"}`, nil},
		{422, "unknown_timezone", "PUT", keyPath, `{"timezone":"EST"}`, nil},
		{422, "unknown_timezone", "PUT", keyPath, `{"timezone":"+02:00"}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"@key"}`, nil},
		{422, "invalid", "PUT", keyPath, `{}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"22:00","to":"22:00"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"24:00","to":"07:00"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"7:00","to":"08:00"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"22:00","to":"07:00","then":"drop"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{}}`, nil},
		{400, "unknown_field", "PUT", keyPath, `{"timezone":"UTC","zone":"UTC"}`, nil},
		{400, "invalid_json", "PUT", keyPath, `{`, nil},
		{415, "unsupported_media_type", "PUT", keyPath, `{}`, []string{"Content-Type", "text/plain"}},
		{412, "version_mismatch", "PUT", keyPath, `{"timezone":"UTC"}`, []string{"If-Match", `"9"`}},
		{412, "version_mismatch", "PUT", keyPath, `{"timezone":"UTC"}`, []string{"If-None-Match", `*`}},
		{422, "invalid", "PUT", "/v1/keys/" + strings.Repeat("x", 257), `{"timezone":"UTC"}`, nil},
		{422, "invalid", "PUT", "/v1/keys/a%0Ab", `{"timezone":"UTC"}`, nil},
		{422, "invalid", "DELETE", "/v1/keys/" + strings.Repeat("x", 257), ``, nil},
		{422, "invalid", "POST", "/v1/keys/" + strings.Repeat("x", 257) + "/rename", `{"to":"b"}`, nil},
		{422, "invalid", "POST", keyPath + "/rename", `{"to":""}`, nil},
		{422, "invalid", "POST", keyPath + "/rename", `{"to":"` + strings.Repeat("x", 257) + `"}`, nil},
		{422, "invalid", "POST", keyPath + "/rename", `{"to":"user/1"}`, nil},
		{404, "not_found", "POST", "/v1/keys/nobody/rename", `{"to":"b"}`, nil},
		{422, "invalid", "GET", "/v1/keys?key_prefix=", ``, nil},
		{422, "invalid", "GET", "/v1/keys?limit=0", ``, nil},
		{422, "invalid_cursor", "GET", "/v1/keys?cursor=x", ``, nil},
		{400, "unknown_parameter", "GET", "/v1/keys?x=1", ``, nil},
		{422, "no_key_zone", "POST", "/v1/schedules/preview", `{"spec":{"timezone":"@key","cron":"0 8 * * *"}}`, nil},
		{422, "no_key_zone", "PUT", "/v1/workflows/w/schedules/b", `{"spec":{"timezone":"@key","cron":"0 8 * * *"}}`, nil},
	} {
		e.want(c.status, c.code, c.method, c.path, c.body, c.headers...)
	}
	for _, scope := range []struct{ method, path, scope string }{
		{"GET", "/v1/keys", tenants.SchedulesWrite}, {"GET", keyPath, tenants.SchedulesWrite}, {"PUT", keyPath, tenants.SchedulesRead},
		{"DELETE", keyPath, tenants.SchedulesRead}, {"DELETE", keyPath, tenants.SchedulesWrite}, {"PUT", keyPath, tenants.SubjectsErase}, {"POST", keyPath + "/rename", tenants.SchedulesRead},
	} {
		e.want(403, "insufficient_scope", scope.method, scope.path, `{}`, "Authorization", "Bearer "+e.token("acme", scope.scope))
	}
}

func TestAKeyIsErasedOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.want(201, "", "PUT", keyPath, `{"timezone":"Europe/Berlin"}`)
	for _, workflow := range []string{"w", "w2", "gone"} {
		path := "/v1/workflows/" + workflow + "/schedules/user%2F1"
		e.want(201, "", "PUT", path, `{"spec":{"timezone":"@key","cron":"0 8 * * *"},"labels":{"plan":"pro"},"note":"ann's"}`)
		e.want(200, "", "PUT", path, `{"spec":{"timezone":"@key","cron":"0 9 * * *"},"labels":{"plan":"pro"}}`)
		e.want(200, "", "POST", path+"/pause", "", "Idempotency-Key", "k")
	}
	e.want(204, "", "DELETE", "/v1/workflows/gone/schedules/user%2F1", "")
	e.want(204, "", "DELETE", "/v1/workflows/gone", "")
	e.want(201, "", "PUT", "/v1/workflows/w/schedules/user", daily)
	e.want(200, "", "POST", "/v1/workflows/w/schedules/user/pause", "", "Idempotency-Key", "k")
	got := e.want(200, "", "DELETE", keyPath, "")
	counts, _ := got.doc["counts"].(map[string]any)
	for what, want := range map[string]string{"profiles": "1", "schedules": "2", "revisions": "7", "answers": "3", "ticks": "0", "attempts": "0"} {
		if n, _ := counts[what].(interface{ String() string }); n == nil || n.String() != want {
			t.Errorf("%s: got %v, want %s", what, counts[what], want)
		}
	}
	if got.doc["erased_by"] != "ann" {
		t.Errorf("got %s", got.body)
	}
	e.want(404, "not_found", "GET", keyPath, "")
	for _, workflow := range []string{"w", "w2", "gone"} {
		e.want(404, "not_found", "GET", "/v1/workflows/"+workflow+"/schedules/user%2F1", "")
		e.want(404, "not_found", "GET", "/v1/workflows/"+workflow+"/schedules/user%2F1/revisions", "")
	}
	e.want(200, "", "GET", "/v1/workflows/w/schedules/user", "")
	again := e.want(200, "", "DELETE", keyPath, "")
	if again.doc["key_hash"] != got.doc["key_hash"] {
		t.Errorf("the receipts of one key differ: %s, %s", got.body, again.body)
	}
	if others := e.want(200, "", "DELETE", keyPath, "", "Authorization", "Bearer "+e.token("other", tenants.SubjectsErase)); others.doc["key_hash"] == got.doc["key_hash"] {
		t.Error("two tenants' keys have one hash")
	}
	for _, table := range []string{"schedule", "schedule_state", "revision", "key_profile", "label", "member", "idempotency", "erasure"} {
		if n := one[int](e.home, `SELECT count(*)::int FROM `+table+` t WHERE t::text LIKE '%user/1%' OR t::text LIKE '%user\%2F1%'`); n != 0 {
			t.Errorf("%s has %d rows of the key", table, n)
		}
	}
	if n := one[int](e.home, `SELECT count(*)::int FROM member`); n != 0 {
		t.Errorf("%d members are left", n)
	}
	e.want(201, "", "PUT", "/v1/workflows/w/schedules/user%2F1", daily)
}

func TestAKeyIsRenamedOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	const hashed = `{"spec":{"timezone":"@key","cron":"H H * * *","jitter":"1h"},"labels":{"plan":"pro"}}`
	e.want(201, "", "PUT", keyPath, `{"timezone":"Europe/Berlin"}`)
	made := e.want(201, "", "PUT", "/v1/workflows/w/schedules/user%2F1", hashed)
	e.want(201, "", "PUT", "/v1/workflows/w2/schedules/user%2F1", daily)
	e.want(201, "", "PUT", "/v1/workflows/gone/schedules/user%2F1", daily)
	e.want(204, "", "DELETE", "/v1/workflows/gone/schedules/user%2F1", "")
	spread := one[int64](e.home, `SELECT phase FROM schedule WHERE workflow = 'w'`)
	e.want(201, "", "PUT", "/v1/workflows/w2/schedules/taken", daily)
	e.want(409, "key_in_use", "POST", keyPath+"/rename", `{"to":"taken"}`)
	e.want(201, "", "PUT", "/v1/keys/known", `{"timezone":"UTC"}`)
	e.want(409, "profile_in_use", "POST", keyPath+"/rename", `{"to":"known"}`)
	e.want(404, "not_found", "POST", keyPath+"/rename", `{"to":"b"}`, "Authorization", "Bearer "+e.token("other", tenants.SchedulesWrite))
	done := e.want(200, "", "POST", keyPath+"/rename", `{"to":"b"}`, "Idempotency-Key", "k")
	if again := e.want(200, "", "POST", keyPath+"/rename", `{"to":"b"}`, "Idempotency-Key", "k"); again.body != done.body || done.body != `{"key":"b","schedules":2,"profile":true}` {
		t.Errorf("got %s, then %s", done.body, again.body)
	}
	e.want(422, "idempotency_key_reused", "POST", keyPath+"/rename", `{"to":"c"}`, "Idempotency-Key", "k")
	e.want(404, "not_found", "GET", keyPath, "")
	e.want(404, "not_found", "GET", "/v1/workflows/w/schedules/user%2F1", "")
	e.want(200, "", "GET", "/v1/keys/b", "")
	e.want(200, "", "GET", "/v1/workflows/gone/schedules/b/revisions", "")
	if list := e.want(200, "", "GET", "/v1/schedules?label=plan:pro", ""); !strings.Contains(list.body, `"key":"b"`) {
		t.Errorf("got %s", list.body)
	}
	const path = "/v1/workflows/w/schedules/b"
	if got := e.want(200, "", "GET", path, ""); got.doc["id"] != made.doc["id"] || got.doc["next_at"] != made.doc["next_at"] || got.header.Get("ETag") != `"1"` {
		t.Errorf("made %s, renamed %s", made.body, got.body)
	}
	same := func(what string) {
		t.Helper()
		if got := e.want(200, "", "GET", path, ""); got.doc["next_at"] != made.doc["next_at"] {
			t.Errorf("%s moved it from %v to %v", what, made.doc["next_at"], got.doc["next_at"])
		}
		if now := one[int64](e.home, `SELECT phase FROM schedule WHERE workflow = 'w'`); now != spread {
			t.Errorf("%s moved its jitter", what)
		}
	}
	e.want(200, "", "POST", path+"/pause", "")
	e.want(200, "", "POST", path+"/resume", "")
	same("a pause")
	e.want(200, "", "PUT", path, `{"spec":{"timezone":"Europe/Berlin","cron":"H H * * *","jitter":"1h"}}`)
	same("an upsert")
	if a := e.ask("POST", "/v1/schedules/bulk", `{"workflow":"w","key":"b","spec":{"timezone":"@key","cron":"H H * * *","jitter":"1h"}}`, "Content-Type", "application/x-ndjson"); !strings.Contains(a.body, `"updated"`) {
		t.Errorf("got %s", a.body)
	}
	same("a bulk upsert")
	e.want(200, "", "POST", "/v1/keys/b/rename", `{"to":"user/1"}`)
	if n := one[int](e.home, `SELECT count(*)::int FROM schedule WHERE hashed_as IS NOT NULL`); n != 0 {
		t.Error("one that has its first name again is hashed by another")
	}
}
