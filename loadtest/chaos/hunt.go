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

// trial is what brings a bug to light. Any campaign would, in time; these do in half a minute.
type trial struct {
	faults []string // no others; empty: all
	none   bool     // no fault: it would only be an excuse for what the bug does
	late   bool     // what it does shows only in what never ends: there is no use in judging before all else has
	pause  time.Duration
}

const (
	huntRound = 10 * time.Second // between two looks at what has come of a bug
	huntLate  = 15 * time.Second // of faults, for what shows only in what never ends
	huntDrain = 40 * time.Second // what a bug has left for good need not be waited for
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

// Found is what the lab says of one deliberate bug.
type Found struct {
	Bug     string         `json:"bug"`
	Caught  bool           `json:"caught"`
	Seconds float64        `json:"seconds"`
	ByRule  map[string]int `json:"by_rule"`
	Example *Violation     `json:"example,omitempty"`
}

// Hunt runs a campaign with each of the deliberate bugs, or with those that are named, and tells which were caught.
func Hunt(ctx context.Context, o Options, names []string) (all []Found, err error) {
	bugs := sabotage.Bugs
	if len(names) > 0 {
		bugs = nil
		for _, n := range names {
			if !slices.Contains(sabotage.Bugs, sabotage.Bug(n)) {
				return nil, fmt.Errorf("there is no bug %q; there are %v", n, sabotage.Bugs)
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

// String is a line of a table.
func (f Found) String() string {
	if !f.Caught {
		return fmt.Sprintf("%-24s NOT caught in %.0f s", f.Bug, f.Seconds)
	}
	return fmt.Sprintf("%-24s %3.0f s  %s: %s", f.Bug, f.Seconds, strings.Join(slices.Sorted(maps.Keys(f.ByRule)), " "), f.Example.What)
}
