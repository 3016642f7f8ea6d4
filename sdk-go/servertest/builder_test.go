package servertest

import (
	"fmt"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// The server takes each spec that the SDK builds, and keeps it.
func TestTheServerTakesBuiltSpecs(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	must[carillon.SubjectRetiming](t)(c.Subjects.Put(ctx, "ada", carillon.SubjectParams{Timezone: "Asia/Kathmandu"}))
	must[carillon.NamedCalendar](t)(c.Calendars.Put(ctx, "holidays", carillon.CalendarParams{Dates: []string{"2030-12-24"}}))
	soon := time.Now().Add(48 * time.Hour)
	for i, spec := range []carillon.Spec{
		carillon.Cron("0 8 * * 1-5", "0 0 12 * * 6").In("America/New_York"),
		carillon.Cron("30 2 * * *").In("Europe/Paris").WithDST(carillon.DST{Gap: "next_valid", Overlap: "both"}),
		carillon.Every(time.Hour + time.Second).WithJitter(30 * time.Second),
		carillon.Every(time.Hour).FromEnd().FirstNow(),
		carillon.EveryCivil(3, 1).In(carillon.SubjectZone).FromStart().From(soon),
		carillon.Calendar(carillon.CalendarFields{DayOfMonth: "L", Hour: "18"}).Except(carillon.Exclude{Named: []string{"holidays"}, Then: "previous"}),
		carillon.RRule("DTSTART:20260105T090000", "RRULE:FREQ=WEEKLY").In("Europe/Berlin").Times(10),
		carillon.At("2035-12-24T18:00", "2035-12-31T23:00").In("Asia/Tokyo"),
		carillon.In(time.Hour),
		carillon.After(soon, -1, "10:00").In(carillon.SubjectZone),
		carillon.Before(soon, 2*time.Hour+time.Millisecond),
		carillon.Cron("@daily").From(soon).UntilLocal("2036-01-01T00:00"),
	} {
		s := must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", fmt.Sprint(i), carillon.Params{Spec: spec, Subject: "ada"}))
		if s.NextAt == nil || s.Reading == "" {
			t.Errorf("%+v has no next tick: %+v", spec, s)
		}
		if again := must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", fmt.Sprint(i), carillon.Params{Spec: s.Spec, Subject: "ada"})); again.Version != s.Version {
			t.Errorf("%+v came back as another one: %+v", spec, s.Spec)
		}
	}
}
