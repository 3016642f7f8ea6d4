package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/sabotage"
)

// calm are the bugs that show when all goes well; a fault would only be an excuse for what they do.
var calm = []sabotage.Bug{sabotage.ReadyKept}

// Found is what the lab says of one deliberate bug.
type Found struct {
	Bug     string         `json:"bug"`
	Caught  bool           `json:"caught"`
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
	o.Drain = 45 * time.Second // what a bug has left for good need not be waited for
	for _, b := range bugs {
		one := o
		one.Mutant = string(b)
		if slices.Contains(calm, b) {
			one.Faulty = 0
		}
		o.Say("looking for %s", b)
		v, err := Run(ctx, one)
		if err != nil {
			return all, fmt.Errorf("%s: %w", b, err)
		}
		f := Found{Bug: string(b), Caught: v.Violations > 0, ByRule: v.ByRule}
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
		return f.Bug + ": NOT caught"
	}
	return fmt.Sprintf("%-24s %s: %s", f.Bug, strings.Join(slices.Sorted(maps.Keys(f.ByRule)), " "), f.Example.What)
}
