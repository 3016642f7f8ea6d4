package schedules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// A retention beyond the quota is a fault, and its pointer names the member.
func TestTicksAreKeptNoLongerThanTheTenants(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Quotas.TickRetentionDays = 7
	for _, c := range []struct{ delivery, pointer string }{
		{`{"retention":{"succeeded":"7d","failed":"30d"}}`, ""},
		{`{"retention":{"succeeded":"8d"}}`, "/delivery/retention/succeeded"},
		{`{"retention":{"failed":"31d"}}`, "/delivery/retention/failed"},
	} {
		for path, body := range map[string]string{schedulestest.SchedulePath: `{"spec":{"cron":"0 12 * * *"},"delivery":%s}`, "/v1/workflows/w": `{"defaults":{"delivery":%s}}`} {
			got := e.Ask("PUT", path, fmt.Sprintf(body, c.delivery))
			if c.pointer == "" && got.Status/100 != 2 || c.pointer != "" && (got.Status != 422 || !strings.Contains(got.Body, c.pointer+`"`)) {
				t.Errorf("%s %s: got %d %s", path, c.delivery, got.Status, got.Body)
			}
		}
	}
	got := e.Ask("POST", schedulestest.BulkPath, `{"workflow":"w","spec":{"cron":"0 12 * * *"},"delivery":{"retention":{"succeeded":"8d"}}}`, "Content-Type", "application/x-ndjson")
	if !strings.Contains(got.Body, `"pointer":"/delivery/retention/succeeded"`) {
		t.Errorf("got %s", got.Body)
	}
}

func TestWhatIsNullOrEmptyIsNotLeftOut(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
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
		if got := e.Ask("PUT", schedulestest.SchedulePath, body); got.Status != 422 || !strings.Contains(got.Body, `"pointer":"`+pointer+`"`) {
			t.Errorf("%s: got %d %s", body, got.Status, got.Body)
		}
		line := `{"workflow":"w",` + strings.TrimPrefix(body, "{")
		if got := e.Ask("POST", schedulestest.BulkPath, line, "Content-Type", "application/x-ndjson"); !strings.Contains(got.Body, `"pointer":"`+pointer+`"`) {
			t.Errorf("%s: got %s", line, got.Body)
		}
	}
	e.Want(201, "", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"0 12 * * *","start_at":null,"end_at":null,"max_ticks":null,"calendars":[{"comment":""}]},"payload":null,"labels":{"a":""},"note":null}`)
	e.Want(422, "invalid", "PATCH", schedulestest.SchedulePath, `{"spec":{"timezone":""}}`)
	e.Want(422, "wrong_type", "PATCH", schedulestest.SchedulePath, `{"spec":{"cron":null,"calendars":[null]}}`)
}
