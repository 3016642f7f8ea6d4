package calendar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// hold checks what holds for every timing: that next is later and prev earlier, that each finds the other's tick, and that the
// canonical form reads back as itself.
func hold(t *testing.T, spec Spec) {
	t.Helper()
	c := Context{Created: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), Identity: "fuzz", SubjectZone: "Europe/Berlin"}
	timing, err := Compile(spec, c)
	if err != nil {
		return
	}
	b := timing.Canonical()
	again, err := FromCanonical(b, c)
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if !bytes.Equal(again.Canonical(), b) {
		t.Fatalf("%s reads back as %s", b, again.Canonical())
	}
	timing.Reading()
	timing.Warnings(c.Created)
	timing.MinGap(c.Created)
	if _, ok := timing.FixedDelay(); ok {
		return
	}
	_, ever := timing.Next(time.Unix(-1, 0))
	if last, any := timing.Prev(time.Unix(maxWall+2*daySeconds, 0)); any != ever {
		t.Fatalf("%s: it has a first tick: %v; its last one is %v", b, ever, last)
	}
	at := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for range 5 {
		tick, ok := timing.Next(at)
		other, okAgain := again.Next(at)
		if ok != okAgain || tick != other {
			t.Fatalf("%s: next of %s is %v and %v", b, at, tick, other)
		}
		if !ok {
			return
		}
		if !tick.At.After(at) {
			t.Fatalf("%s: next of %s is %s", b, at, tick.At)
		}
		back, ok := timing.Prev(tick.At.Add(time.Second))
		if !ok || back != tick {
			t.Fatalf("%s: %v is before %s, not %v", b, back, tick.At.Add(time.Second), tick)
		}
		if between, ok := timing.Prev(tick.At); ok && between.At.After(at) {
			t.Fatalf("%s: next of %s is %s, but %s lies between", b, at, tick.At, between.At)
		}
		if why := timing.Absence(tick.At); why != AbsentNot {
			t.Fatalf("%s: the tick at %s is %s", b, tick.At, why)
		}
		timing.Absence(tick.At.Add(time.Second))
		at = tick.At
	}
}

func FuzzCron(f *testing.F) {
	for _, cron := range append(oracleCrons, "H H(1-5)/2 H * H", "0 0 12 L-3 * ? 2026-2030/2", "@every 1h30m", "TZ=Europe/Berlin 0 9 * * *", "@weekly", "0 0 ? * 6#3", "0 12 15W,LW,L * *", "50-10/5 22-2 25-5 NOV-FEB FRI-MON", "* * * * * *", "0-", ",", "*/", "9999999999999999999 * * * *") {
		f.Add(cron, false)
	}
	f.Fuzz(func(t *testing.T, cron string, and bool) {
		spec := Spec{Timezone: "Europe/Berlin", Cron: StringList{cron}}
		if and {
			spec.DayMatch = "and"
		}
		hold(t, spec)
	})
}

func FuzzRule(f *testing.F) {
	f.Add("DTSTART;TZID=Europe/Berlin:20260105T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE\nEXDATE:20260107T090000\nRDATE;VALUE=DATE:20260108")
	for _, rule := range []string{"FREQ=HOURLY;INTERVAL=2;BYHOUR=1", "FREQ=MONTHLY;BYDAY=-1FR;BYSETPOS=1", "FREQ=YEARLY;BYWEEKNO=-1,53;WKST=SU", "FREQ=SECONDLY;INTERVAL=86399;BYHOUR=1", "FREQ=DAILY;COUNT=7;BYHOUR=1,2,3;BYSETPOS=-1,2",
		"FREQ=YEARLY;BYYEARDAY=-366;UNTIL=20400101T000000Z", "FREQ=MONTHLY;BYMONTHDAY=-31;INTERVAL=11", "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6", "FREQ=MINUTELY;BYSETPOS=2;COUNT=5"} {
		f.Add("DTSTART:20260105T013000\nRRULE:" + rule)
	}
	f.Fuzz(func(t *testing.T, rule string) {
		hold(t, Spec{Timezone: "Europe/Berlin", RRule: rule})
		hold(t, Spec{Timezone: "Europe/Berlin", RRule: "DTSTART:20260105T013000\nRRULE:" + rule})
	})
}

func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"timezone":"America/New_York","cron":"0 8 * * 1-5","exclude":{"dates":["2027-01-01"],"calendars":[{"month":"12","day_of_month":"25"},{"hour":"8"}],"then":"next"},"jitter":"5m"}`))
	f.Add([]byte(`{"intervals":[{"every":"2d","mode":"fixed_rate"},{"every":"90s","offset":"7s"}],"at":["2026-12-24T18:00:00","2026-12-24T18:00:00Z"],"start_at":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"timezone":"America/New_York","relative":[{"to":"2026-11-20T15:00:00Z","days":3,"at":"10:00"},{"to":"2026-03-08T02:30:00","offset":"-24h"}]}`))
	f.Add([]byte(`{"timezone":"@subject","calendars":[{"second":"*/7","year":"2026-2030","day_of_week":"MON#1"}],"dst":{"gap":"next_valid","overlap":"last"},"exclude":{"calendars":[{"second":"*","minute":"*","hour":"*"}],"then":"previous"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var spec Spec
		if len(b) > 4096 || json.Unmarshal(b, &spec) != nil {
			return
		}
		hold(t, spec)
	})
}

func FuzzDuration(f *testing.F) {
	for _, text := range []string{"90s", "1h30m", "1d", "2w", "0s", "1ms", "999999999999w"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, civil, err := parseDuration(text)
		if err != nil {
			return
		}
		if d < 0 || d%time.Second != 0 || civil && d%(24*time.Hour) != 0 {
			t.Errorf("%q is %s, civil %v", text, d, civil)
		}
		again, _, err := parseDuration(fmt.Sprintf("%ds", d/time.Second))
		if err != nil || again != d {
			t.Errorf("%q is %s, and in seconds %s %v", text, d, again, err)
		}
	})
}

func FuzzZone(f *testing.F) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Africa/Casablanca", "UTC"} {
		f.Add(Embedded().data(name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		z, err := newZone("fuzz", data)
		if err != nil {
			return
		}
		if !slices.IsSorted(z.starts) {
			t.Errorf("transitions out of order: %v", z.starts)
		}
		z.wall(1_800_000_000)
	})
}
