package calendar

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func repeat(n int, part func(int) string) []string {
	var out []string
	for i := range n {
		out = append(out, part(i))
	}
	return out
}

// hostile are specs of at most 4 KiB that were made to cost much.
func hostile() map[string]Spec {
	every := Calendar{Second: "*", Minute: "*", Hour: "*"}
	withHour := func(h string) Calendar { c := every; c.Hour = h; return c }
	list := map[string]Spec{
		"never":                        {Cron: StringList{"0 0 30 2 *"}},
		"rare":                         {Cron: StringList{"0 0 29 2 1"}, DayMatch: "and"},
		"cancels out second by second": {Cron: StringList{"* * * * * *"}, Exclude: &Exclude{Calendars: []Calendar{every}}},
		"cancels out by hours":         {Cron: StringList{"* * * * * *"}, Exclude: &Exclude{Calendars: []Calendar{withHour("0-11"), withHour("12-23")}}},
		"cancels out by months": {Cron: StringList{"* * * * * *"}, Exclude: &Exclude{Calendars: []Calendar{
			{Second: "*", Minute: "*", Hour: "*", Month: "1-6"}, {Second: "*", Minute: "*", Hour: "*", Month: "7-12"}}}},
		"cancels out by seconds": {Cron: StringList{"* * * * * *"}, Exclude: &Exclude{Calendars: []Calendar{
			{Second: "*/2", Minute: "*", Hour: "*"}, {Second: "1/2", Minute: "*", Hour: "*"}}}},
		"leaves one second of a day": {Cron: StringList{"* * * * * *"}, Exclude: &Exclude{Calendars: []Calendar{
			withHour("0-22"), {Second: "*", Minute: "0-58", Hour: "23"}, {Second: "0-58", Minute: "59", Hour: "23"}}}},
		"cancels out days":      {Cron: StringList{"* * * * *"}, Exclude: &Exclude{Calendars: []Calendar{{DayOfMonth: "1-15"}, {DayOfMonth: "16-31"}}}},
		"moves all days":        {Cron: StringList{"* * * * *"}, Exclude: &Exclude{Calendars: []Calendar{{DayOfMonth: "2-31"}}, Then: "next"}},
		"moves all days back":   {Cron: StringList{"*/7 * * * * *"}, Exclude: &Exclude{Calendars: []Calendar{{Month: "2-12"}}, Then: "previous"}},
		"moves nowhere":         {Cron: StringList{"* * * * *"}, Exclude: &Exclude{Calendars: []Calendar{{Year: "1970-2199"}}, Then: "next"}},
		"moves too far":         {Cron: StringList{"* * * * *"}, Exclude: &Exclude{Calendars: []Calendar{{Year: "1971-2199"}}, Then: "previous"}},
		"interval cancels out":  {Intervals: []Interval{{Every: "2s"}}, Exclude: &Exclude{Calendars: []Calendar{{Second: "*/2", Minute: "*", Hour: "*"}}}},
		"interval nearly never": {Intervals: []Interval{{Every: "7s"}}, Exclude: &Exclude{Calendars: []Calendar{withHour("1-23"), {Second: "*", Minute: "1-59", Hour: "0"}, {Second: "1-59", Minute: "0", Hour: "0"}}}},
		"many crons":            {Cron: repeat(64, func(i int) string { return fmt.Sprintf("%d %d 29 2 1", i%60, i%24) }), DayMatch: "and"},
		"many moved crons":      {Cron: repeat(64, func(i int) string { return fmt.Sprintf("%d %d 29 2 *", i%60, i%24) }), Exclude: &Exclude{Calendars: []Calendar{{DayOfMonth: "29"}}, Then: "next"}},
	}
	s := Spec{Cron: repeat(60, func(i int) string { return fmt.Sprintf("%d * * * * *", i) }), Exclude: &Exclude{}}
	for i := range 40 {
		s.Exclude.Calendars = append(s.Exclude.Calendars, Calendar{Second: fmt.Sprintf("%d,%d", i, i+20), Minute: "*", Hour: "*"})
	}
	list["many crons and exclusions"] = s
	s = Spec{Cron: StringList{"* * * * * *"}, Exclude: &Exclude{}}
	for i := range 60 {
		s.Exclude.Calendars = append(s.Exclude.Calendars, Calendar{Second: fmt.Sprint(i), Minute: "*", Hour: "*", DayOfMonth: fmt.Sprintf("%d-%d", 1, 1+i%31)})
	}
	list["exclusions of every day their own"] = s
	for name, rule := range map[string]string{
		"hourly impossible":    "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30",
		"daily impossible":     "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;INTERVAL=2",
		"monthly impossible":   "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30;BYSETPOS=1",
		"yearly impossible":    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;INTERVAL=3",
		"weekly impossible":    "FREQ=WEEKLY;BYMONTH=2;BYDAY=MO;BYHOUR=1;BYSETPOS=2",
		"minutely rare":        "FREQ=MINUTELY;INTERVAL=10081;BYDAY=MO;BYHOUR=0;BYMINUTE=0",
		"secondly rare":        "FREQ=SECONDLY;INTERVAL=86399;BYHOUR=3;BYMINUTE=5;BYSECOND=7",
		"secondly rarer":       "FREQ=SECONDLY;INTERVAL=99991;BYHOUR=3;BYMINUTE=5;BYSECOND=7;BYMONTH=2;BYMONTHDAY=29",
		"minutely no position": "FREQ=MINUTELY;BYSETPOS=2",
		"hourly no position":   "FREQ=HOURLY;BYSETPOS=-2;COUNT=100000",
		"daily no position":    "FREQ=DAILY;BYSETPOS=2;COUNT=100000",
		"monthly no position":  "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6",
		"minutely out of step": "FREQ=MINUTELY;INTERVAL=60;BYMINUTE=30",
		"secondly out of step": "FREQ=SECONDLY;INTERVAL=2;BYSECOND=1,3,5,7;COUNT=100000",
		"secondly no such day": "FREQ=SECONDLY;INTERVAL=7;BYYEARDAY=366;BYMONTH=1",
		"hourly never by week": "FREQ=HOURLY;INTERVAL=168;BYDAY=WE",
		"all times":            "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23;BYMINUTE=" + strings.Join(repeat(60, func(i int) string { return fmt.Sprint(i) }), ",") + ";BYSECOND=" + strings.Join(repeat(60, func(i int) string { return fmt.Sprint(i) }), ","),
		"all times by place":   "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=-1,5,31622400;BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23;BYMINUTE=" + strings.Join(repeat(60, func(i int) string { return fmt.Sprint(i) }), ",") + ";BYSECOND=" + strings.Join(repeat(60, func(i int) string { return fmt.Sprint(i) }), ","),
		"counted days":         "FREQ=DAILY;INTERVAL=1;BYSETPOS=1;COUNT=100000",
		"counted seconds":      "FREQ=SECONDLY;INTERVAL=7;BYHOUR=1;COUNT=100000",
		"counted impossible":   "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=100000;INTERVAL=2",
		"counted months":       "FREQ=MONTHLY;BYDAY=1MO,2TU,-1FR,-2WE;COUNT=100000",
	} {
		list["rule "+name] = Spec{RRule: "DTSTART:19700105T000000\nRRULE:" + rule}
	}
	return list
}

