package subjects_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

const keyPath = "/v1/subjects/user%2F1"

func TestAProfileOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(404, "not_found", "GET", keyPath, "")
	made := e.Want(201, "", "PUT", keyPath, `{"timezone":"Europe/Berlin","quiet_hours":{"from":"22:00","to":"07:00"}}`, "If-None-Match", "*")
	if made.Header.Get("ETag") != `"1"` || made.Doc["subject"] != "user/1" || made.Doc["quiet_hours"].(map[string]any)["then"] != "defer" {
		t.Errorf("got %v %s", made.Header, made.Body)
	}
	if got := e.Want(200, "", "GET", keyPath, ""); got.Body != made.Body || got.Header.Get("ETag") != `"1"` {
		t.Errorf("got %s", got.Body)
	}
	if same := e.Want(200, "", "PUT", keyPath, `{"timezone":"Europe/Berlin","quiet_hours":{"from":"22:00","to":"07:00","then":"defer"}}`); same.Body != made.Body {
		t.Errorf("got %s", same.Body)
	}
	path := "/v1/workflows/w/schedules/user%2F1"
	e.Want(201, "", "PUT", path, `{"spec":{"timezone":"@subject","cron":"0 8 * * *"}}`)
	before := e.Want(200, "", "GET", path, "")
	if got := e.Want(200, "", "PUT", keyPath, `{"timezone":"Asia/Tokyo","quiet_hours":null}`, "If-Match", `"1"`); got.Header.Get("ETag") != `"2"` || got.Doc["quiet_hours"] != nil {
		t.Errorf("got %v %s", got.Header, got.Body)
	}
	if after := e.Want(200, "", "GET", path, ""); after.Doc["next_at"] == before.Doc["next_at"] || after.Header.Get("ETag") != before.Header.Get("ETag") {
		t.Errorf("before %s, after %s", before.Body, after.Body)
	}
	if up := e.Want(200, "", "GET", path+"/upcoming?count=1", ""); !strings.Contains(up.Body, "T08:00:00+09:00") {
		t.Errorf("got %s", up.Body)
	}
	e.Want(201, "", "PUT", "/v1/subjects/a", `{"timezone":"UTC"}`)
	e.Want(201, "", "PUT", "/v1/subjects/user%2F2", `{"timezone":"UTC","quiet_hours":{"from":"00:00","to":"23:59","then":"skip"}}`)
	page := e.Want(200, "", "GET", "/v1/subjects?limit=1&subject_prefix=user%2F", "")
	cursor, _ := page.Doc["next_cursor"].(string)
	last := e.Want(200, "", "GET", "/v1/subjects?limit=1&subject_prefix=user%2F&cursor="+cursor, "")
	if !strings.Contains(page.Body, `"subject":"user/1"`) || !strings.Contains(last.Body, `"subject":"user/2"`) || last.Doc["next_cursor"] != nil {
		t.Errorf("got %s, then %s", page.Body, last.Body)
	}
	if all := e.Want(200, "", "GET", "/v1/subjects", ""); len(all.Doc["items"].([]any)) != 3 {
		t.Errorf("got %s", all.Body)
	}
	if others := e.Want(200, "", "GET", "/v1/subjects", "", "Authorization", "Bearer "+e.Token("other", tenants.SchedulesRead)); others.Body != `{"items":[],"next_cursor":null}` {
		t.Errorf("another tenant got %s", others.Body)
	}
	e.Want(404, "not_found", "GET", keyPath, "", "Authorization", "Bearer "+e.Token("other", tenants.SchedulesRead))
}

func TestFaultsOfKeysOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", keyPath, `{"timezone":"Europe/Berlin"}`)
	for _, c := range []struct {
		status             int
		code, method, path string
		body               string
		headers            []string
	}{
		{422, "unknown_timezone", "PUT", keyPath, `{"timezone":"Amerika/New_York"}`, nil},
		{422, "unknown_timezone", "PUT", keyPath, `{"timezone":"EST"}`, nil},
		{422, "unknown_timezone", "PUT", keyPath, `{"timezone":"+02:00"}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"@subject"}`, nil},
		{422, "invalid", "PUT", keyPath, `{}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"22:00","to":"22:00"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"24:00","to":"07:00"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"7:00","to":"08:00"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"22:00","to":"07:00","then":"drop"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":[{"from":"22:00","to":"07:00"},{"from":"07:00","to":"22:00","then":"skip"}]}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"22:00","to":"07:00","days":"8"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"00:00","to":"24:00"}}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":[` + strings.Repeat(`{"from":"22:00","to":"07:00"},`, 16) + `{"from":"22:00","to":"07:00"}]}`, nil},
		{400, "unknown_field", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":[{"from":"22:00","to":"07:00","day":"1"}]}`, nil},
		{422, "invalid", "PUT", keyPath, `{"timezone":"UTC","labels":{"a b":"c"}}`, nil},
		{400, "unknown_field", "PUT", keyPath, `{"timezone":"UTC","zone":"UTC"}`, nil},
		{400, "invalid_json", "PUT", keyPath, `{`, nil},
		{415, "unsupported_media_type", "PUT", keyPath, `{}`, []string{"Content-Type", "text/plain"}},
		{412, "version_mismatch", "PUT", keyPath, `{"timezone":"UTC"}`, []string{"If-Match", `"9"`}},
		{412, "version_mismatch", "PUT", keyPath, `{"timezone":"UTC"}`, []string{"If-None-Match", `*`}},
		{422, "invalid", "PUT", "/v1/subjects/" + strings.Repeat("x", 257), `{"timezone":"UTC"}`, nil},
		{422, "invalid", "PUT", "/v1/subjects/a%0Ab", `{"timezone":"UTC"}`, nil},
		{422, "invalid", "DELETE", "/v1/subjects/" + strings.Repeat("x", 257), ``, nil},
		{422, "invalid", "POST", "/v1/subjects/" + strings.Repeat("x", 257) + "/rename", `{"to":"b"}`, nil},
		{422, "invalid", "POST", keyPath + "/rename", `{"to":""}`, nil},
		{422, "invalid", "POST", keyPath + "/rename", `{"to":"` + strings.Repeat("x", 257) + `"}`, nil},
		{422, "invalid", "POST", keyPath + "/rename", `{"to":"user/1"}`, nil},
		{404, "not_found", "POST", "/v1/subjects/nobody/rename", `{"to":"b"}`, nil},
		{422, "invalid", "POST", "/v1/subjects/" + strings.Repeat("x", 257) + "/cancel", ``, nil},
		{422, "invalid", "POST", keyPath + "/cancel", `{"workflow":"a/b"}`, nil},
		{422, "invalid", "POST", keyPath + "/cancel", `{"label":"plan"}`, nil},
		{400, "unknown_field", "POST", keyPath + "/cancel", `{"key":"a"}`, nil},
		{422, "invalid", "GET", "/v1/subjects?subject_prefix=", ``, nil},
		{422, "invalid", "GET", "/v1/subjects?limit=0", ``, nil},
		{422, "invalid_cursor", "GET", "/v1/subjects?cursor=x", ``, nil},
		{400, "unknown_parameter", "GET", "/v1/subjects?x=1", ``, nil},
		{422, "no_subject_zone", "POST", "/v1/schedules/preview", `{"spec":{"timezone":"@subject","cron":"0 8 * * *"}}`, nil},
		{422, "no_subject_zone", "PUT", "/v1/workflows/w/schedules/b", `{"spec":{"timezone":"@subject","cron":"0 8 * * *"}}`, nil},
	} {
		e.Want(c.status, c.code, c.method, c.path, c.body, c.headers...)
	}
	for _, scope := range []struct{ method, path, scope string }{
		{"GET", "/v1/subjects", tenants.SchedulesWrite}, {"GET", keyPath, tenants.SchedulesWrite}, {"PUT", keyPath, tenants.SchedulesRead},
		{"DELETE", keyPath, tenants.SchedulesRead}, {"DELETE", keyPath, tenants.SchedulesWrite}, {"PUT", keyPath, tenants.SubjectsErase}, {"POST", keyPath + "/rename", tenants.SchedulesRead},
	} {
		e.Want(403, "insufficient_scope", scope.method, scope.path, `{}`, "Authorization", "Bearer "+e.Token("acme", scope.scope))
	}
}

func TestAKeyIsErasedOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", keyPath, `{"timezone":"Europe/Berlin"}`)
	for _, workflow := range []string{"w", "w2", "gone"} {
		path := "/v1/workflows/" + workflow + "/schedules/user%2F1"
		e.Want(201, "", "PUT", path, `{"spec":{"timezone":"@subject","cron":"0 8 * * *"},"labels":{"plan":"pro"},"note":"ann's"}`)
		e.Want(200, "", "PUT", path, `{"spec":{"timezone":"@subject","cron":"0 9 * * *"},"labels":{"plan":"pro"}}`)
		e.Want(200, "", "POST", path+"/pause", "", "Idempotency-Key", "k")
	}
	e.Want(204, "", "DELETE", "/v1/workflows/gone/schedules/user%2F1", "")
	e.Want(204, "", "DELETE", "/v1/workflows/gone", "")
	e.Want(201, "", "PUT", "/v1/workflows/w/schedules/user", schedulestest.DailyBody)
	e.Want(200, "", "POST", "/v1/workflows/w/schedules/user/pause", "", "Idempotency-Key", "k")
	got := e.Want(200, "", "DELETE", keyPath, "")
	counts, _ := got.Doc["counts"].(map[string]any)
	for what, want := range map[string]string{"profiles": "1", "schedules": "2", "revisions": "7", "answers": "3", "ticks": "0", "attempts": "0"} {
		if n, _ := counts[what].(interface{ String() string }); n == nil || n.String() != want {
			t.Errorf("%s: got %v, want %s", what, counts[what], want)
		}
	}
	if got.Doc["erased_by"] != "ann" {
		t.Errorf("got %s", got.Body)
	}
	e.Want(404, "not_found", "GET", keyPath, "")
	for _, workflow := range []string{"w", "w2", "gone"} {
		e.Want(404, "not_found", "GET", "/v1/workflows/"+workflow+"/schedules/user%2F1", "")
		e.Want(404, "not_found", "GET", "/v1/workflows/"+workflow+"/schedules/user%2F1/revisions", "")
	}
	e.Want(200, "", "GET", "/v1/workflows/w/schedules/user", "")
	again := e.Want(200, "", "DELETE", keyPath, "")
	if again.Doc["subject_hash"] != got.Doc["subject_hash"] {
		t.Errorf("the receipts of one key differ: %s, %s", got.Body, again.Body)
	}
	if others := e.Want(200, "", "DELETE", keyPath, "", "Authorization", "Bearer "+e.Token("other", tenants.SubjectsErase)); others.Doc["subject_hash"] == got.Doc["subject_hash"] {
		t.Error("two tenants' keys have one hash")
	}
	for _, table := range []string{"schedule", "schedule_state", "revision", "subject_profile", "label", "member", "idempotency", "erasure"} {
		if n := schedulestest.One[int](e.Fixture, `SELECT count(*)::int FROM `+table+` t WHERE t::text LIKE '%user/1%' OR t::text LIKE '%user\%2F1%'`); n != 0 {
			t.Errorf("%s has %d rows of the key", table, n)
		}
	}
	if n := schedulestest.One[int](e.Fixture, `SELECT count(*)::int FROM member`); n != 0 {
		t.Errorf("%d members are left", n)
	}
	e.Want(201, "", "PUT", "/v1/workflows/w/schedules/user%2F1", schedulestest.DailyBody)
}

func TestASubjectIsRenamedOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const hashed = `{"spec":{"timezone":"@subject","cron":"H H * * *","jitter":"1h"},"labels":{"plan":"pro"}}`
	e.Want(201, "", "PUT", keyPath, `{"timezone":"Europe/Berlin"}`)
	made := e.Want(201, "", "PUT", "/v1/workflows/w/schedules/user%2F1", hashed)
	e.Want(201, "", "PUT", "/v1/workflows/w/schedules/user%2F1%2Fevening", `{"subject":"user/1",`+schedulestest.DailyBody[1:])
	e.Want(201, "", "PUT", "/v1/workflows/gone/schedules/user%2F1", schedulestest.DailyBody)
	e.Want(204, "", "DELETE", "/v1/workflows/gone/schedules/user%2F1", "")
	e.Want(201, "", "PUT", "/v1/workflows/w2/schedules/taken", schedulestest.DailyBody)
	e.Want(409, "subject_in_use", "POST", keyPath+"/rename", `{"to":"taken"}`)
	e.Want(201, "", "PUT", "/v1/workflows/w2/schedules/k", `{"subject":"other",`+schedulestest.DailyBody[1:])
	e.Want(409, "subject_in_use", "POST", keyPath+"/rename", `{"to":"other"}`)
	e.Want(201, "", "PUT", "/v1/subjects/known", `{"timezone":"UTC"}`)
	e.Want(409, "subject_in_use", "POST", keyPath+"/rename", `{"to":"known"}`)
	e.Want(404, "not_found", "POST", keyPath+"/rename", `{"to":"b"}`, "Authorization", "Bearer "+e.Token("other", tenants.SchedulesWrite))
	done := e.Want(200, "", "POST", keyPath+"/rename", `{"to":"b"}`, "Idempotency-Key", "k")
	if again := e.Want(200, "", "POST", keyPath+"/rename", `{"to":"b"}`, "Idempotency-Key", "k"); again.Body != done.Body || done.Body != `{"subject":"b","schedules":2,"profile":true}` {
		t.Errorf("got %s, then %s", done.Body, again.Body)
	}
	e.Want(422, "idempotency_key_reused", "POST", keyPath+"/rename", `{"to":"c"}`, "Idempotency-Key", "k")
	e.Want(404, "not_found", "GET", keyPath, "")
	e.Want(200, "", "GET", "/v1/subjects/b", "")
	if got := e.Want(200, "", "GET", "/v1/workflows/gone/schedules/user%2F1/revisions", ""); !strings.Contains(got.Body, `"subject":"b"`) {
		t.Errorf("got %s", got.Body)
	}
	const path = "/v1/workflows/w/schedules/user%2F1"
	got := e.Want(200, "", "GET", path, "")
	if got.Doc["id"] != made.Doc["id"] || got.Doc["next_at"] != made.Doc["next_at"] || got.Doc["subject"] != "b" || got.Header.Get("ETag") != `"1"` {
		t.Errorf("made %s, renamed %s", made.Body, got.Body)
	}
	if moved := e.Want(200, "", "PUT", "/v1/subjects/b", `{"timezone":"Asia/Tokyo"}`); moved.Doc["timezone"] != "Asia/Tokyo" {
		t.Errorf("got %s", moved.Body)
	}
	if now := e.Want(200, "", "GET", path, ""); now.Doc["next_at"] == made.Doc["next_at"] {
		t.Error("the schedule does not follow the new name")
	}
	e.Want(200, "", "POST", "/v1/subjects/b/rename", `{"to":"user/1"}`)
	if n := schedulestest.One[int](e.Fixture, `SELECT count(*)::int FROM schedule WHERE subject = key`); n != 0 {
		t.Errorf("%d schedules store a subject that is their key", n)
	}
}

