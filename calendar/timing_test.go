package calendar

import (
	"fmt"
	"testing"
	"time"
)

func ExampleCompile() {
	timing, err := Compile(Spec{Timezone: "America/New_York", Cron: StringList{"30 2 * * 1-5"}}, Context{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(timing.Reading())
	n := 0
	for tick := range timing.All(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)) {
		fmt.Println(tick.At.Format(time.RFC3339), timing.Local(tick.At).Format(time.RFC3339), tick.DST)
		if n++; n == 2 {
			break
		}
	}
	// Output:
	// at 02:30 on weekdays in New York
	// 2026-11-23T07:30:00Z 2026-11-23T02:30:00-05:00 none
	// 2026-11-24T07:30:00Z 2026-11-24T02:30:00-05:00 none
}

func ExampleFaults() {
	_, err := Compile(Spec{Timezone: "Europe/Paris", Cron: StringList{"0 25 * * *"}, Jitter: "soon"}, Context{})
	for _, f := range err.(Faults) {
		fmt.Println(f.Pointer, f.Code, f.Position)
	}
	// Output:
	// /cron/0 field_out_of_range 2
	// /jitter duration_syntax -1
}

func TestNextDoesNotAllocate(t *testing.T) {
	for _, zone := range []string{"UTC", "America/New_York", "Australia/Lord_Howe"} {
		for _, cron := range []string{"* * * * *", "*/15 * * * *", "0 9 * * *", "0 9 * * 1-5", "0 0 1 * *", "0 0 29 2 *"} {
			timing := mustCompile(t, Spec{Timezone: zone, Cron: StringList{cron}})
			at := time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC)
			if n := testing.AllocsPerRun(100, func() {
				tick, _ := timing.Next(at)
				at = tick.At
			}); n > 0 {
				t.Errorf("%s %s: %v allocations", zone, cron, n)
			}
		}
	}
}

func TestFarInstantsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, spec := range []Spec{
		{Cron: StringList{"* * * * *"}}, {Cron: StringList{"0 0 29 2 *"}}, {Cron: StringList{"0 9 * * 1"}}, {Intervals: []Interval{{Every: "7s"}, {Every: "3d"}}},
		{RRule: "DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY;INTERVAL=7"}, {RRule: "DTSTART:20260101T000000\nRRULE:FREQ=YEARLY;BYWEEKNO=1"},
		{At: []string{"2026-01-01T00:00:00"}}, {Cron: StringList{"0 9 * * *"}, Exclude: &Exclude{Dates: []string{"2026-01-01"}, Then: "next"}},
		{Intervals: []Interval{{Every: "7s"}}, Exclude: &Exclude{Dates: []string{"2026-01-01"}, Then: "previous"}},
	} {
		spec.Timezone = "America/New_York"
		timing := mustCompile(t, spec)
		for _, far := range []time.Time{{}, time.Unix(-1<<60, 0), time.Unix(0, 0), time.Date(1969, 12, 31, 23, 59, 59, 1, time.UTC)} {
			if tick, ok := timing.Next(far); !ok || tick.At.Year() < 1969 {
				t.Errorf("%+v: next of %v is %v %v", spec, far, tick.At, ok)
			}
			if tick, ok := timing.Prev(far); ok && !tick.At.Before(far) {
				t.Errorf("%+v: prev of %v is %v", spec, far, tick.At)
			}
		}
		for _, far := range []time.Time{time.Unix(1<<60, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2151, 1, 2, 0, 0, 0, 0, time.UTC)} {
			if tick, ok := timing.Next(far); ok {
				t.Errorf("%+v: next of %v is %v", spec, far, tick.At)
			}
			if _, ok := timing.Prev(far); !ok {
				t.Errorf("%+v: nothing before %v", spec, far)
			}
		}
	}
}

func TestAbsence(t *testing.T) {
	t.Parallel()
	timing := mustCompile(t, Spec{Timezone: "America/New_York", Cron: StringList{"30 2 * * *"}, DST: DST{Gap: "skip"}, StartAt: new("2027-01-01T00:00:00"),
		EndAt: new("2027-12-31T00:00:00"), Exclude: &Exclude{Dates: []string{"2027-07-04"}}})
	for at, want := range map[string]Absence{
		"2027-02-01T07:30:00Z": AbsentNot, "2027-02-01T07:31:00Z": AbsentNotDue, "2027-07-04T06:30:00Z": AbsentExcluded,
		"2027-03-14T07:30:00Z": AbsentGap, "2026-12-31T07:30:00Z": AbsentBefore, "2028-01-01T07:30:00Z": AbsentAfter,
	} {
		instant, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := timing.Absence(instant); got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
	}
}