func TestHostileSpecsCostLittle(t *testing.T) { // not parallel: it measures time
	for name, spec := range hostile() {
		t.Run(name, func(t *testing.T) {
			if b, _ := json.Marshal(spec); len(b) > 4600 {
				t.Fatalf("%d bytes", len(b))
			}
			spec.Timezone = "America/New_York"
			limit := 100 * time.Microsecond
			if spec.RRule != "" || strings.Contains(name, "interval") {
				limit = 10 * time.Millisecond
			}
			var timing *Timing
			var err error
			within(t, "compile", 50*time.Millisecond, func() { timing, err = Compile(spec, Context{}) })
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = Compile(spec, Context{})
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
				t.Errorf("compiling took %d bytes", grown)
			}
			if err != nil {
				t.Log(err)
				return
			}
			for _, year := range []int{1975, 2026, 2095} {
				at := time.Date(year, 3, 1, 0, 0, 0, 0, time.UTC)
				within(t, fmt.Sprintf("next in %d", year), limit, func() { timing.Next(at) })
				within(t, fmt.Sprintf("prev in %d", year), limit, func() { timing.Prev(at) })
			}
		})
	}
}

// within fails if the fastest of some calls uses more CPU time than a limit. Other work on the machine does not count.
func within(t *testing.T, what string, limit time.Duration, call func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := time.Duration(0)
	for range 20 {
		begin := threadTime()
		call()
		took := threadTime() - begin
		if best == 0 || took < best {
			best = took
		}
		if best < limit {
			return
		}
	}
	if best > limit*slowness {
		t.Errorf("%s took %s, want at most %s", what, best, limit)
	}
	t.Logf("%s took %s", what, best)
}

var began = time.Now()

// threadTime returns the CPU time of the calling thread, or the elapsed time if the system does not report it.
func threadTime() time.Duration {
	const ofThread = 1 // RUSAGE_THREAD
	var use syscall.Rusage
	if err := syscall.Getrusage(ofThread, &use); err != nil {
		return time.Since(began)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
