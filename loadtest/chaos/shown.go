package chaos

import (
	"fmt"
	"math"
	"time"
)

// What campaigns of half an hour together have to show, so that a verdict without violations says something.
const (
	shownIn      = 30 * time.Minute
	shownTicks   = 100_000
	shownKills   = 100
	shownCrashes = 15 // of PostgreSQL
	shownEnded   = 200
)

// Shown is one thing that campaigns have to show so often.
type Shown struct {
	What  string `json:"what"`
	Times int    `json:"times"`
	Least int    `json:"least"`
}

// Holds tells whether it was shown so often.
func (s Shown) Holds() bool { return s.Times >= s.Least }

// String is a line of a table.
func (s Shown) String() string {
	short := ""
	if !s.Holds() {
		short = ": TOO FEW"
	}
	return fmt.Sprintf("%-32s %d of %d%s", s.What, s.Times, s.Least, short)
}

// Together counts what campaigns have shown, and how much of it is enough for as long as they were. Each crash point is to
// be reached where they were half an hour.
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
