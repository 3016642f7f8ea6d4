package calendar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teambition/rrule-go"
	"pgregory.net/rapid"
)

func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	const start = "DTSTART:20260105T090000\n"
	for text, code := range map[string]string{
		"RRULE:FREQ=DAILY":                                                   "dtstart_missing",
		"DTSTART:20260105T090000":                                            "rrule_missing",
		start + "RRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY":                        "rrule_unsupported",
		start + "RRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY":                       "rrule_unsupported",
		start + "RRULE:FREQ=DAILY\nnonsense":                                 "rrule_syntax",
		start + "RRULE:FREQ=FORTNIGHTLY":                                     "rrule_syntax",
		start + "RRULE:INTERVAL=2":                                           "rrule_syntax",
		start + "RRULE:FREQ=DAILY;FREQ=DAILY":                                "rrule_syntax",
		start + "RRULE:FREQ=DAILY;BYEASTER=1":                                "rrule_unsupported",
		start + "RRULE:FREQ=DAILY;INTERVAL=0":                                "rrule_out_of_range",
		start + "RRULE:FREQ=DAILY;INTERVAL=100001":                           "rrule_out_of_range",
		start + "RRULE:FREQ=MONTHLY;INTERVAL=9223372036854775807":            "rrule_out_of_range",
		start + "RRULE:FREQ=DAILY;COUNT=0":                                   "rrule_out_of_range",
		start + "RRULE:FREQ=DAILY;COUNT=3;UNTIL=20270101T000000Z":            "rrule_combination",
		start + "RRULE:FREQ=DAILY;BYSECOND=60":                               "rrule_out_of_range",
		start + "RRULE:FREQ=DAILY;BYDAY=2MO":                                 "rrule_combination",
		start + "RRULE:FREQ=MONTHLY;BYDAY=53MO":                              "rrule_combination",
		start + "RRULE:FREQ=MONTHLY;BYDAY=-53MO":                             "rrule_combination",
		start + "RRULE:FREQ=MONTHLY;BYDAY=8FR":                               "rrule_combination",
		start + "RRULE:FREQ=YEARLY;BYMONTH=12;BYDAY=53SU":                    "rrule_combination",
		start + "RRULE:FREQ=MONTHLY;BYWEEKNO=3":                              "rrule_combination",
		start + "RRULE:FREQ=WEEKLY;BYMONTHDAY=3":                             "rrule_combination",
		start + "RRULE:FREQ=DAILY;BYYEARDAY=3":                               "rrule_combination",
		"DTSTART;TZID=Europe/Berlin:20260105T090000\nRRULE:FREQ=DAILY":       "timezone_mismatch",
		"DTSTART;TZID=Local:20260105T090000\nRRULE:FREQ=DAILY":               "timezone_mismatch",
		"DTSTART:19691231T090000\nRRULE:FREQ=DAILY":                          "time_out_of_range",
		"DTSTART:21010101T090000\nRRULE:FREQ=DAILY":                          "time_out_of_range",
		"DTSTART:20260230T090000\nRRULE:FREQ=DAILY":                          "time_syntax",
		start + "RRULE:FREQ=DAILY\nRDATE;VALUE=PERIOD:20260105T090000Z/PT1H": "rrule_unsupported",
		start + "RRULE:FREQ=SECONDLY;INTERVAL=286;BYSECOND=2;COUNT=66599":    "rrule_too_costly",
		strings.Repeat("x", 4097):                                            "too_long",
	} {
		_, err := Compile(Spec{RRule: text}, Context{})
		faults, ok := errors.AsType[Faults](err)
		if !ok || faults[0].Code != code || faults[0].Pointer != "/rrule" {
			t.Errorf("%.80q: got %v (%v), want %s", text, err, faults, code)
		}
	}
	if _, err := Compile(Spec{Timezone: "Europe/Berlin", RRule: "DTSTART:20260105T090000Z\nRRULE:FREQ=DAILY"}, Context{}); err == nil {
		t.Error("a DTSTART in UTC is taken in Berlin")
	}
}

