package forecast_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// lines returns the bulk lines of n schedules of a spec.
func lines(prefix string, n int, spec string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"workflow": "w", "key": "%s%d", "spec": %s}`+"\n", prefix, i, spec)
	}
	return b.String()
}

func hourly(minute int) string { return fmt.Sprintf(`{"cron": "%d * * * *"}`, minute) }

func TestProjectedTicksAreHeldToTheirQuota(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Quotas.ProjectedTicksPerDay = 5 * 24
	results, sum := h.UpsertBulk(lines("c", 7, hourly(5)))
	if sum.Inserted != 5 || sum.Errors != 2 || results[6].Error.Code != "quota_exceeded" {
		t.Errorf("got %+v, %+v", sum, results[6].Error)
	}
	_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "c0"}, schedulestest.ByCron("*/30 * * * *"), "ann", version.Precondition{})
	f := schedulestest.WantFault(t, err, 403, "quota_exceeded")
	if f.Extra["quota"] != "projected_ticks_per_day" || f.Extra["limit"] != 120 || f.Extra["used"] != 120 {
		t.Errorf("got %v", f.Extra)
	}
	h.Put("c0", schedulestest.ByCron("0 8 * * *")) // fires less than before
}

func TestCrowdedMinutesAreWarnedOf(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Quotas.TicksPerSecond = 2
	at := time.Now().UTC().Add(3 * time.Hour)
	crowded := fmt.Sprintf(`{"cron": "%d %d * * *"}`, at.Minute(), at.Hour())
	a := e.Want(200, "", "POST", "/v1/schedules/bulk?results=errors", lines("d", 200, crowded), "Content-Type", "application/x-ndjson")
	var end bulk.End
	if err := json.Unmarshal([]byte(a.Body), &end); err != nil {
		t.Fatal(err)
	}
	if len(end.Warnings) != 1 || end.Warnings[0].Code != "peak_minute" || !strings.Contains(end.Warnings[0].Detail, "200 ticks") ||
		!strings.Contains(end.Warnings[0].Detail, "1m40s") || !strings.Contains(end.Warnings[0].Detail, "jitter of 2m") {
		t.Errorf("got %+v", end.Warnings)
	}
	body := fmt.Sprintf(`{"spec": %s}`, crowded)
	for _, one := range []schedulestest.Answer{
		e.Want(200, "", "PUT", "/v1/workflows/w/schedules/d1", body),
		e.Want(201, "", "PUT", "/v1/workflows/w/schedules/another", body),
		e.Want(200, "", "PATCH", "/v1/workflows/w/schedules/d1", `{"note": "x"}`),
		e.Want(200, "", "POST", "/v1/schedules/preview", body),
	} {
		if !strings.Contains(one.Body, `"peak_minute"`) {
			t.Errorf("no warning in %s", one.Body)
		}
	}
	if other := e.Want(201, "", "PUT", "/v1/workflows/w/schedules/alone", fmt.Sprintf(`{"spec": {"cron": "%d %d * * *"}}`, at.Minute(), (at.Hour()+1)%24)); strings.Contains(other.Body, `"peak_minute"`) {
		t.Errorf("a warning in %s", other.Body)
	}
}

// The forecast lets ticks pass the rates of workflows, of the tenant, and of endpoints.
func TestTheForecastKnowsRates(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Quotas.TicksPerSecond = 10
	minute := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Minute)
	at := fmt.Sprintf(`{"at": ["%s"]}`, minute.Format("2006-01-02T15:04:05"))
	e.Want(200, "", "POST", "/v1/schedules/bulk?results=errors", lines("e", 300, at)+strings.ReplaceAll(lines("f", 200, at), `"w"`, `"other"`), "Content-Type", "application/x-ndjson")
	read := func(query string) (f forecast.Forecast) {
		t.Helper()
		if err := json.Unmarshal([]byte(e.Want(200, "", "GET", "/v1/admin/forecast?hours=4&"+query, "").Body), &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	if f := read("workflow=w"); len(f.Peaks) != 0 {
		t.Errorf("without a rate: %+v", f.Peaks)
	}
	want := func(what, query string, ticks int64, drained time.Duration, jitter string) {
		t.Helper()
		f := read(query)
		if len(f.Peaks) != 1 || f.Peaks[0].Ticks != ticks || f.Peaks[0].DrainedAt == nil || f.Peaks[0].DrainedAt.Sub(minute) != drained || f.Peaks[0].Jitter != jitter {
			t.Errorf("%s: got %+v, want %d ticks, drained after %s, with a jitter of %s", what, f.Peaks, ticks, drained, jitter)
		}
	}
	e.Want(200, "", "PUT", "/v1/workflows/w", `{"rate": {"per_second": 2}}`)
	want("the rate of its workflow", "workflow=w", 300, 150*time.Second, "3m")
	want("all", "", 500, 150*time.Second, "3m")
	f := read("workflow=w")
	if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0].Detail, `the rate of workflow "w" allows 2 a second`) {
		t.Errorf("got %+v", f.Warnings)
	}
	if f := read("workflow=other"); len(f.Peaks) != 0 {
		t.Errorf("of the other: %+v", f.Peaks)
	}
	e.Exec(`INSERT INTO endpoint (tenant_id, name, url, secrets, rate) VALUES ($1, 'hook', 'https://example.com', '{a}', 1)`, e.Acme)
	e.Exec(`UPDATE workflow SET endpoint = 'hook' WHERE tenant_id = $1`, e.Acme)
	want("the rate of an endpoint", "", 500, 500*time.Second, "9m")
	e.Want(200, "", "PUT", "/v1/workflows/w", `{"rate": {"per_second": 2, "ramp": "4m"}}`)
	// A tenth at first: the first four minutes let 0.21, 0.44, 0.66 and 0.89 of 120 pass.
	f = read("workflow=w")
	if len(f.Peaks) != 1 || f.Peaks[0].DrainedAt == nil || f.Peaks[0].DrainedAt.Sub(minute) < 4*time.Minute || f.Minutes[0].Backlog < 270 {
		t.Errorf("with a ramp: %+v, %+v", f.Peaks, f.Minutes)
	}
}
