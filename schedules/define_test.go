package schedules_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// A spec fires too often if it does so on one day of a century.
func TestTheSmallestIntervalIsFoundWhereverItIs(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Quotas.SmallestIntervalSeconds = 60
	for _, c := range []struct{ cron, at []string }{
		{at: []string{"2090-01-01T00:00:00", "2095-01-01T00:00:00", "2095-01-01T00:00:30"}},
		{cron: []string{"0 0 1 1 *"}, at: []string{"2060-01-01T00:00:30"}},
		{cron: []string{"*/5 0 0 1 2 *"}},
		{cron: []string{"0 0 29 2 *", "30 0 0 29 2 *"}},
	} {
		s := schedules.Params{}
		s.Spec.Cron, s.Spec.At = c.cron, c.at
		var err error
		worked := h.CPUTime(func() {
			_, _, err = h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "often"}, s, "ann", version.Precondition{})
		})
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "interval_too_small" {
			t.Errorf("%v: got %v", c, err)
		}
		if worked > 5*time.Second {
			t.Errorf("%v: %s of a processor", c, worked)
		}
	}
}

// neverFiring holds specs without a tick, one for each part of a spec.
var neverFiring = map[string]string{
	"position beyond a month": `{"rrule":"DTSTART:20260105T100000\nRRULE:FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6"}`,
	"position beyond an hour": `{"rrule":"DTSTART:20260105T100000\nRRULE:FREQ=HOURLY;BYSETPOS=2;COUNT=100"}`,
	"interval out of step":    `{"rrule":"DTSTART:20260105T100000\nRRULE:FREQ=MINUTELY;INTERVAL=60;BYMINUTE=30"}`,
	"no such day of a rule":   `{"rrule":"DTSTART:20260105T100000\nRRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"}`,
	"past rule":               `{"rrule":"DTSTART:20200105T100000\nRRULE:FREQ=DAILY;COUNT=3"}`,
	"all instances excepted":  `{"rrule":"DTSTART:20260105T100000\nRRULE:FREQ=DAILY;COUNT=1\nEXDATE:20260105T100000"}`,
	"no such day":             `{"cron":"0 0 30 2 *"}`,
	"past year":               `{"cron":"0 0 0 1 1 * 2020"}`,
	"calendar":                `{"calendars":[{"month":"4","day_of_month":"31"}]}`,
	"past time":               `{"at":["2020-01-01T00:00:00"]}`,
	"past relative time":      `{"relative":[{"to":"2020-01-01T00:00:00","days":3,"at":"10:00"},{"to":"2020-01-01T00:00:00Z","offset":"-24h"}]}`,
	"end before the first":    `{"cron":"0 0 1 1 *","start_at":"2090-02-01T00:00:00Z","end_at":"2090-12-01T00:00:00Z"}`,
	"excluded days":           `{"cron":"0 9 * * *","exclude":{"calendars":[{"day_of_week":"*"}]}}`,
	"excluded times":          `{"cron":"0 9,17 * * *","exclude":{"calendars":[{"hour":"9"},{"minute":"*","hour":"12-23"}]}}`,
	"moved nowhere":           `{"cron":"0 9 * * *","exclude":{"calendars":[{"year":"1970-2199"}],"then":"next"}}`,
	"excluded interval":       `{"intervals":[{"every":"2h"}],"exclude":{"calendars":[{"hour":"*/2"}]}}`,
}

func TestASpecThatNeverFiresIsRefusedByEveryUpsert(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody)
	for name, spec := range neverFiring {
		a := e.Want(422, "never_fires", "PUT", "/v1/workflows/w/schedules/b", `{"spec":`+spec+`}`)
		if !strings.Contains(a.Body, `"pointer":"/spec"`) {
			t.Errorf("%s: got %s", name, a.Body)
		}
		e.Want(422, "never_fires", "PATCH", schedulestest.SchedulePath, `{"spec":`+replacing(t, spec)+`}`)
		bulk := e.Want(200, "", "POST", "/v1/schedules/bulk", `{"workflow":"w","key":"b","spec":`+spec+`}`, "Content-Type", "application/x-ndjson")
		if !strings.Contains(bulk.Body, `"code":"never_fires"`) {
			t.Errorf("%s, bulk: got %s", name, bulk.Body)
		}
		told, _ := e.Sync("&key_prefix=b", `{"key":"b","spec":`+spec+`}`)
		if len(told) != 1 || !strings.HasSuffix(told[0], "never_fires") {
			t.Errorf("%s, sync: got %q", name, told)
		}
		preview := e.Want(200, "", "POST", "/v1/schedules/preview", `{"spec":`+spec+`}`)
		if ticks, _ := preview.Doc["ticks"].([]any); len(ticks) != 0 || preview.Doc["exhausted"] != true || !strings.Contains(preview.Body, `"code":"never_fires"`) {
			t.Errorf("%s, preview: got %s", name, preview.Body)
		}
	}
	if got, want := e.Stored(), "w a 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// replacing returns a patch that turns the daily spec into another spec.
func replacing(t *testing.T, spec string) string {
	t.Helper()
	members := map[string]any{"cron": nil}
	if err := json.Unmarshal([]byte(spec), &members); err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(patch)
}
