package calendar

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The oracle is a second calendar, written to be obvious: it asks the standard library what the clock shows at each minute around
// a transition, and tests each minute of the wall clock against the expression's fields.

var (
	fullOracle = flag.Bool("oracle.full", false, "compare with brute force around every transition of every zone, not a sample")
	oracleFrom = flag.Int("oracle.from", 2015, "the first year whose transitions are looked at")
	oracleTo   = flag.Int("oracle.to", 2037, "the last")
	oracleSeed = flag.Uint64("oracle.seed", uint64(time.Now().UnixNano()), "the seed of the sample")
)

var oracleCrons = []string{
	"* * * * *", "*/15 * * * *", "*/7 * * * *", "30 * * * *", "0 */2 * * *", "15 1-23/2 * * *", "0 0 * * *", "30 0 * * *",
	"0 1 * * *", "30 1 * * *", "0 2 * * *", "30 2 * * *", "*/10 2 * * *", "45 1,2,3 * * *", "0 3 * * *", "30 3 * * *", "15 4 * * *",
	"0 23 * * *", "30 23 * * *", "59 23 * * *", "0 9 * * 1-5", "30 1 * * 0", "30 2 * * SUN", "0 0 1 * *", "0 0 L * *", "30 1 LW * *",
	"0 2 15W * *", "30 2 * * SUN#2", "30 1 * * 0L", "0 0 1 * MON", "30 0 */2 * 0-6/2", "*/20 22-2 * * *", "1 0 31 12 *", "0 0 29 2 *",
	"0 6-8 * 3,4,9-11 *", "17,43 2 8-14 * *",
}

// plainCron is the fields of a five-field expression as lists that are tested one by one.
type plainCron struct {
	minute, hour, month map[int]bool
	dom, dow            string
	doms, dows          map[int]bool // of plain lists
}

func plainField(text string, low, high int, names string) map[int]bool {
	set := map[int]bool{}
	size := high - low + 1
	for part := range strings.SplitSeq(text, ",") {
		body, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		value := func(s string) int {
			if i := strings.Index(names, strings.ToUpper(s)); names != "" && i >= 0 {
				return low + i/3
			}
			v, err := strconv.Atoi(s)
			if err != nil {
				panic(err)
			}
			return v
		}
		from, to := low, high
		if body != "*" {
			a, b, ranged := strings.Cut(body, "-")
			from = value(a)
			to = from
			if ranged {
				to = value(b)
			} else if stepped {
				to = high
			}
		}
		if to < from {
			to += size
		}
		for v := from; v <= to; v += step {
			set[low+(v-low)%size] = true
		}
	}
	return set
}

