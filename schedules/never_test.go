package schedules_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// neverFiring are specs without a tick, one of each kind that a spec can name.
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
	"end before the first":    `{"cron":"0 0 1 1 *","start_at":"2090-02-01T00:00:00Z","end_at":"2090-12-01T00:00:00Z"}`,
	"excluded days":           `{"cron":"0 9 * * *","exclude":{"calendars":[{"day_of_week":"*"}]}}`,
	"excluded times":          `{"cron":"0 9,17 * * *","exclude":{"calendars":[{"hour":"9"},{"minute":"*","hour":"12-23"}]}}`,
	"moved nowhere":           `{"cron":"0 9 * * *","exclude":{"calendars":[{"year":"1970-2199"}],"then":"next"}}`,
	"excluded interval":       `{"intervals":[{"every":"2h"}],"exclude":{"calendars":[{"hour":"*/2"}]}}`,
}

func TestASpecThatNeverFiresIsRefusedByEveryUpsert(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.want(201, "", "PUT", aPath, daily)
	for name, spec := range neverFiring {
		a := e.want(422, "never_fires", "PUT", "/v1/workflows/w/schedules/b", `{"spec":`+spec+`}`)
		if !strings.Contains(a.body, `"pointer":"/spec"`) {
			t.Errorf("%s: got %s", name, a.body)
		}
		e.want(422, "never_fires", "PATCH", aPath, `{"spec":`+replacing(t, spec)+`}`)
		bulk := e.want(200, "", "POST", "/v1/schedules/bulk", `{"workflow":"w","key":"b","spec":`+spec+`}`, "Content-Type", "application/x-ndjson")
		if !strings.Contains(bulk.body, `"code":"never_fires"`) {
			t.Errorf("%s, bulk: got %s", name, bulk.body)
		}
		told, _ := e.sync("&key_prefix=b", `{"key":"b","spec":`+spec+`}`)
		if len(told) != 1 || !strings.HasSuffix(told[0], "never_fires") {
			t.Errorf("%s, sync: got %q", name, told)
		}
		preview := e.want(200, "", "POST", "/v1/schedules/preview", `{"spec":`+spec+`}`)
		if ticks, _ := preview.doc["ticks"].([]any); len(ticks) != 0 || preview.doc["exhausted"] != true || !strings.Contains(preview.body, `"code":"never_fires"`) {
			t.Errorf("%s, preview: got %s", name, preview.body)
		}
	}
	if got, want := e.stand(), "w a 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// replacing is a patch of the daily spec that leaves only what another spec says.
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
