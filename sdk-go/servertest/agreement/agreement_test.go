package agreement

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	count     = flag.Int("agreement.schedules", 200, "how many schedules to compare")
	firstSeed = flag.Uint64("agreement.seed", 1, "the seed of the first world; the others have the next ones")
)

const (
	perWorld    = 100 // schedules
	shownOf     = 3   // differences of a world that are repeated and shown
	mostRepeats = 60  // of one difference, to make it smaller
)

// The same schedules under the same operations have the same ticks, for the same reasons, in carillontest and on the server.
func TestTheClockAgrees(t *testing.T) {
	for first := 0; first < *count; first += perWorld {
		seed, some := *firstSeed+uint64(first/perWorld), min(perWorld, *count-first)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			c := newScript(seed, some)
			began := time.Now()
			found, ticks := play(t, c)
			t.Logf("%d schedules around %s in %s had %d ticks, after %s", some, c.change.Format(time.RFC3339), c.zone, ticks, time.Since(began).Round(time.Millisecond))
			for i, d := range found {
				if i == shownOf {
					t.Errorf("%d more schedules differ", len(found)-i)
					break
				}
				t.Errorf("repeat with -agreement.schedules %d -agreement.seed %d\n%s", some, seed, shrink(t, c, d))
			}
		})
	}
}

// difference is a schedule that differs.
type difference struct {
	story story
	step  int // of the script
	text  string
	log   []string // what happened to the schedule until then, if it was alone
}

func (d difference) String() string {
	return strings.Join(append(d.log, d.text), "\n")
}

// play runs a script in a new world, and returns the schedules that differ and how many ticks were compared.
func play(t *testing.T, c script) (found []difference, ticks int) {
	w := newWorld(t, c)
	w.live()
	return w.found, w.ticks
}

// shrink repeats a schedule alone, with less and less, and returns the smallest description that still differs.
func shrink(t *testing.T, c script, d difference) string {
	repeats := 0
	again := func(c script) (found []difference) {
		repeats++
		t.Run(fmt.Sprint("repeat ", repeats), func(t *testing.T) { found, _ = play(t, c) })
		return found
	}
	one := c.alone(d.story)
	found := again(one)
	if len(found) == 0 {
		return "(alone, the schedule does not differ)\n" + d.String()
	}
	for simpler := true; simpler; {
		simpler = false
		one.steps = one.steps[:found[0].step+1]
		for _, less := range one.simpler() {
			if repeats == mostRepeats {
				break
			}
			if still := again(less); len(still) > 0 {
				one, found, simpler = less, still, true
				break
			}
		}
	}
	return found[0].String()
}
