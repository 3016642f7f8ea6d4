// Command bench compares the calendar with other Go libraries on common cron expressions, in one run on one machine. It also measures the
// memory of a zone and of a compiled spec.
//
// The libraries run in turn, in slices of about half a millisecond. The result is the fastest slice of each library, so that other load
// on the machine has little effect.
//
//	go run . [--json] [--slices 100]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/adhocore/gronx"
	gorhill "github.com/gorhill/cronexpr"
	hashicorp "github.com/hashicorp/cronexpr"
	netresearch "github.com/netresearch/go-cron"
	robfig "github.com/robfig/cron/v3"

	"github.com/carillonhq/carillon/calendar"
)

var (
	crons = []string{"* * * * *", "*/15 * * * *", "0 9 * * *", "0 9 * * 1-5", "0 0 1 * *", "0 0 29 2 *"}
	zones = []string{"UTC", "America/New_York", "Europe/Berlin"}
	rules = []string{"FREQ=DAILY", "FREQ=WEEKLY;BYDAY=MO,WE,FR", "FREQ=WEEKLY;INTERVAL=2", "FREQ=MONTHLY;BYDAY=-1FR", "FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=31", "FREQ=HOURLY", "FREQ=MINUTELY", "FREQ=MINUTELY;INTERVAL=15"}
)

// library is a cron library. make returns a function that finds the next time of a cron, in the zone of its argument.
type library struct {
	name string
	make func(cron string) (func(time.Time) time.Time, error)
}

var peers = []library{
	{"robfig/cron", func(cron string) (func(time.Time) time.Time, error) {
		s, err := robfig.ParseStandard(cron)
		return s.Next, err
	}},
	{"hashicorp/cronexpr", func(cron string) (func(time.Time) time.Time, error) {
		e, err := hashicorp.Parse(cron)
		return e.Next, err
	}},
	{"gorhill/cronexpr", func(cron string) (func(time.Time) time.Time, error) {
		e, err := gorhill.Parse(cron)
		return e.Next, err
	}},
	{"adhocore/gronx", func(cron string) (func(time.Time) time.Time, error) {
		return func(t time.Time) time.Time {
			next, _ := gronx.NextTickAfter(cron, t, false)
			return next
		}, nil
	}},
	{"netresearch/go-cron", func(cron string) (func(time.Time) time.Time, error) {
		s, err := netresearch.ParseStandard(cron)
		if err != nil {
			return nil, err
		}
		return s.Next, nil
	}},
}

// row is the result for one cron in one zone: the nanoseconds of a Next, by library.
type row struct {
	Zone    string             `json:"zone"`
	Spec    string             `json:"spec"`
	Ours    float64            `json:"ours_ns"`
	Allocs  int64              `json:"ours_allocs"`
	Floor   float64            `json:"in_and_date_ns,omitempty"`
	Peers   map[string]float64 `json:"peers_ns,omitempty"`
	Faster  float64            `json:"times_faster_than_fastest,omitempty"`
	Floored float64            `json:"times_floor,omitempty"`
}

type memory struct {
	Zone  float64 `json:"bytes_per_zone"`
	Specs []size  `json:"bytes_per_compiled_spec"`
}

type size struct {
	Spec  string  `json:"spec"`
	Bytes float64 `json:"bytes"`
}

type report struct {
	Go     string `json:"go"`
	CPUs   int    `json:"cpus"`
	Zones  string `json:"tzdata"`
	Crons  []row  `json:"crons"`
	Rules  []row  `json:"rules"`
	Memory memory `json:"memory"`
	Holds  bool   `json:"holds"`
}

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object")
	slices := flag.Int("slices", 100, "slices of each contender")
	flag.Parse()
	r, err := measure(*slices)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
	} else {
		r.print(os.Stdout)
	}
	if !r.Holds {
		os.Exit(1)
	}
}

func measure(slices int) (report, error) {
	r := report{Go: runtime.Version(), CPUs: runtime.NumCPU(), Zones: calendar.Embedded().Version(), Holds: true}
	r.Memory = measureMemory()
	for _, zone := range zones {
		for _, cron := range crons {
			one, err := measureCron(slices, zone, cron)
			if err != nil {
				return r, err
			}
			r.Holds = r.Holds && one.Faster >= 5 && one.Floored <= 3 && one.Allocs == 0
			r.Crons = append(r.Crons, one)
		}
	}
	for _, rule := range rules {
		t, err := calendar.Compile(calendar.Spec{Timezone: "America/New_York", RRule: "DTSTART:20160101T090000\nRRULE:" + rule}, calendar.Context{})
		if err != nil {
			return r, err
		}
		at := instants(time.UTC)
		ns := race(slices, []func(int){func(i int) { t.Next(at[i&1023]) }})[0]
		r.Holds = r.Holds && ns <= 15_000
		r.Rules = append(r.Rules, row{Zone: "America/New_York", Spec: rule, Ours: ns, Allocs: allocs(t)})
	}
	return r, nil
}

