package calendar

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// plainExclude is an exclusion tested day by day and minute by minute.
type plainExclude struct {
	days  map[int64]bool // by number
	whole []plainCron
	times []plainCron
	then  string
	known map[int64]bool
}

func (e plainExclude) day(w int64) bool {
	d := floorDiv(w, daySeconds)
	out, ok := e.known[d]
	if !ok {
		midnight := time.Unix(d*daySeconds, 0).UTC()
		out = e.days[d] || slices.ContainsFunc(e.whole, func(p plainCron) bool { return p.matches(midnight) })
		e.known[d] = out
	}
	return out
}

func (e plainExclude) time(w int64) bool {
	return slices.ContainsFunc(e.times, func(p plainCron) bool { return p.matches(time.Unix(w, 0).UTC()) })
}

// place is where a nominal wall time goes; false if it is dropped.
func (e plainExclude) place(w int64) (int64, bool) {
	step := int64(daySeconds)
	switch {
	case !e.day(w):
		return w, !e.time(w)
	case e.then == "drop":
		return 0, false
	case e.then == "previous":
		step = -step
	}
	for n := range int64(maxMoveDays) {
		if to := w + (n+1)*step; !e.day(to) {
			return to, !e.time(to)
		}
	}
	return 0, false
}

// span is what a zone's clock shows at each minute of some days.
type span struct {
	zone     string
	from, to int64
	offsets  []int64
	shown    map[int64][]int64
}

func newSpan(zone string, from time.Time, days int) span {
	s := span{zone: zone, from: from.Unix(), shown: map[int64][]int64{}}
	s.to = s.from + int64(days)*daySeconds
	loc := Embedded().Location(zone)
	for at := s.from; at < s.to; at += 60 {
		_, off := time.Unix(at, 0).In(loc).Zone()
		s.offsets = append(s.offsets, int64(off))
		s.shown[at+int64(off)] = append(s.shown[at+int64(off)], at)
	}
	return s
}

func (s span) wall(at int64) int64 { return at + s.offsets[(at-s.from)/60] }

// resolve puts the instants of a wall time into set.
func (s span) resolve(set map[int64]bool, w int64, gap, overlap string) {
	at := s.shown[w]
	if len(at) == 0 {
		if gap != "shift_forward" {
			return
		}
		for i := 1; i < len(s.offsets); i++ {
			before, after := s.from+int64(i-1)*60+s.offsets[i-1], s.from+int64(i)*60+s.offsets[i]
			if before < w && w < after {
				set[w-s.offsets[i-1]] = true
				return
			}
		}
		return
	}
	set[at[0]] = true
	if overlap == "both" {
		set[at[len(at)-1]] = true
	}
}

var spans = []span{
	newSpan("America/New_York", time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), 16),
	newSpan("America/New_York", time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC), 16),
	newSpan("Australia/Lord_Howe", time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC), 16),
	newSpan("America/Santiago", time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC), 16),
	newSpan("Pacific/Apia", time.Date(2011, 12, 24, 0, 0, 0, 0, time.UTC), 16),
	newSpan("UTC", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 16),
}

func drawField(t *rapid.T, label, any string, values ...string) string {
	return rapid.SampledFrom(append([]string{any, any}, values...)).Draw(t, label)
}

func drawCron(t *rapid.T) (string, Calendar) {
	minute := drawField(t, "minute", "0", "*/15", "30", "*", "7,38", "*/20")
	hour := drawField(t, "hour", "*", "2", "0", "1-3", "*/6", "23", "9,17")
	dom := drawField(t, "dom", "*", "1", "L", "1-10", "15W")
	month := drawField(t, "month", "*", "3,9,10,11,12")
	dow := drawField(t, "dow", "*", "1-5", "0", "6")
	if dom != "*" {
		dow = "*"
	}
	c := Calendar{Minute: minute, Hour: hour, DayOfMonth: dom, Month: month, DayOfWeek: dow}
	return strings.Join([]string{minute, hour, dom, month, dow}, " "), c
}

func TestExclusionsAgreeWithBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(spans).Draw(t, "span")
		spec := Spec{Timezone: s.zone, Exclude: &Exclude{Then: rapid.SampledFrom([]string{"drop", "next", "previous"}).Draw(t, "then")}}
		plain := plainExclude{days: map[int64]bool{}, known: map[int64]bool{}, then: spec.Exclude.Then}
		var crons []plainCron
		for range rapid.IntRange(0, 2).Draw(t, "crons") {
			text, _ := drawCron(t)
			spec.Cron = append(spec.Cron, text)
			crons = append(crons, newPlainCron(text))
		}
		every := int64(0)
		if len(crons) == 0 || rapid.Bool().Draw(t, "interval") {
			every = rapid.SampledFrom([]int64{60, 420, 900, 3600, 10800, 86400}).Draw(t, "every")
			spec.Intervals = []Interval{{Every: fmt.Sprintf("%ds", every)}}
		}
		for range rapid.IntRange(0, 2).Draw(t, "times") {
			text, c := drawCron(t)
			c.Second = rapid.SampledFrom([]string{"", "*", "0-30"}).Draw(t, "second")
			spec.Exclude.Calendars = append(spec.Exclude.Calendars, c)
			plain.times = append(plain.times, newPlainCron(text))
		}
		if rapid.Bool().Draw(t, "days") {
			_, c := drawCron(t)
			c.Minute, c.Hour = "", ""
			spec.Exclude.Calendars = append(spec.Exclude.Calendars, c)
			plain.whole = append(plain.whole, newPlainCron(strings.Join([]string{"0", "0", c.DayOfMonth, c.Month, c.DayOfWeek}, " ")))
		}
		var named []Date
		for i := range rapid.IntRange(0, 3).Draw(t, "dates") {
			d := int(s.from/daySeconds) + 4 + rapid.IntRange(0, 8).Draw(t, "date")
			plain.days[int64(d)] = true
			if i%2 == 0 {
				spec.Exclude.Dates = append(spec.Exclude.Dates, dateOf(d).String())
				continue
			}
			named = append(named, dateOf(d))
			spec.Exclude.Named = []string{"holidays"}
		}
		timing, err := Compile(spec, Context{Zones: Embedded(), Named: func(name string) ([]Date, bool) { return named, name == "holidays" }})
		if err != nil {
			t.Fatal(err)
		}
		want := bruteExcluded(s, crons, every, plain)
		// Brute force does not know the times that move in from outside the span. So the test compares only the middle of the span,
		// between bounds that no such move crosses.
		low, high := s.from+3*daySeconds, s.to-3*daySeconds
		if plain.then == "next" {
			low = middle(s, plain, low, daySeconds)
		} else if plain.then == "previous" {
			high = middle(s, plain, high, -daySeconds)
		}
		if low >= high {
			return
		}
		want = slices.DeleteFunc(want, func(at int64) bool { return at < low || at >= high })
		checkTicks(t, timing, low, high, want)
	})
}

// middle returns the first day boundary, in steps from at, beside a day towards the edge that is not excluded.
func middle(s span, e plainExclude, at, step int64) int64 {
	for at > s.from && at < s.to && e.day(s.wall(at)-step) {
		at += step
	}
	return at
}

func bruteExcluded(s span, crons []plainCron, every int64, e plainExclude) []int64 {
	set := map[int64]bool{}
	low, high := s.wall(s.from), s.wall(s.to-60)
	for _, p := range crons {
		gap, overlap := "shift_forward", "first"
		if len(p.hour) == 24 {
			gap, overlap = "skip", "both"
		}
		for w := low; w <= high; w += 60 {
			if !p.matches(time.Unix(w, 0).UTC()) {
				continue
			}
			if to, ok := e.place(w); ok {
				s.resolve(set, to, gap, overlap)
			}
		}
	}
	for at := s.from; every > 0 && at < s.to; at += 60 {
		if at%every != 0 {
			continue
		}
		w := s.wall(at)
		if !e.day(w) {
			if !e.time(w) {
				set[at] = true
			}
			continue
		}
		if to, ok := e.place(w); ok {
			s.resolve(set, to, "shift_forward", "first")
		}
	}
	var out []int64
	for at := range set {
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

// checkTicks compares Next, Prev and Count between two instants with the wanted ticks.
func checkTicks(t rapid.TB, timing *Timing, low, high int64, want []int64) {
	t.Helper()
	var forth, back []int64
	for tick := range timing.All(time.Unix(low-1, 0)) {
		if tick.At.Unix() >= high {
			break
		}
		forth = append(forth, tick.At.Unix())
	}
	for at := high; ; {
		tick, ok := timing.Prev(time.Unix(at, 0))
		if !ok || tick.At.Unix() < low {
			break
		}
		at = tick.At.Unix()
		back = append(back, at)
	}
	slices.Reverse(back)
	if !slices.Equal(forth, want) {
		t.Errorf("next: got %s, want %s", render(timing, forth), render(timing, want))
	}
	if !slices.Equal(back, want) {
		t.Errorf("prev: got %s, want %s", render(timing, back), render(timing, want))
	}
	if n := timing.Count(time.Unix(low, 0), time.Unix(high, 0)); n != len(want) {
		t.Errorf("count: got %d, want %d", n, len(want))
	}
}

func render(timing *Timing, list []int64) string {
	var out []string
	for i, at := range list {
		if i > 60 {
			break
		}
		out = append(out, timing.Local(time.Unix(at, 0)).Format("0102T1504-07"))
	}
	return fmt.Sprint(len(list), out)
}
