package carillon_test

import (
	"encoding/json"
	"fmt"
	"log"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func ExampleSpec() {
	appointment := time.Date(2026, 3, 5, 14, 30, 0, 0, time.UTC)
	for _, spec := range []carillon.Spec{
		carillon.Cron("0 8 * * 1-5").In("America/New_York"),
		carillon.Cron("30 2 * * *").In("Europe/Paris").WithDST(carillon.DST{Gap: "next_valid"}),
		carillon.Every(90 * time.Minute).WithJitter(30 * time.Second),
		carillon.Every(time.Hour).FromEnd().FirstNow(),
		carillon.EveryCivil(0, 2).In(carillon.SubjectZone),
		carillon.Calendar(carillon.CalendarFields{DayOfMonth: "L", Hour: "18"}).Except(carillon.Exclude{Named: []string{"holidays"}, Then: "previous"}),
		carillon.RRule("DTSTART:20260105T090000", "RRULE:FREQ=WEEKLY;COUNT=10").In("Europe/Berlin"),
		carillon.At("2026-12-24T18:00", "2026-12-31T23:00").In("Asia/Tokyo"),
		carillon.After(appointment, -1, "10:00").In(carillon.SubjectZone),
		carillon.Before("2026-03-05T14:30", 2*time.Hour).In("Europe/Berlin"),
		carillon.Cron("@daily").From(appointment).UntilLocal("2027-01-01T00:00").Times(3),
	} {
		text, err := json.Marshal(spec)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(text))
	}
	// Output:
	// {"timezone":"America/New_York","cron":["0 8 * * 1-5"]}
	// {"timezone":"Europe/Paris","cron":["30 2 * * *"],"dst":{"gap":"next_valid"}}
	// {"intervals":[{"every":"1h30m"}],"jitter":"30s"}
	// {"intervals":[{"every":"1h","mode":"fixed_delay","first":"now"}]}
	// {"timezone":"@subject","intervals":[{"every":"2w"}]}
	// {"calendars":[{"hour":"18","day_of_month":"L"}],"exclude":{"named":["holidays"],"then":"previous"}}
	// {"timezone":"Europe/Berlin","rrule":"DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY;COUNT=10"}
	// {"timezone":"Asia/Tokyo","at":["2026-12-24T18:00","2026-12-31T23:00"]}
	// {"timezone":"@subject","relative":[{"to":"2026-03-05T14:30:00Z","days":-1,"at":"10:00"}]}
	// {"timezone":"Europe/Berlin","relative":[{"to":"2026-03-05T14:30","offset":"-2h"}]}
	// {"cron":["@daily"],"start_at":"2026-03-05T14:30:00Z","end_at":"2027-01-01T00:00","max_ticks":3}
}

func TestSpecsHaveWholeSeconds(t *testing.T) {
	t.Parallel()
	late := time.Date(2026, 1, 5, 8, 0, 0, 1, time.FixedZone("", 3600))
	for want, got := range map[string]string{
		"2026-01-05T07:00:01Z":  carillon.At(late).At[0],
		"2026-01-05T07:00:00Z":  carillon.At(late.Truncate(time.Second)).At[0],
		"2026-01-05T07:00:01Z ": carillon.Cron("@daily").From(late).StartAt + " ",
		"2s":                    carillon.Every(1001 * time.Millisecond).Intervals[0].Every,
		"-1s":                   carillon.Before(late, 1999*time.Millisecond).Relative[0].Offset,
		"0s":                    carillon.Before(late, time.Millisecond).Relative[0].Offset,
		"1h0m1s":                carillon.Every(time.Hour + time.Second).Intervals[0].Every,
		"10m":                   carillon.Every(10 * time.Minute).Intervals[0].Every,
		"20h":                   carillon.Every(20 * time.Hour).Intervals[0].Every,
		"1d":                    carillon.EveryCivil(1, 0).Intervals[0].Every,
		"1w3d":                  carillon.EveryCivil(3, 1).Intervals[0].Every,
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	before := time.Now()
	at, err := time.Parse(time.RFC3339, carillon.In(time.Minute).At[0])
	if after := time.Now(); err != nil || at.Before(before.Add(time.Minute)) || !at.Before(after.Add(61*time.Second)) {
		t.Errorf("in a minute: %s, asked between %s and %s, %v", at, before, after, err)
	}
}

// A builder's method leaves the spec that it is called on as it was.
func TestBuildersCopy(t *testing.T) {
	t.Parallel()
	base := carillon.Every(time.Hour).Except(carillon.Exclude{Dates: []string{"2026-01-01"}})
	one := base.FromEnd().Except(carillon.Exclude{Dates: []string{"2026-01-02"}})
	two := base.FromStart().Except(carillon.Exclude{Dates: []string{"2026-01-03"}})
	if fmt.Sprint(base.Exclude.Dates, one.Exclude.Dates, two.Exclude.Dates) != "[2026-01-01] [2026-01-01 2026-01-02] [2026-01-01 2026-01-03]" {
		t.Errorf("got %v, %v, %v", base.Exclude.Dates, one.Exclude.Dates, two.Exclude.Dates)
	}
	if base.Intervals[0].Mode != "" || one.Intervals[0].Mode != "fixed_delay" || two.Intervals[0].Mode != "fixed_rate" {
		t.Errorf("got %v, %v, %v", base.Intervals, one.Intervals, two.Intervals)
	}
}
