package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/sabotage"
)

// trial is a campaign that shows a bug within half a minute. Others show it, too, but later.
type trial struct {
	faults []string // no others; empty: all
	none   bool     // no faults: they would excuse what the bug does
	late   bool     // the bug shows only in ticks that never end, so an early check is useless
	pause  time.Duration
}

const (
	huntRound = 10 * time.Second // between two checks
	huntLate  = 15 * time.Second // of faults, for bugs that show only in ticks that never end
	huntDrain = 40 * time.Second // ticks that the bug leaves behind never end
)

var trials = map[sabotage.Bug]trial{
	sabotage.AsyncCommit:    {faults: []string{"postgres_kill", "postgres_immediate"}, pause: 40 * time.Millisecond},
	sabotage.LeasesNeverEnd: {late: true},
	sabotage.NoRetry:        {late: true},
	sabotage.NoTakeOver:     {faults: []string{"kill", "crash_point"}, late: true},
	sabotage.OrderIgnored:   {faults: []string{"stop", "kill", "lock_table", "latency"}},
	sabotage.ReadyKept:      {none: true},
	sabotage.ResumeReplays:  {pause: 100 * time.Millisecond},
	sabotage.RetimeForgets:  {faults: []string{"stop", "latency", "lock_table"}, pause: 100 * time.Millisecond},
}

// Found is the result of the hunt for one deliberate bug.
type Found struct {
	Bug     string         `json:"bug"`
	Caught  bool           `json:"caught"`
	Seconds float64        `json:"seconds"`
	ByRule  map[string]int `json:"by_rule"`
	Example *Violation     `json:"example,omitempty"`
}

// Hunt runs a campaign with each deliberate bug, or with the named ones, and returns which were caught.
func Hunt(ctx context.Context, o Options, names []string) (all []Found, err error) {
	bugs := sabotage.Bugs
	if len(names) > 0 {
		bugs = nil
		for _, n := range names {
			if !slices.Contains(sabotage.Bugs, sabotage.Bug(n)) {
				return nil, fmt.Errorf("there is no bug %q; the bugs are %v", n, sabotage.Bugs)
			}
			bugs = append(bugs, sabotage.Bug(n))
		}
	}
	o.Drain, o.Round = huntDrain, huntRound
	for _, b := range bugs {
		one := o
		one.Mutant = string(b)
		t := trials[b]
		one.Only, one.Pause = t.faults, cmp.Or(t.pause, o.Pause)
		if t.none {
			one.Faulty = 0
		}
		if t.late {
			one.Round, one.For = 0, min(one.For, huntLate)
		}
		o.Say("looking for %s", b)
		began := time.Now()
		v, err := Run(ctx, one)
		if err != nil {
			return all, fmt.Errorf("%s: %w", b, err)
		}
		f := Found{Bug: string(b), Caught: v.Violations > 0, Seconds: time.Since(began).Seconds(), ByRule: v.ByRule}
		if len(v.Examples) > 0 {
			f.Example = &v.Examples[0]
		}
		all = append(all, f)
		o.Say("%s", f)
	}
	return all, nil
}

// String returns a line of a table.
func (f Found) String() string {
	if !f.Caught {
		return fmt.Sprintf("%-24s NOT caught in %.0f s", f.Bug, f.Seconds)
	}
	return fmt.Sprintf("%-24s %3.0f s  %s: %s", f.Bug, f.Seconds, strings.Join(slices.Sorted(maps.Keys(f.ByRule)), " "), f.Example.What)
}