// A rule that no time can match is a valid rule without ticks, however it is written. It costs no search.
func TestRulesThatNeverMatch(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		"FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6", "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=-6,7", "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6;COUNT=3",
		"FREQ=YEARLY;BYSETPOS=2", "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO;BYSETPOS=15", "FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=3",
		"FREQ=DAILY;BYSETPOS=2", "FREQ=DAILY;BYHOUR=1,2;BYSETPOS=31622400",
		"FREQ=SECONDLY;BYSETPOS=2", "FREQ=MINUTELY;BYSETPOS=-2", "FREQ=HOURLY;BYSETPOS=2;COUNT=9",
		"FREQ=HOURLY;INTERVAL=2;BYHOUR=1", "FREQ=HOURLY;INTERVAL=24;BYHOUR=5", "FREQ=MINUTELY;INTERVAL=60;BYMINUTE=30",
		"FREQ=MINUTELY;INTERVAL=1440;BYHOUR=3", "FREQ=SECONDLY;INTERVAL=60;BYSECOND=1;COUNT=100000",
		"FREQ=HOURLY;INTERVAL=168;BYDAY=WE", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "FREQ=MONTHLY;BYMONTH=4;BYMONTHDAY=31;BYSETPOS=1",
		"FREQ=YEARLY;BYYEARDAY=366;BYMONTH=1", "FREQ=YEARLY;BYWEEKNO=1;BYMONTH=6", "FREQ=YEARLY;INTERVAL=4;BYMONTH=2;BYMONTHDAY=29",
	} {
		timing := mustCompile(t, Spec{Timezone: "Europe/Berlin", RRule: "DTSTART:20260105T100000\nRRULE:" + rule})
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if tick, ok := timing.Next(now); ok {
			t.Errorf("%s: it fires at %s", rule, tick.At)
		}
		if tick, ok := timing.Prev(time.Date(maxYear, 1, 1, 0, 0, 0, 0, time.UTC)); ok {
			t.Errorf("%s: it fired at %s", rule, tick.At)
		}
		if !slices.ContainsFunc(timing.Warnings(now), func(w Warning) bool { return w.Code == "never_fires" }) {
			t.Errorf("%s: there is no warning", rule)
		}
	}
	some := mustCompile(t, Spec{RRule: "DTSTART:20260105T100000\nRRULE:FREQ=MONTHLY;BYDAY=MO;BYSETPOS=-1,6"})
	if got, want := ticksAfter(t, some, "2026-01-01T00:00:00Z", 2), []string{"2026-01-26T10:00:00+00:00", "2026-02-23T10:00:00+00:00"}; !slices.Equal(got, want) {
		t.Errorf("a position that no month has beside one that each has: got %s, want %s", got, want)
	}
}

func TestRulesReadWhatCalendarsWrite(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"DTSTART;TZID=\"America/New_York\":20260105T090000\r\nRRULE:FREQ=WEEKLY;BY\r\n DAY=MO,WE\r\n",
		"RRULE:FREQ=WEEKLY;BYDAY=WE,MO,MO\nDTSTART;TZID=America/New_York;VALUE=DATE-TIME:20260105T090000",
		"dtstart:20260105T090000\nrrule:freq=weekly;byday=mo,we;wkst=mo;interval=1",
	} {
		timing := mustCompile(t, Spec{Timezone: "America/New_York", RRule: text})
		want := []string{"2026-01-05T09:00:00-05:00", "2026-01-07T09:00:00-05:00", "2026-01-12T09:00:00-05:00"}
		if got := ticksAfter(t, timing, "2026-01-01T00:00:00Z", 3); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	timing := mustCompile(t, Spec{RRule: "DTSTART;VALUE=DATE:20260105\nRRULE:FREQ=DAILY;UNTIL=20260106"})
	if got := ticksAfter(t, timing, "2026-01-01T00:00:00Z", 3); len(got) != 2 {
		t.Errorf("dates: got %v", got)
	}
}