func measureCron(slices int, zone, cron string) (row, error) {
	one := row{Zone: zone, Spec: cron, Peers: map[string]float64{}}
	t, err := calendar.Compile(calendar.Spec{Timezone: zone, Cron: calendar.StringList{cron}}, calendar.Context{})
	if err != nil {
		return one, err
	}
	loc, err := time.LoadLocation(zone) // the machine's own tz database, which is often the faster one
	if err != nil {
		return one, err
	}
	utc, local := instants(time.UTC), instants(loc)
	calls := []func(int){
		func(i int) { t.Next(utc[i&1023]) },
		func(i int) {
			l := utc[i&1023].In(loc)
			y, m, d := l.Date()
			_ = time.Date(y, m, d+1, 9, 0, 0, 0, loc)
		},
	}
	for _, p := range peers {
		next, err := p.make(cron)
		if err != nil {
			return one, fmt.Errorf("%s: %w", p.name, err)
		}
		calls = append(calls, func(i int) { next(local[i&1023]) })
	}
	ns := race(slices, calls)
	one.Ours, one.Floor, one.Allocs = ns[0], ns[1], allocs(t)
	fastest := ns[2]
	for i, p := range peers {
		one.Peers[p.name] = ns[2+i]
		fastest = min(fastest, ns[2+i])
	}
	one.Faster, one.Floored = fastest/one.Ours, one.Ours/one.Floor
	return one, nil
}

// instants returns instants in 2025 and 2026, in a zone.
func instants(loc *time.Location) []time.Time {
	var at [1024]time.Time
	for i := range at {
		at[i] = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i*61681) * time.Second).In(loc)
	}
	return at[:]
}

// race runs the calls in turn, in slices. It returns the nanoseconds of one call in the fastest slice of each.
func race(slices int, calls []func(int)) []float64 {
	best := make([]float64, len(calls))
	n := make([]int, len(calls))
	for i, call := range calls {
		for n[i] = 64; slice(call, n[i]) < 500*time.Microsecond; n[i] *= 2 {
		}
	}
	for range slices {
		for i, call := range calls {
			ns := float64(slice(call, n[i])) / float64(n[i])
			if best[i] == 0 || ns < best[i] {
				best[i] = ns
			}
		}
	}
	return best
}

func slice(call func(int), n int) time.Duration {
	begin := time.Now()
	for i := range n {
		call(i * 389) // every instant, in a mixed order
	}
	return time.Since(begin)
}

func allocs(t *calendar.Timing) int64 {
	at := instants(time.UTC)
	i := 0
	return int64(testing.AllocsPerRun(1000, func() {
		t.Next(at[i&1023])
		i++
	}))
}

func measureMemory() memory {
	names := calendar.Embedded().Names()
	m := memory{}
	var kept []*calendar.Timing
	m.Zone = grown(len(names), func(i int) {
		t, err := calendar.Compile(calendar.Spec{Timezone: names[i], Cron: calendar.StringList{"0 9 * * *"}}, calendar.Context{})
		if err == nil {
			kept = append(kept, t)
		}
	})
	for _, spec := range []struct {
		name string
		calendar.Spec
	}{
		{"0 9 * * 1-5", calendar.Spec{Timezone: "America/New_York", Cron: calendar.StringList{"0 9 * * 1-5"}}},
		{"every 5m", calendar.Spec{Intervals: []calendar.Interval{{Every: "5m"}}}},
		{"FREQ=MONTHLY;INTERVAL=2", calendar.Spec{RRule: "DTSTART:20260131T090000\nRRULE:FREQ=MONTHLY;INTERVAL=2"}},
		{"0 9 * * * without two dates", calendar.Spec{Cron: calendar.StringList{"0 9 * * *"}, Exclude: &calendar.Exclude{Dates: []string{"2026-12-25", "2027-01-01"}}}},
	} {
		var all [1000]*calendar.Timing
		bytes := grown(len(all), func(i int) { all[i], _ = calendar.Compile(spec.Spec, calendar.Context{}) })
		m.Specs = append(m.Specs, size{spec.name, bytes})
		runtime.KeepAlive(&all)
	}
	m.Zone -= m.Specs[0].Bytes // without the spec that each zone was compiled with
	runtime.KeepAlive(kept)
	return m
}

// grown returns the bytes of heap that each of n calls allocates and keeps.
func grown(n int, call func(int)) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		call(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
}

func (r report) print(out io.Writer) {
	fmt.Fprintf(out, "%s, %d CPUs, tzdata %s; nanoseconds of one Next, the fastest slice of each\n\n", r.Go, r.CPUs, r.Zones)
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	names := make([]string, 0, len(peers))
	for _, p := range peers {
		names = append(names, p.name)
	}
	fmt.Fprintf(w, "| zone\t| cron\t| ours\t| allocs\t| %s\t| times faster\t| In+Date\t| of In+Date\t|\n", strings.Join(names, "\t| "))
	fmt.Fprintf(w, "|%s\n", strings.Repeat(" ---\t|", 7+len(names)))
	for _, c := range r.Crons {
		fmt.Fprintf(w, "| %s\t| `%s`\t| %.0f\t| %d\t", c.Zone, c.Spec, c.Ours, c.Allocs)
		for _, n := range names {
			fmt.Fprintf(w, "| %.0f\t", c.Peers[n])
		}
		fmt.Fprintf(w, "| %.1f\t| %.0f\t| %.1f\t|\n", c.Faster, c.Floor, c.Floored)
	}
	_ = w.Flush()
	fmt.Fprint(out, "\nRules in New York, ten years after DTSTART:\n\n")
	fmt.Fprint(w, "| rule\t| ns\t| allocs\t|\n| ---\t| ---\t| ---\t|\n")
	for _, c := range r.Rules {
		fmt.Fprintf(w, "| `%s`\t| %.0f\t| %d\t|\n", c.Spec, c.Ours, c.Allocs)
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\nMemory:\n\n| what | bytes |\n| --- | --- |\n| a zone's table and data | %.0f |\n", r.Memory.Zone)
	for _, s := range r.Memory.Specs {
		fmt.Fprintf(out, "| compiled `%s` | %.0f |\n", s.Spec, s.Bytes)
	}
}
