package chaos

import (
	"fmt"
	"math"
	"time"
)

// The minimums of campaigns of half an hour together. Without them a verdict without violations would mean little.
const (
	shownIn      = 30 * time.Minute
	shownTicks   = 100_000
	shownKills   = 100
	shownCrashes = 15 // of PostgreSQL
	shownEnded   = 200
)

// Shown is a count that campaigns must reach.
type Shown struct {
	What  string `json:"what"`
	Times int    `json:"times"`
	Least int    `json:"least"`
}

// Holds reports whether the count was reached.
func (s Shown) Holds() bool { return s.Times >= s.Least }

// String returns a line of a table.
func (s Shown) String() string {
	short := ""
	if !s.Holds() {
		short = ": TOO FEW"
	}
	return fmt.Sprintf("%-32s %d of %d%s", s.What, s.Times, s.Least, short)
}

// Together adds up the counts of campaigns, with minimums in proportion to their length. From half an hour on each crash point must be
// reached.
func Together(all []*Verdict) (list []Shown) {
	seconds, ticks, kills, down := 0.0, 0, 0, 0
	var ended int64
	points := map[string]int{}
	for _, v := range all {
		seconds += v.Seconds
		ticks += v.Ticks
		kills += v.Faults["kill"]
		down += v.Faults["postgres_kill"] + v.Faults["postgres_immediate"]
		ended += v.Terminated
		for point, n := range v.Crashes {
			points[point] += n
		}
	}
	part := min(1, seconds/shownIn.Seconds())
	enough := func(n int) int { return int(math.Floor(part * float64(n))) }
	list = []Shown{
		{"ticks checked", ticks, enough(shownTicks)}, {"processes killed", kills, enough(shownKills)},
		{"crashes of PostgreSQL", down, enough(shownCrashes)}, {"backends terminated", int(ended), enough(shownEnded)},
	}
	for _, p := range crashPoints {
		list = append(list, Shown{"crashed at " + p.name, points[p.name], enough(1)})
	}
	return list
}