func newPlainCron(text string) plainCron {
	f := strings.Fields(text)
	p := plainCron{minute: plainField(f[0], 0, 59, ""), hour: plainField(f[1], 0, 23, ""), month: plainField(f[3], 1, 12, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"), dom: f[2], dow: f[4]}
	if !strings.ContainsAny(p.dom, "LW") {
		p.doms = plainField(p.dom, 1, 31, "")
	}
	name, _, _ := strings.Cut(p.dow, "#")
	p.dows = plainField(strings.TrimSuffix(name, "L"), 0, 6, "SUNMONTUEWEDTHUFRISAT")
	return p
}

// matches says whether the expression names a wall time, given as a time in UTC.
func (p plainCron) matches(w time.Time) bool {
	if !p.minute[w.Minute()] || !p.hour[w.Hour()] || !p.month[int(w.Month())] {
		return false
	}
	length := time.Date(w.Year(), w.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	workday := func(day int) bool {
		d := time.Date(w.Year(), w.Month(), day, 0, 0, 0, 0, time.UTC).Weekday()
		return d != time.Saturday && d != time.Sunday
	}
	dom, dow := false, false
	switch {
	case p.dom == "L":
		dom = w.Day() == length
	case p.dom == "LW":
		day := length
		for !workday(day) {
			day--
		}
		dom = w.Day() == day
	case strings.HasSuffix(p.dom, "W"):
		want, _ := strconv.Atoi(strings.TrimSuffix(p.dom, "W"))
		for _, try := range []int{want, want - 1, want + 1, want - 2, want + 2} {
			if try >= 1 && try <= length && want <= length && workday(try) {
				dom = w.Day() == try
				break
			}
		}
	default:
		dom = p.doms[w.Day()]
	}
	dow = p.dows[int(w.Weekday())]
	if _, kth, nth := strings.Cut(p.dow, "#"); nth {
		k, _ := strconv.Atoi(kth)
		dow = dow && (w.Day()-1)/7+1 == k
	}
	if strings.HasSuffix(p.dow, "L") {
		dow = dow && w.Day() > length-7
	}
	if p.dom[0] != '*' && p.dow[0] != '*' {
		return dom || dow
	}
	return dom && dow
}

// window is what a zone's clock shows at each minute of two days and a half around a transition.
type window struct {
	from   int64
	walls  []int64           // by minute
	shown  map[int64][]int64 // instants by wall
	before int64             // the offset before the transition
}

const windowHours = 60

func newWindow(loc *time.Location, transition int64) window {
	v := window{from: transition - transition%60 - windowHours/2*3600, shown: map[int64][]int64{}}
	offset := func(at int64) int64 {
		_, o := time.Unix(at, 0).In(loc).Zone()
		return int64(o)
	}
	for at := v.from; at < v.from+windowHours*3600; at += 60 {
		w := at + offset(at)
		v.walls = append(v.walls, w)
		v.shown[w] = append(v.shown[w], at)
	}
	v.before = offset(transition - 1)
	return v
}

// ticks are the instants that an expression names in the window, by the rules and nothing else.
func (v window) ticks(p plainCron, gap, overlap string) []int64 {
	if len(p.hour) == 24 {
		gap, overlap = replaceAuto(gap, "skip"), replaceAuto(overlap, "both")
	}
	gap, overlap = replaceAuto(gap, "shift_forward"), replaceAuto(overlap, "first")
	set := map[int64]bool{}
	low, high := slices.Min(v.walls), slices.Max(v.walls)
	for w := low; w <= high; w += 60 {
		if !p.matches(time.Unix(w, 0).UTC()) {
			continue
		}
		at := v.shown[w]
		switch {
		case len(at) == 1:
			set[at[0]] = true
		case len(at) > 1:
			if overlap != "last" {
				set[at[0]] = true
			}
			if overlap != "first" {
				set[at[len(at)-1]] = true
			}
		case gap == "shift_forward":
			set[w-v.before] = true
		case gap == "next_valid":
			for i := range v.walls {
				if v.walls[i] > w {
					set[v.from+int64(i)*60] = true
					break
				}
			}
		}
	}
	var out []int64
	for at := range set {
		if at >= v.from+2*3600 && at < v.from+(windowHours-2)*3600 { // what its edge hides does not count
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return out
}

func replaceAuto(policy, by string) string {
	if policy == "auto" {
		return by
	}
	return policy
}

// site is a transition of a zone.
type site struct {
	zone string
	at   int64
}

func sites(t *testing.T, from, to int) []site {
	t.Helper()
	var list []site
	seen := map[string]bool{}
	for _, name := range Embedded().Names() {
		data := string(Embedded().data(name))
		if seen[data] {
			continue
		}
		seen[data] = true
		z := Embedded().zone(name)
		for _, at := range z.starts {
			if year := time.Unix(at, 0).UTC().Year(); year >= from && year <= to {
				list = append(list, site{name, at})
			}
		}
	}
	return list
}

func TestNextAndPrevAgreeWithBruteForce(t *testing.T) {
	t.Parallel()
	list := sites(t, *oracleFrom, *oracleTo)
	if !*fullOracle {
		t.Logf("-oracle.seed=%d", *oracleSeed)
		r := rand.New(rand.NewPCG(*oracleSeed, 1))
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:60]
	}
	plain := map[string]plainCron{}
	for _, cron := range oracleCrons {
		plain[cron] = newPlainCron(cron)
	}
	for part := range 4 {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := part; i < len(list); i += 4 {
				compareSite(t, list[i], plain)
			}
		})
	}
}

func compareSite(t *testing.T, s site, plain map[string]plainCron) {
	v := newWindow(Embedded().Location(s.zone), s.at)
	for n, cron := range oracleCrons {
		policies := []DST{{"auto", "auto"}, {"skip", "both"}, {"next_valid", "last"}, {"shift_forward", "first"}, {"skip", "last"}, {"next_valid", "both"}}
		for _, dst := range []DST{policies[0], policies[1+(n+int(s.at/1000))%5]} {
			timing, err := Compile(Spec{Timezone: s.zone, Cron: StringList{cron}, DST: dst}, Context{Zones: Embedded()})
			if err != nil {
				t.Fatal(err)
			}
			want := v.ticks(plain[cron], dst.Gap, dst.Overlap)
			low, high := v.from+2*3600, v.from+(windowHours-2)*3600
			var forth, back []int64
			at := low - 1
			for {
				tick, ok := timing.Next(time.Unix(at, 0))
				if ok && tick.At.Unix() <= at {
					t.Fatalf("%s %s %v: next of %d is %d", s.zone, cron, dst, at, tick.At.Unix())
				}
				if !ok || tick.At.Unix() >= high {
					break
				}
				at = tick.At.Unix()
				forth = append(forth, at)
			}
			at = high
			for {
				tick, ok := timing.Prev(time.Unix(at, 0))
				if !ok || tick.At.Unix() < low {
					break
				}
				at = tick.At.Unix()
				back = append(back, at)
			}
			slices.Reverse(back)
			if n := timing.Count(time.Unix(low, 0), time.Unix(high, 0)); n != len(want) {
				t.Errorf("%s at %d: %s %v: counted %d, want %d", s.zone, s.at, cron, dst, n, len(want))
			}
			if !slices.Equal(forth, want) {
				t.Errorf("%s at %d: %s %v: next gives %v, want %v", s.zone, s.at, cron, dst, forth, want)
			}
			if !slices.Equal(back, want) {
				t.Errorf("%s at %d: %s %v: prev gives %v, want %v", s.zone, s.at, cron, dst, back, want)
			}
		}
	}
}
