package servertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestTheSDKReadsSchedulesInEveryWay(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	must[carillon.SubjectRetiming](t)(c.Subjects.Put(ctx, "ada", carillon.SubjectParams{Timezone: "Asia/Kathmandu"}))
	put := func(key string, p carillon.Params) carillon.Schedule {
		t.Helper()
		return must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", key, p))
	}
	made := put("ada/1", carillon.Params{Spec: carillon.Cron("0 8 * * *").In(carillon.SubjectZone), Subject: "ada", Payload: exact, Note: ptr("why")})
	put("bob/1", carillon.Params{Spec: carillon.Cron("0 9 * * *").In("Europe/Berlin")})
	if got := must[carillon.Schedule](t)(c.Schedules.ByID(ctx, made.ID)); got.Key != "ada/1" || string(got.Payload) != string(exact) {
		t.Errorf("got %+v", got)
	}
	for want, filter := range map[string]carillon.Filter{
		"by key":       {Key: "ada/1"},
		"by contents":  {KeyContains: "da/"},
		"by subject":   {Subject: "ada"},
		"by zone":      {Timezone: "Asia/Kathmandu"},
		"by all these": {Workflow: "w", Status: "active", KeyPrefix: "ada"},
	} {
		if got := gather(t, c.Schedules.List(ctx, filter)); len(got) != 1 || got[0].ID != made.ID {
			t.Errorf("%s: got %+v", want, got)
		}
	}
	if got := gather(t, c.Schedules.List(ctx, carillon.Filter{Failing: true})); len(got) != 0 {
		t.Errorf("failing: got %+v", got)
	}
	if got := gather(t, c.Schedules.Summaries(ctx, carillon.Filter{Subject: "ada", PageSize: 1})); len(got) != 1 || got[0].Overdue || got[0].LastOutcome != "" || got[0].TimezoneInForce != "Asia/Kathmandu" {
		t.Errorf("got %+v", got)
	}
	ics, err := c.Schedules.UpcomingICS(ctx, "w", "ada/1", carillon.UpcomingParams{Count: 2})
	if err != nil || bytes.Count(ics, []byte("BEGIN:VEVENT")) != 2 {
		t.Errorf("got %v, %s", err, ics)
	}
	sample := must[carillon.Sample](t)(c.Schedules.Sample(ctx, "w", "ada/1", time.Time{}))
	var tick carillon.Tick[json.RawMessage]
	if err := json.Unmarshal(sample.Body, &tick); err != nil || !tick.Timestamp.Equal(*made.NextAt) || tick.Timezone != "Asia/Kathmandu" {
		t.Errorf("got %s, %v", sample.Body, err)
	}
	preview := must[carillon.Upcoming](t)(c.Schedules.Preview(ctx, carillon.Cron("H 8 * * *").In(carillon.SubjectZone), carillon.PreviewParams{
		Workflow: "w", Key: "k", Subject: "ada", Until: ptr(time.Now().Add(240 * time.Hour)), Count: 3,
	}))
	if _, offset := preview.Ticks[0].LocalTime.Zone(); len(preview.Ticks) != 3 || offset != 20700 {
		t.Errorf("got %+v", preview)
	}
	_, err = c.Schedules.Preview(ctx, carillon.Cron("61 * * * *").In("Mars/Olympus"), carillon.PreviewParams{})
	refused := (*carillon.Error)(nil)
	if !errors.As(err, &refused) || len(refused.Fields) != 2 || refused.Fields[0].Pointer == "" || refused.RequestID == "" {
		t.Errorf("a bad spec: got %v", err)
	}
	if _, err := c.Schedules.Put(ctx, "w", "bad", carillon.Params{Spec: carillon.Cron("0 8 * * *").In("Mars/Olympus")}); !errors.Is(err, carillon.CodeUnknownTimezone) {
		t.Errorf("an unknown zone: got %v", err)
	}
}

func TestTheSDKReadsZonesAndCalendars(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	zones := must[carillon.ZoneList](t)(c.Zones.List(ctx))
	if !slices.ContainsFunc(zones.Items, func(z carillon.Zone) bool {
		return z.Timezone == "Asia/Kathmandu" && z.Offset == "+05:45" && z.NextChange == nil
	}) {
		t.Errorf("got %d zones without Nepal", len(zones.Items))
	}
	year := must[carillon.ZoneTransitions](t)(c.Zones.Get(ctx, "Europe/Berlin", time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)))
	if len(year.Transitions) != 2 || year.Transitions[0].Before != "+01:00" || year.Transitions[0].After != "+02:00" {
		t.Errorf("got %+v", year)
	}
	made := must[carillon.NamedCalendar](t)(c.Calendars.Put(ctx, "holidays", carillon.CalendarParams{Dates: []string{"2030-12-25", "2030-12-24"}}))
	if !slices.Equal(made.Dates, []string{"2030-12-24", "2030-12-25"}) {
		t.Errorf("got %+v", made)
	}
	dry := must[carillon.NamedCalendar](t)(c.Calendars.Put(ctx, "holidays", carillon.CalendarParams{Dates: []string{"2030-12-31"}, DryRun: true}))
	if now := must[carillon.NamedCalendar](t)(c.Calendars.Get(ctx, "holidays")); !slices.Equal(dry.Dates, []string{"2030-12-31"}) || !slices.Equal(now.Dates, made.Dates) {
		t.Errorf("a dry run: got %+v, and then %+v", dry, now)
	}
	if _, err := c.Calendars.Put(ctx, "holidays", carillon.CalendarParams{IfMatch: made.UpdatedAt.Add(-time.Second)}); !errors.Is(err, carillon.CodeVersionMismatch) {
		t.Errorf("another version: got %v", err)
	}
	if got := must[carillon.NamedCalendar](t)(c.Calendars.Get(ctx, "holidays")); got.UpdatedBy != made.UpdatedBy || len(gather(t, c.Calendars.List(ctx))) != 1 {
		t.Errorf("got %+v", got)
	}
	must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", "k", carillon.Params{Spec: carillon.Cron("@daily").Except(carillon.Exclude{Named: []string{"holidays"}})}))
	err := c.Calendars.Delete(ctx, "holidays")
	refused := (*carillon.Error)(nil)
	if !errors.Is(err, carillon.CodeInUse) || !errors.As(err, &refused) || refused.Schedules != 1 {
		t.Errorf("a calendar in use: got %v", err)
	}
	if err := errors.Join(c.Schedules.Delete(ctx, "w", "k", carillon.DeleteParams{}), c.Calendars.Delete(ctx, "holidays", carillon.RemoveParams{IfMatch: made.UpdatedAt})); err != nil {
		t.Error(err)
	}
}

func ptr[T any](v T) *T { return &v }