// 2 January 2027 is in week 52 of 2026 if weeks begin on Sunday; rrule-go and dateutil call it week 53.
func TestWeeksBelongToTheYearOfTheirMiddle(t *testing.T) {
	t.Parallel()
	rule := func(n int) *Timing {
		return mustCompile(t, Spec{RRule: fmt.Sprintf("DTSTART:20260101T090000\nRRULE:FREQ=YEARLY;BYWEEKNO=%d;BYDAY=SA;WKST=SU", n)})
	}
	want := []string{"2027-01-02T09:00:00+00:00"}
	if got := ticksAfter(t, rule(52), "2026-12-27T00:00:00Z", 1); !slices.Equal(got, want) {
		t.Errorf("week 52: got %v, want %v", got, want)
	}
	if got := ticksAfter(t, rule(53), "2026-12-27T00:00:00Z", 1); slices.Equal(got, want) {
		t.Errorf("week 53: got %v", got)
	}
}

// In a zone without clock changes, the results equal those of the library, except where the library is wrong.
func TestRulesAgreeWithTheLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		freq := rapid.SampledFrom([]string{"YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"}).Draw(t, "freq")
		parts := []string{"FREQ=" + freq}
		maybe := func(name string, values ...string) {
			if rapid.IntRange(0, 3).Draw(t, name) == 0 {
				parts = append(parts, name+"="+rapid.SampledFrom(values).Draw(t, "value"))
			}
		}
		maybe("INTERVAL", "2", "3", "5", "7")
		maybe("COUNT", "1", "10", "40")
		maybe("BYMONTH", "1,7", "2", "3,4,5,6,12")
		switch freq {
		case "YEARLY":
			maybe("BYDAY", "MO", "20MO", "-1SU", "FR,SA")
			maybe("BYYEARDAY", "1,100,-1", "366", "60,-60")
			maybe("BYMONTHDAY", "13", "-1", "1,15")
		case "MONTHLY":
			maybe("BYDAY", "1MO,-1FR", "SA,SU", "-2TU", "5WE")
			maybe("BYMONTHDAY", "31", "-1,1", "8,9,10,11,12,13,14")
		case "WEEKLY":
			maybe("BYDAY", "MO,WE,FR", "SU", "SA,SU")
			maybe("WKST", "SU", "WE")
		case "HOURLY", "MINUTELY", "SECONDLY":
			maybe("BYDAY", "MO,TU", "SU")
			maybe("BYYEARDAY", "1,100,-1", "60,61,62")
		default:
			maybe("BYDAY", "MO,WE,FR", "SU")
			maybe("BYMONTHDAY", "31", "-1,1")
		}
		maybe("BYHOUR", "9", "0,12,23")
		maybe("BYMINUTE", "30", "0,20,40")
		maybe("BYSECOND", "0,30")
		if freq != "WEEKLY" && freq != "SECONDLY" { // the library's first week begins at DTSTART
			maybe("BYSETPOS", "1", "-1")
		}
		start := time.Date(2026, time.Month(rapid.IntRange(1, 12).Draw(t, "month")), rapid.IntRange(1, 28).Draw(t, "day"), 9, 0, 0, 0, time.UTC)
		text := strings.Join(parts, ";")
		timing, err := Compile(Spec{RRule: "DTSTART:" + start.Format("20060102T150405") + "\nRRULE:" + text}, Context{})
		if err != nil {
			return // refused: the library might loop for ever
		}
		option, err := rrule.StrToROption(text)
		if err != nil {
			t.Fatal(err)
		}
		option.Dtstart = start
		until := start.AddDate(3, 0, 0)
		if strings.Contains("HOURLY MINUTELY SECONDLY", freq) {
			until = start.AddDate(0, 0, 40)
		}
		if !reaches(option, start, until) { // the library would loop for ever
			if tick, ok := timing.Next(start.Add(-time.Second)); ok {
				t.Fatalf("%s: got %v of a rule that reaches no time of day", text, tick)
			}
			return
		}
		if isTimed(option) && !reachesDay(option, start, until) { // the library would check each second up to the year 9999
			// This does not check the day of until, because only the first hours of that day are before until.
			if tick, ok := timing.Next(start.Add(-time.Second)); ok && tick.At.Before(until.Truncate(24*time.Hour)) {
				t.Fatalf("%s: got %v of a rule that reaches no day before that of %v", text, tick, until)
			}
			return
		}
		most := 120
		if option.Count > 0 {
			most = min(most, option.Count)
		}
		option.Count, option.Until = 0, until // otherwise the library searches for the remaining instances of COUNT
		library, err := rrule.NewRRule(*option)
		if err != nil {
			t.Fatal(err)
		}
		var want []int64
		next := library.Iterator()
		for at, ok := next(); ok && at.Before(until) && len(want) < most; at, ok = next() {
			want = append(want, at.Unix())
		}
		high := until.Unix()
		if len(want) == 120 {
			high = want[119] + 1
		}
		checkTicks(t, timing, start.Unix(), high, want)
	})
}

