package calendar

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// story is a spec and what it gives around a change of the clock.
type story struct {
	name  string
	zone  string
	cron  string
	dst   DST
	after string
	want  []string // local time, and the note where there is one
}

func (s story) check(t *testing.T) {
	t.Helper()
	timing := mustCompile(t, Spec{Timezone: s.zone, Cron: StringList{s.cron}, DST: s.dst})
	after, err := time.Parse(time.RFC3339, s.after)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for tick := range timing.All(after) {
		if len(got) == len(s.want) {
			break
		}
		text := timing.Local(tick.At).Format("Mon 2006-01-02 15:04 -07:00")
		if tick.DST != DSTNone {
			text += " " + tick.DST.String()
		}
		got = append(got, text)
	}
	if !slices.Equal(got, s.want) {
		t.Errorf("%s %s %v\ngot  %s\nwant %s", s.zone, s.cron, s.dst, strings.Join(got, "; "), strings.Join(s.want, "; "))
	}
}

// Each of these is a case that some widely used scheduler gets wrong.
func TestStories(t *testing.T) {
	t.Parallel()
	for _, s := range []story{
		{"London's midnights come once each", "Europe/London", "0 0 * * *", DST{}, "2026-10-24T12:00:00Z",
			[]string{"Sun 2026-10-25 00:00 +01:00", "Mon 2026-10-26 00:00 +00:00", "Tue 2026-10-27 00:00 +00:00"}},
		{"London's 01:30 is shown twice and comes once", "Europe/London", "30 1 * * *", DST{}, "2026-10-24T12:00:00Z",
			[]string{"Sun 2026-10-25 01:30 +01:00 overlap_first", "Mon 2026-10-26 01:30 +00:00"}},
		{"London's 01:30 is skipped and comes at 02:30", "Europe/London", "30 1 * * *", DST{}, "2026-03-28T12:00:00Z",
			[]string{"Sun 2026-03-29 02:30 +01:00 gap", "Mon 2026-03-30 01:30 +01:00"}},
		{"Berlin's 01:00 is before the change", "Europe/Berlin", "0 1 * * *", DST{}, "2026-10-24T12:00:00Z",
			[]string{"Sun 2026-10-25 01:00 +02:00", "Mon 2026-10-26 01:00 +01:00"}},
		{"Berlin's half hours keep their pace", "Europe/Berlin", "*/30 * * * *", DST{}, "2026-10-24T23:59:00Z",
			[]string{"Sun 2026-10-25 02:00 +02:00 overlap_first", "Sun 2026-10-25 02:30 +02:00 overlap_first", "Sun 2026-10-25 02:00 +01:00 overlap_second",
				"Sun 2026-10-25 02:30 +01:00 overlap_second", "Sun 2026-10-25 03:00 +01:00"}},
		{"Apia has no 30 December 2011", "Pacific/Apia", "0 9 * * *", DST{}, "2011-12-29T00:00:00Z",
			[]string{"Thu 2011-12-29 09:00 -10:00", "Sat 2011-12-31 09:00 +14:00", "Sun 2012-01-01 09:00 +14:00"}},
		{"Apia's hours go on", "Pacific/Apia", "0 * * * *", DST{}, "2011-12-30T08:30:00Z",
			[]string{"Thu 2011-12-29 23:00 -10:00", "Sat 2011-12-31 00:00 +14:00", "Sat 2011-12-31 01:00 +14:00"}},
		{"Apia's skipped day left out", "Pacific/Apia", "0 9 30 12 *", DST{Gap: "skip"}, "2011-01-01T00:00:00Z",
			[]string{"Sun 2012-12-30 09:00 +14:00"}},
		{"Caracas skips half an hour", "America/Caracas", "*/10 2 * * *", DST{}, "2016-05-01T06:00:00Z",
			[]string{"Sun 2016-05-01 02:00 -04:30", "Sun 2016-05-01 02:10 -04:30", "Sun 2016-05-01 02:20 -04:30", "Sun 2016-05-01 03:00 -04:00 gap",
				"Sun 2016-05-01 03:10 -04:00 gap", "Sun 2016-05-01 03:20 -04:00 gap", "Mon 2016-05-02 02:00 -04:00"}},
		{"Lord Howe goes back half an hour", "Australia/Lord_Howe", "45 1 * * *", DST{}, "2026-04-04T00:00:00Z",
			[]string{"Sun 2026-04-05 01:45 +11:00 overlap_first", "Mon 2026-04-06 01:45 +10:30"}},
		{"Lord Howe's hours", "Australia/Lord_Howe", "0 * * * *", DST{}, "2026-10-03T14:00:00Z",
			[]string{"Sun 2026-10-04 01:00 +10:30", "Sun 2026-10-04 03:00 +11:00", "Sun 2026-10-04 04:00 +11:00"}},
		{"Troll skips two hours", "Antarctica/Troll", "30 1 * * *", DST{}, "2026-03-28T12:00:00Z",
			[]string{"Sun 2026-03-29 03:30 +02:00 gap", "Mon 2026-03-30 01:30 +02:00"}},
		{"Troll goes back two hours", "Antarctica/Troll", "30 1,2 * * *", DST{Overlap: "both"}, "2026-10-24T12:00:00Z",
			[]string{"Sun 2026-10-25 01:30 +02:00 overlap_first", "Sun 2026-10-25 02:30 +02:00 overlap_first", "Sun 2026-10-25 01:30 +00:00 overlap_second", "Sun 2026-10-25 02:30 +00:00 overlap_second"}},
		{"Santiago has a Sunday without midnight", "America/Santiago", "0 6 * * 0", DST{}, "2025-09-06T00:00:00Z",
			[]string{"Sun 2025-09-07 06:00 -03:00", "Sun 2025-09-14 06:00 -03:00"}},
		{"Chatham's three o'clock is in the future", "Pacific/Chatham", "0 3 * * *", DST{}, "2027-04-03T14:05:00Z",
			[]string{"Mon 2027-04-05 03:00 +12:45"}},
		{"Dublin's winter is its daylight saving", "Europe/Dublin", "30 1 * * *", DST{}, "2026-10-24T12:00:00Z",
			[]string{"Sun 2026-10-25 01:30 +01:00 overlap_first", "Mon 2026-10-26 01:30 +00:00"}},
		{"Cairo skips midnight", "Africa/Cairo", "0 0 * * 5", DST{Gap: "next_valid"}, "2026-04-23T12:00:00Z",
			[]string{"Fri 2026-04-24 01:00 +03:00 gap", "Fri 2026-05-01 00:00 +03:00"}},
		{"Havana shows midnight twice", "America/Havana", "0 0 * * *", DST{Overlap: "last"}, "2024-11-02T12:00:00Z",
			[]string{"Sun 2024-11-03 00:00 -05:00 overlap_second", "Mon 2024-11-04 00:00 -05:00"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.check(t)
		})
	}
}

// The examples are the tables in docs/dst.md: zone, cron, policies, the instant after which to search, and the ticks that follow.
func TestExamplesOfThePromise(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/dst.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var s story
	flush := func() {
		if s.cron != "" {
			n++
			t.Run(fmt.Sprint(n), s.check)
		}
		s = story{}
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, ": "); ok && s.want == nil {
			switch name {
			case "zone":
				s.zone = value
			case "cron":
				s.cron = value
			case "gap":
				s.dst.Gap = value
			case "overlap":
				s.dst.Overlap = value
			case "after":
				s.after = value
			}
		}
		if tick, ok := strings.CutPrefix(line, "-> "); ok {
			s.want = append(s.want, tick)
		}
		if line == "```" {
			flush()
		}
	}
	if n < 10 {
		t.Errorf("%d examples", n)
	}
}
