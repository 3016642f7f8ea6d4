package schedules_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// What a request asks for beyond what the tenant has is refused where it says so.
func TestTicksAreKeptNoLongerThanTheTenants(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.quotas.TickRetentionDays = 7
	for _, c := range []struct{ delivery, pointer string }{
		{`{"retention":{"succeeded":"7d","failed":"30d"}}`, ""},
		{`{"retention":{"succeeded":"8d"}}`, "/delivery/retention/succeeded"},
		{`{"retention":{"failed":"31d"}}`, "/delivery/retention/failed"},
	} {
		for path, body := range map[string]string{aPath: `{"spec":{"cron":"0 12 * * *"},"delivery":%s}`, "/v1/workflows/w": `{"defaults":{"delivery":%s}}`} {
			got := e.ask("PUT", path, fmt.Sprintf(body, c.delivery))
			if c.pointer == "" && got.status/100 != 2 || c.pointer != "" && (got.status != 422 || !strings.Contains(got.body, c.pointer+`"`)) {
				t.Errorf("%s %s: got %d %s", path, c.delivery, got.status, got.body)
			}
		}
	}
	got := e.ask("POST", bulkPath, `{"workflow":"w","spec":{"cron":"0 12 * * *"},"delivery":{"retention":{"succeeded":"8d"}}}`, "Content-Type", "application/x-ndjson")
	if !strings.Contains(got.body, `"pointer":"/delivery/retention/succeeded"`) {
		t.Errorf("got %s", got.body)
	}
}

// A client's clock has fractions of seconds; a pause that ends within one ends with it.
func TestAPauseUntilAMomentWithinASecond(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.want(201, "", "PUT", aPath, daily)
	for until, code := range map[string]string{"9999-12-31T23:59:59.5Z": "invalid", "9999-12-31T23:59:59-00:01": "out_of_range", "0000-01-01T00:00:00+00:01": "out_of_range"} {
		e.want(422, code, "POST", aPath+"/pause", fmt.Sprintf(`{"until":%q}`, until))
	}
	e.want(200, "", "POST", aPath+"/pause", `{"until":"9999-12-31T23:59:59Z"}`)
	if got := e.want(200, "", "POST", aPath+"/pause", `{"until":"2090-01-01T00:00:00.001Z"}`); got.doc["paused_until"] != "2090-01-01T00:00:01Z" {
		t.Errorf("got %s", got.body)
	}
}

func TestThereAreOnlySoManyCalendars(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for i := range 100 {
		e.putCalendar(fmt.Sprint("c", i))
	}
	got := e.want(403, "quota_exceeded", "PUT", "/v1/calendars/more", `{}`)
	if fmt.Sprint(got.doc["quota"], got.doc["limit"], got.doc["used"]) != "calendars100100" {
		t.Errorf("got %s", got.body)
	}
}

// A preview is of what could be bought, too: quotas are warned of.
func TestAPreviewWarnsOfASpecThatIsTooLarge(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	large := `{"spec":{"at":["2090-01-01T00:00:00"` + strings.Repeat(`,"2090-01-02T00:00:00"`, 300) + `]}}`
	e.want(413, "spec_too_large", "PUT", aPath, large)
	if got := e.want(200, "", "POST", "/v1/schedules/preview", large); !strings.Contains(got.body, `"code":"spec_too_large"`) {
		t.Errorf("got %s", got.body)
	}
}

func TestWhatIsNullOrEmptyIsNotLeftOut(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for body, pointer := range map[string]string{
		`{"spec":{"cron":"0 12 * * *","timezone":""}}`:                "/spec/timezone",
		`{"spec":{"cron":"0 12 * * *","timezone":null}}`:              "/spec/timezone",
		`{"spec":{"calendars":[null]}}`:                               "/spec/calendars/0",
		`{"spec":{"calendars":[{"hour":""}]}}`:                        "/spec/calendars/0/hour",
		`{"spec":{"cron":"0 12 * * *"},"policy":{"overlap":""}}`:      "/policy/overlap",
		`{"spec":{"cron":"0 12 * * *"},"policy":null}`:                "/policy",
		`{"spec":{"cron":"0 12 * * *"},"delivery":{"priority":null}}`: "/delivery/priority",
		`{"spec":{"cron":"0 12 * * *"},"labels":{"a":null}}`:          "/labels/a",
		`{"spec":{"cron":"0 12 * * *"},"status":""}`:                  "/status",
		`{"spec":null}`: "/spec",
	} {
		if got := e.ask("PUT", aPath, body); got.status != 422 || !strings.Contains(got.body, `"pointer":"`+pointer+`"`) {
			t.Errorf("%s: got %d %s", body, got.status, got.body)
		}
		line := `{"workflow":"w",` + strings.TrimPrefix(body, "{")
		if got := e.ask("POST", bulkPath, line, "Content-Type", "application/x-ndjson"); !strings.Contains(got.body, `"pointer":"`+pointer+`"`) {
			t.Errorf("%s: got %s", line, got.body)
		}
	}
	e.want(201, "", "PUT", aPath, `{"spec":{"cron":"0 12 * * *","start_at":null,"end_at":null,"max_ticks":null,"calendars":[{"comment":""}]},"payload":null,"labels":{"a":""},"note":null}`)
	e.want(422, "invalid", "PATCH", aPath, `{"spec":{"timezone":""}}`)
	e.want(422, "wrong_type", "PATCH", aPath, `{"spec":{"cron":null,"calendars":[null]}}`)
}

