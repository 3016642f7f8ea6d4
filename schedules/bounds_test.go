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
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
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
		start := time.Now()
		_, _, err := h.schedules.Put(t.Context(), h.acme, "w", "often", s, "ann", web.Precondition{})
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "interval_too_small" {
			t.Errorf("%v: got %v", c, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%v: took %s", c, took)
		}
	}
}
