package forecast_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

func TestTheReportOfClockChanges(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	in := func(zone, cron string) schedules.Params {
		return schedulestest.Spec(calendar.Spec{Timezone: zone, Cron: calendar.StringList{cron}})
	}
	e.Put("berlin-a", in("Europe/Berlin", "30 2 * * *"))
	e.Put("berlin-b", in("Europe/Berlin", "30 2 * * *"))
	e.Put("paris", in("Europe/Paris", "30 * * * *"))
	e.Put("paused", in("Europe/Paris", "15 2 * * *"))
	e.Pause("paused", schedules.PauseParams{})
	e.Put("noon", in("Europe/Paris", "0 12 * * *"))
	e.Put("kolkata", in("Asia/Kolkata", "30 2 * * *"))
	e.Put("utc", in("", "30 1 * * *"))
	read := func(query string) (r forecast.ClockReport) {
		if err := json.Unmarshal([]byte(e.Want(200, "", "GET", "/v1/admin/dst?"+query, "").Body), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	got := read("from=2026-12-01T00:00:00Z&to=2027-12-01T00:00:00Z")
	want := forecast.ClockReport{Changes: []forecast.ClockChange{
		{
			At: time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC), Timezones: []string{"Europe/Berlin", "Europe/Paris"}, Kind: "gap",
			FromLocal: "2027-03-28T02:00:00", ToLocal: "2027-03-28T03:00:00", Schedules: 3, Effects: []forecast.ClockEffect{
				{Effect: "shifted", Count: 2, Sample: []forecast.ClockSample{{Workflow: "w", Key: "berlin-a", LocalTime: "2027-03-28T02:30:00"}}},
				{Effect: "skipped", Count: 1, Sample: []forecast.ClockSample{{Workflow: "w", Key: "paris", LocalTime: "2027-03-28T02:30:00"}}},
			},
		},
		{
			At: time.Date(2027, 10, 31, 1, 0, 0, 0, time.UTC), Timezones: []string{"Europe/Berlin", "Europe/Paris"}, Kind: "overlap",
			FromLocal: "2027-10-31T03:00:00", ToLocal: "2027-10-31T02:00:00", Schedules: 3, Effects: []forecast.ClockEffect{
				{Effect: "once_first", Count: 2, Sample: []forecast.ClockSample{{Workflow: "w", Key: "berlin-a", LocalTime: "2027-10-31T02:30:00"}}},
				{Effect: "twice", Count: 1, Sample: []forecast.ClockSample{{Workflow: "w", Key: "paris", LocalTime: "2027-10-31T02:30:00"}}},
			},
		},
	}}
	for c := range got.Changes { // which of the schedules of a timing is shown is not said
		for _, effect := range got.Changes[c].Effects {
			for s := range effect.Sample {
				effect.Sample[s].Key = strings.Replace(effect.Sample[s].Key, "berlin-b", "berlin-a", 1)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := read("workflow=other"); len(got.Changes) != 0 {
		t.Errorf("a workflow without schedules has %+v", got)
	}
	if got := read(""); len(got.Changes) < 2 {
		t.Errorf("the coming year has %+v", got)
	}
	for _, query := range []string{"from=soon", "from=2027-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "to=2099-01-01T00:00:00Z", "workflow="} {
		e.Want(422, "invalid", "GET", "/v1/admin/dst?"+query, "")
	}
}

func TestTheForecastByGroups(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Quotas.TicksPerSecond = 1
	minute := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Minute)
	e.Want(200, "", "POST", "/v1/schedules/bulk?results=errors", lines("e", 100, fmt.Sprintf(`{"at": ["%s"]}`, minute.Format("2006-01-02T15:04:05")))+
		lines("f", 10, fmt.Sprintf(`{"timezone": "Asia/Tokyo", "cron": %q}`, schedulestest.EachDay("Asia/Tokyo"))), "Content-Type", "application/x-ndjson")
	read := func(query string) (f forecast.Forecast) {
		if err := json.Unmarshal([]byte(e.Want(200, "", "GET", "/v1/admin/forecast?"+query, "").Body), &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := read("group=timezone")
	if len(f.Groups) != 2 || f.Groups[0].Count != 100 || *f.Groups[0].Timezone != "UTC" || f.Groups[0].Workflow != nil || !f.Groups[0].NextAt.Equal(minute) ||
		f.Groups[1].Count != 10 || *f.Groups[1].Timezone != "Asia/Tokyo" {
		t.Errorf("got %+v", f.Groups)
	}
	f = read("group=workflow,timing&workflow=w&at=" + minute.Add(5*time.Second).Format(time.RFC3339))
	if len(f.Groups) != 1 || f.Groups[0].Count != 100 || *f.Groups[0].Workflow != "w" || f.Groups[0].Reading == nil || f.Groups[0].Timezone != nil {
		t.Errorf("got %+v", f.Groups)
	}
	if len(f.Peaks) != 1 || !f.Peaks[0].At.Equal(minute) || f.Peaks[0].Ticks != 100 || f.Peaks[0].DrainedAt == nil || !f.Peaks[0].DrainedAt.Equal(minute.Add(100*time.Second)) || f.Peaks[0].Jitter != "2m" {
		t.Errorf("got %+v", f.Peaks)
	}
	if f := read("workflow=w&at=" + minute.Format(time.RFC3339)); len(f.Groups) != 1 || f.Groups[0].Workflow == nil || f.Groups[0].Reading == nil || f.Groups[0].Timezone == nil {
		t.Errorf("the content of a minute has %+v", f.Groups)
	}
	if f := read("workflow=other"); f.Ticks != 0 || f.Groups != nil || len(f.Peaks) != 0 {
		t.Errorf("got %+v", f)
	}
	for _, query := range []string{"group=color", "group=", "at=", "group=timing&at=soon", "workflow="} {
		e.Want(422, "invalid", "GET", "/v1/admin/forecast?"+query, "")
	}
}