// Lines that say nothing cost little to send, packed, and count like others.
func TestBlankLinesAreNotReadForEver(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(append([]byte(dailyLine("a")), bytes.Repeat([]byte("\n"), 2_000_000)...)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	got := e.ask("POST", bulkPath, packed.String(), "Content-Type", "application/x-ndjson", "Content-Encoding", "gzip")
	if !strings.Contains(got.body, `"line":1000001`) || !strings.Contains(got.body, "too_many_lines") || !strings.Contains(got.body, `"inserted":1`) {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

// A spec that fires too often on one day of a century fires too often.
func TestTheSmallestIntervalIsFoundWhereverItIs(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.quotas.SmallestIntervalSeconds = 60
	for _, c := range []struct{ cron, at []string }{
		{at: []string{"2090-01-01T00:00:00", "2095-01-01T00:00:00", "2095-01-01T00:00:30"}},
		{cron: []string{"0 0 1 1 *"}, at: []string{"2060-01-01T00:00:30"}},
		{cron: []string{"*/5 0 0 1 2 *"}},
		{cron: []string{"0 0 29 2 *", "30 0 0 29 2 *"}},
	} {
		s := schedules.Params{}
		s.Spec.Cron, s.Spec.At = c.cron, c.at
		var err error
		worked := h.worked(func() {
			_, _, err = h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "often"}, s, "ann", version.Precondition{})
		})
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "interval_too_small" {
			t.Errorf("%v: got %v", c, err)
		}
		if worked > 5*time.Second {
			t.Errorf("%v: %s of a processor", c, worked)
		}
	}
}

// A note stays unless it is sent; null is none, as in the answer.
func TestANoteIsTakenAway(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	noted := `{"spec":{"cron":"0 12 * * *"},"note":"n"}`
	without := `{"note" : null,"spec":{"cron":"0 12 * * *"}}`
	e.want(201, "", "PUT", aPath, noted)
	if got := e.want(200, "", "PUT", aPath, daily); got.doc["note"] != "n" {
		t.Errorf("not sent, got %s", got.body)
	}
	if got := e.want(200, "", "PUT", aPath, without); got.doc["note"] != nil || got.header.Get("ETag") != `"2"` {
		t.Errorf("sent as null, got %s", got.body)
	}
	e.want(200, "", "PUT", aPath, noted)
	e.ask("POST", bulkPath, `{"workflow":"w","key":"a",`+strings.TrimPrefix(without, "{"), "Content-Type", "application/x-ndjson")
	if got := e.want(200, "", "GET", aPath, ""); got.doc["note"] != nil {
		t.Errorf("sent as null in a line, got %s", got.body)
	}
	if got := e.want(200, "", "PUT", aPath, `{"spec":{"cron":"0 12 * * *"},"payload":{"note":null}}`); got.header.Get("ETag") != `"5"` {
		t.Errorf("a payload's own note, got %s", got.body)
	}
}

// No quota says how many workflows there may be, and profiles of keys are as many as schedules may be.
func TestThereAreOnlySoManyWorkflowsAndProfiles(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	if _, err := e.pool.Exec(t.Context(), `INSERT INTO workflow (tenant_id, name) SELECT $1, 'many-' || n FROM generate_series(1, 19999) n`, e.acme); err != nil {
		t.Fatal(err)
	}
	e.want(201, "", "PUT", "/v1/workflows/last", `{}`)
	got := e.want(403, "quota_exceeded", "PUT", "/v1/workflows/more", `{}`)
	if fmt.Sprint(got.doc["quota"], got.doc["limit"], got.doc["used"]) != "workflows2000020000" {
		t.Errorf("got %s", got.body)
	}
	e.want(200, "", "PUT", "/v1/workflows/last", `{"version":"2"}`)
	e.want(403, "quota_exceeded", "PUT", "/v1/workflows/more/schedules/k", daily)
	e.want(201, "", "PUT", "/v1/workflows/last/schedules/k", daily)
	lines := `{"workflow":"last","key":"a","spec":{"cron":"0 12 * * *"}}` + "\n" + `{"workflow":"more","key":"b","spec":{"cron":"0 12 * * *"}}` + "\n" + `{"workflow":"many-7","key":"c","spec":{"cron":"0 12 * * *"}}`
	if got := e.ask("POST", bulkPath, lines, "Content-Type", "application/x-ndjson"); !strings.Contains(got.body, `"inserted":2`) || !strings.Contains(got.body, `"errors":1`) || !strings.Contains(got.body, "quota_exceeded") {
		t.Errorf("got %s", got.body)
	}

	e.quotas.Schedules = 2
	for n := range 2 {
		e.want(201, "", "PUT", fmt.Sprintf("/v1/keys/k%d", n), `{"timezone":"Europe/Berlin"}`)
	}
	got = e.want(403, "quota_exceeded", "PUT", "/v1/keys/more", `{"timezone":"Europe/Berlin"}`)
	if fmt.Sprint(got.doc["quota"], got.doc["limit"], got.doc["used"]) != "keys22" {
		t.Errorf("got %s", got.body)
	}
	e.want(200, "", "PUT", "/v1/keys/k1", `{"timezone":"Asia/Tokyo"}`)
	e.want(200, "", "DELETE", "/v1/keys/k1", "")
	e.want(201, "", "PUT", "/v1/keys/more", `{"timezone":"Europe/Berlin"}`)
}