// One subject has schedules of several keys under one profile.
func TestASubjectHasManySchedules(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const at, morning, evening = `{"timezone":"Asia/Tokyo"}`, "/v1/workflows/w/schedules/u%2Fmorning", "/v1/workflows/w2/schedules/u%2Fevening"
	e.Want(201, "", "PUT", "/v1/subjects/u", at)
	e.Want(422, "no_subject_zone", "PUT", morning, `{"spec":{"timezone":"@subject","cron":"0 8 * * *"}}`)
	e.Want(422, "invalid", "PUT", morning, `{"subject":"`+strings.Repeat("x", 257)+`","spec":{"cron":"0 8 * * *"}}`)
	first := e.Want(201, "", "PUT", morning, `{"subject":"u","spec":{"timezone":"@subject","cron":"0 8 * * *"}}`)
	e.Want(201, "", "PUT", evening, `{"spec":{"timezone":"UTC","cron":"0 20 * * *"}}`)
	e.Want(422, "no_subject_zone", "PATCH", evening, `{"spec":{"timezone":"@subject"}}`)
	second := e.Want(200, "", "PATCH", evening, `{"subject":"u","spec":{"timezone":"@subject"}}`)
	if hour := second.Doc["next_at"].(string)[11:]; first.Doc["subject"] != "u" || second.Doc["subject"] != "u" || hour != "11:00:00Z" {
		t.Errorf("got %s and %s", first.Body, second.Body)
	}
	e.Want(200, "", "PUT", "/v1/subjects/u", `{"timezone":"America/Los_Angeles"}`)
	for path, was := range map[string]any{morning: first.Doc["next_at"], evening: second.Doc["next_at"]} {
		if got := e.Want(200, "", "GET", path, ""); got.Doc["next_at"] == was {
			t.Errorf("%s was not retimed: %s", path, got.Body)
		}
	}
	e.Want(422, "no_subject_zone", "PATCH", evening, `{"subject":null}`)
	if line := e.Ask("POST", "/v1/schedules/bulk", `{"workflow":"w","key":"u/morning","subject":"u","spec":{"timezone":"@subject","cron":"0 8 * * *"}}`, "Content-Type", "application/x-ndjson"); !strings.Contains(line.Body, `"unchanged"`) {
		t.Errorf("got %s", line.Body)
	}
	if lines := e.Want(200, "", "GET", "/v1/schedules/export", ""); strings.Count(lines.Body, `"subject":"u"`) != 2 {
		t.Errorf("got %s", lines.Body)
	}
	e.Want(200, "", "DELETE", "/v1/subjects/u", "")
	for _, path := range []string{morning, evening} {
		e.Want(404, "not_found", "GET", path, "")
	}
}

// A profile has several windows of quiet hours by weekday, and labels. They are shown as they were put.
func TestAProfileHasWindowsAndLabels(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	body := `{"timezone":"UTC","quiet_hours":[{"from":"22:00","to":"07:00","then":"defer"},{"from":"00:00","to":"24:00","then":"skip","days":"0"}],"labels":{"plan":"pro"}}`
	e.Want(201, "", "PUT", keyPath, body)
	same := e.Want(200, "", "PUT", keyPath, body)
	if windows := same.Doc["quiet_hours"].([]any); len(windows) != 2 || !strings.Contains(same.Body, `"version":1,`) || same.Doc["labels"].(map[string]any)["plan"] != "pro" {
		t.Errorf("got %s", same.Body)
	}
	e.Want(201, "", "PUT", "/v1/workflows/w/schedules/k", `{"subject":"user/1","spec":{"timezone":"@subject","cron":"0 8 * * *"}}`)
	before := e.Want(200, "", "GET", "/v1/workflows/w/schedules/k", "")
	if relabelled := e.Want(200, "", "PUT", keyPath, strings.Replace(body, "pro", "free", 1)); !strings.Contains(relabelled.Body, `"version":2,`) {
		t.Errorf("got %s", relabelled.Body)
	}
	if after := e.Want(200, "", "GET", "/v1/workflows/w/schedules/k", ""); after.Body != before.Body {
		t.Errorf("a label of a profile changes a schedule from %s to %s", before.Body, after.Body)
	}
	one := e.Want(200, "", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"22:00","to":"07:00","days":"1-5"}}`)
	if window := one.Doc["quiet_hours"].(map[string]any); window["days"] != "1-5" || window["then"] != "defer" || len(one.Doc["labels"].(map[string]any)) != 0 {
		t.Errorf("got %s", one.Body)
	}
	for days, shown := range map[string]string{"sat,sun": "0,6", "MON": "1", "5-1": "0,1,5,6", "2,4-6": "2,4-6", "0-3,5": "0-3,5", "1,2": "1,2"} {
		got := e.Want(200, "", "PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"22:00","to":"07:00","days":"`+days+`"}}`)
		if window := got.Doc["quiet_hours"].(map[string]any); window["days"] != shown {
			t.Errorf("%s is shown as %v, want %s", days, window["days"], shown)
		}
	}
	if a := e.Ask("PUT", keyPath, `{"timezone":"UTC","quiet_hours":[{"from":"22:00","to":"07:00"},{"from":"x","to":"07:00"}]}`); !strings.Contains(a.Body, `"/quiet_hours/1/from"`) {
		t.Errorf("got %s", a.Body)
	}
	if a := e.Ask("PUT", keyPath, `{"timezone":"UTC","quiet_hours":{"from":"22:00","to":"07:00","day":1}}`); !strings.Contains(a.Body, `"/quiet_hours/day"`) {
		t.Errorf("got %s", a.Body)
	}
}