// isTimed reports whether a rule steps by hours, minutes or seconds.
func isTimed(o *rrule.ROption) bool {
	return o.Freq == rrule.HOURLY || o.Freq == rrule.MINUTELY || o.Freq == rrule.SECONDLY
}

// reachesDay reports whether a rule that is timed has a day between two moments.
func reachesDay(o *rrule.ROption, start, until time.Time) bool {
	for at := start; at.Before(until); at = at.AddDate(0, 0, 1) {
		fromEnd := at.YearDay() - time.Date(at.Year(), 12, 31, 0, 0, 0, 0, time.UTC).YearDay() - 1
		month := len(o.Bymonth) == 0 || slices.Contains(o.Bymonth, int(at.Month()))
		yearDay := len(o.Byyearday) == 0 || slices.Contains(o.Byyearday, at.YearDay()) || slices.Contains(o.Byyearday, fromEnd)
		weekday := len(o.Byweekday) == 0 || slices.ContainsFunc(o.Byweekday, func(d rrule.Weekday) bool { return (d.Day()+1)%7 == int(at.Weekday()) })
		if month && yearDay && weekday {
			return true
		}
	}
	return false
}

// reaches reports whether the steps of an hourly, minutely or secondly rule come to a time of day that its parts allow.
func reaches(o *rrule.ROption, start, until time.Time) bool {
	unit, timed := map[rrule.Frequency]time.Duration{rrule.HOURLY: time.Hour, rrule.MINUTELY: time.Minute, rrule.SECONDLY: time.Second}[o.Freq]
	if !timed {
		return true
	}
	in := func(list []int, n int) bool { return len(list) == 0 || slices.Contains(list, n) }
	for at := start; at.Before(until); at = at.Add(unit * time.Duration(max(1, o.Interval))) {
		if in(o.Byhour, at.Hour()) && (unit == time.Hour || in(o.Byminute, at.Minute())) && (unit != time.Second || in(o.Bysecond, at.Second())) {
			return true
		}
	}
	return false
}

func TestRulesCostTheSameTenYearsOn(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"FREQ=DAILY", "FREQ=MINUTELY", "FREQ=SECONDLY;INTERVAL=7", "FREQ=MONTHLY;INTERVAL=2;BYDAY=-1FR", "FREQ=WEEKLY;INTERVAL=2"} {
		timing := mustCompile(t, Spec{Timezone: "America/New_York", RRule: "DTSTART:19700105T090000\nRRULE:" + rule})
		within(t, rule, 15*time.Microsecond*slowness, func() { timing.Next(time.Date(2080, 6, 1, 0, 0, 0, 0, time.UTC)) })
	}
}

func TestTimingsAreSharedByGoroutines(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"FREQ=YEARLY;BYWEEKNO=20,-1;BYDAY=SU,MO", "FREQ=YEARLY;BYYEARDAY=100,1,-1", "FREQ=YEARLY;BYDAY=20MO,-1SU;BYSETPOS=-1", "FREQ=MONTHLY;INTERVAL=2;BYDAY=1MO,-1FR", "FREQ=MINUTELY;INTERVAL=7"} {
		timing := mustCompile(t, Spec{Timezone: "America/New_York", RRule: "DTSTART:20200105T090000\nRRULE:" + rule, Exclude: &Exclude{Dates: []string{"2026-12-28"}, Then: "next"}})
		want := ticksAfter(t, timing, "2026-01-01T00:00:00Z", 20)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if got := ticksAfter(t, timing, "2026-01-01T00:00:00Z", 20); !slices.Equal(got, want) {
					t.Errorf("%s: got %v, want %v", rule, got, want)
				}
				timing.Reading()
				timing.Canonical()
			})
		}
		wg.Wait()
	}
}
