package calendar

import (
	"fmt"
	"runtime"
	"testing"
)

func TestBytesIsAboutWhatATimingTakes(t *testing.T) { // not parallel: it measures the heap
	strs := func(n int, f func(i int) string) (list []string) {
		for i := range n {
			list = append(list, f(i))
		}
		return list
	}
	cron := Spec{Cron: []string{"0 9 * * 1-5"}}
	some := func(change func(s *Spec)) Spec {
		s := cron
		change(&s)
		return s
	}
	timed := func(n int) (list []Calendar) {
		for i := range n {
			list = append(list, Calendar{Month: "12", DayOfMonth: "25", Hour: fmt.Sprint(i % 24), Minute: fmt.Sprint(i % 60)})
		}
		return list
	}
	for name, spec := range map[string]Spec{
		"cron":          cron,
		"interval":      {Intervals: []Interval{{Every: "5m"}}},
		"many crons":    {Cron: strs(40, func(i int) string { return fmt.Sprintf("%d 9 * * *", i) })},
		"many times":    {At: strs(200, func(i int) string { return fmt.Sprintf("2027-01-01T%02d:%02d:00", i/60, i%60) })},
		"rule":          {RRule: "DTSTART:20260105T090000\nRRULE:FREQ=MONTHLY;INTERVAL=2"},
		"numbered days": {RRule: "DTSTART:20260105T090000\nRRULE:FREQ=YEARLY;BYYEARDAY=1,50,100,200,-1"},
		"a day out":     some(func(s *Spec) { s.Exclude = &Exclude{Dates: []string{"2027-01-01"}} }),
		"days out": some(func(s *Spec) {
			s.Exclude = &Exclude{Dates: strs(300, func(i int) string { return fmt.Sprintf("2027-%02d-%02d", i/28+1, i%28+1) })}
		}),
		"days moved":     some(func(s *Spec) { s.Exclude = &Exclude{Dates: []string{"2027-01-01"}, Then: "next"} }),
		"a time out":     some(func(s *Spec) { s.Exclude = &Exclude{Calendars: timed(1)} }),
		"many times out": {Cron: strs(20, func(i int) string { return fmt.Sprintf("%d 9 * * *", i) }), Exclude: &Exclude{Calendars: timed(40)}},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Timezone = "America/New_York"
			first, err := Compile(spec, Context{})
			if err != nil {
				t.Fatal(err)
			}
			text := first.Canonical()
			n := max(20, 4<<20/first.Bytes()) // so many that other objects on the heap do not matter
			kept := make([]*Timing, n)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range kept {
				if kept[i], err = FromCanonical(text, Context{}); err != nil {
					t.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			got, takes := first.Bytes(), (int(after.HeapAlloc)-int(before.HeapAlloc))/n
			t.Logf("takes %d bytes, says %d", takes, got)
			if got < takes*3/4 || got > 4*takes {
				t.Errorf("takes %d bytes, says %d", takes, got)
			}
			runtime.KeepAlive(kept)
		})
	}
}