// A preview shows what H and @subject will be for a schedule.
func TestAPreviewIsThatOfTheSchedule(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", "/v1/subjects/u", `{"timezone":"Asia/Tokyo"}`)
	for _, c := range []struct{ key, subject, spec string }{
		{"u", "", `{"timezone":"@subject","cron":"0 8 * * *"}`}, {"u/1", "u", `{"timezone":"@subject","cron":"H H * * *"}`}, {"v", "", `{"cron":"H H * * *"}`},
	} {
		names := fmt.Sprintf(`"key":%q,`, c.key)
		more := ""
		if c.subject != "" {
			more = fmt.Sprintf(`"subject":%q,`, c.subject)
		}
		previewed := e.Want(200, "", "POST", "/v1/schedules/preview", `{"workflow":"w",`+names+more+`"spec":`+c.spec+`}`)
		stored := e.Want(201, "", "PUT", "/v1/workflows/w/schedules/"+strings.ReplaceAll(c.key, "/", "%2F"), `{`+more+`"spec":`+c.spec+`}`)
		for i, at := range stored.Doc["upcoming"].([]any) {
			if one := previewed.Doc["ticks"].([]any)[i].(map[string]any); one["timestamp"] != at {
				t.Errorf("%s: tick %d is previewed for %v and comes at %v", c.key, i, one["timestamp"], at)
			}
		}
	}
	const daily = `"spec":{"timezone":"@subject","cron":"0 8 * * *"}}`
	e.Want(422, "no_subject_zone", "POST", "/v1/schedules/preview", `{"subject":"nobody",`+daily)
	for _, bad := range []string{`"workflow":"a/b"`, `"key":"a\u0001"`, `"subject":"` + strings.Repeat("x", 257) + `"`} {
		e.Want(422, "invalid", "POST", "/v1/schedules/preview", `{`+bad+`,`+daily)
	}
}

// A user with five reminders moves from Tokyo to Los Angeles: one request retimes all of them, in one transaction.
func TestAMoveRetimesAllRemindersAtOnce(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", "/v1/subjects/user", `{"timezone":"Asia/Tokyo"}`)
	reminders := []string{"water", "lunch", "pill", "walk", "sleep"}
	for i, key := range reminders {
		e.Want(201, "", "PUT", "/v1/workflows/"+key+"/schedules/user%2F"+key, fmt.Sprintf(`{"subject":"user","spec":{"timezone":"@subject","cron":"0 %d * * *"}}`, 8+3*i))
	}
	e.Want(200, "", "PUT", "/v1/subjects/user", `{"timezone":"America/Los_Angeles"}`)
	for i, key := range reminders {
		got := e.Want(200, "", "GET", "/v1/workflows/"+key+"/schedules/user%2F"+key, "")
		local, _ := got.Doc["next_local"].(string)
		if got.Doc["timezone_in_force"] != "America/Los_Angeles" || !strings.Contains(local, fmt.Sprintf("T%02d:00:00-0", 8+3*i)) {
			t.Errorf("%s: got %s", key, got.Body)
		}
	}
	if n := schedulestest.One[int](e.Fixture, `SELECT count(DISTINCT xmin::text)::int FROM schedule`); n != 1 {
		t.Errorf("the schedules were retimed in %d transactions", n)
	}
	if n := schedulestest.One[int](e.Fixture, `SELECT count(DISTINCT rezoned_at)::int FROM schedule_state WHERE rezoned_at IS NOT NULL`); n != 1 {
		t.Errorf("the schedules remember %d moments of the change", n)
	}
}
