package explain

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/instant"
)

// asked is the moment of the question: an instant, or a wall time in the schedule's zone.
type asked struct {
	instant time.Time // zero: the question has a wall time
	wall    time.Time // its location does not count
}

var wallLayouts = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"}

// readAsked reads an RFC 3339 instant, or a date and time without an offset. It drops fractions of a second.
func readAsked(text string) (a asked, err error) {
	if at, err := instant.Parse(text); err == nil {
		a.instant = at.UTC().Truncate(time.Second)
		return a, within(a.instant)
	}
	for _, layout := range wallLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			a.wall = at.Truncate(time.Second)
			return a, within(a.wall)
		}
	}
	return a, fault.Invalid("/at", "%q is neither an RFC 3339 instant nor a wall time such as 2026-03-29T08:00", text)
}

func within(at time.Time) error {
	if at.Year() < 1970 || at.Year() > 2100 {
		return fault.Invalid("/at", "the year is not one of 1970 to 2100")
	}
	return nil
}

// reading says how an ambiguous or skipped wall time was read. preface is a sentence for the explanation. skipped is the wall time, if
// the clock skipped it.
type reading struct {
	preface string
	skipped string
}

// read returns the instant of a wall time on the clock of a timing. If the clock showed it twice, that is the first instant that
// suits, or else the earlier one. If the clock skipped it, that is the instant of its tick, or else the instant by the clock before
// the change.
func (a asked) read(t *calendar.Timing, suits func(time.Time) bool) (at time.Time, how reading) {
	const clock = "2006-01-02 15:04:05"
	instants, gap, until := t.Shown(a.wall)
	switch len(instants) {
	case 1:
		return instants[0], how
	case 0:
		return a.skipped(t, gap, until)
	}
	n := 0
	if !suits(instants[0]) && suits(instants[1]) {
		n = 1
	}
	how.preface = fmt.Sprintf("The clock of %s showed %s twice; this is of the %s time (%s). ",
		t.Zone(), a.wall.Format(clock), []string{"first", "second"}[n], t.Local(instants[n]).Format("-07:00"))
	return instants[n], how
}

// skipped is read for a wall time that the clock skipped, in a gap that ends at until.
func (a asked) skipped(t *calendar.Timing, gap time.Duration, until time.Time) (at time.Time, how reading) {
	const clock = "2006-01-02 15:04:05"
	_, before := t.Local(until.Add(-time.Second)).Zone()
	at = a.wall.Add(-time.Duration(before) * time.Second)
	if t.Absence(at) == calendar.AbsentGap {
		if tick, ok := t.Next(until.Add(-time.Second)); ok && tick.At.Equal(until) && tick.DST == calendar.DSTGap {
			at = until
		}
	}
	end := until.Add(time.Duration(before) * time.Second) // as a clock that did not go forward would have shown it
	how.skipped = a.wall.Format(clock)
	how.preface = fmt.Sprintf("%s did not come in %s: the clock went from %s to %s; it is read as %s. ", how.skipped, t.Zone(),
		end.Format("15:04:05"), end.Add(gap).Format("15:04:05"), t.Local(at).Format(clock+" -07:00"))
	return at.UTC(), how
}

// read sets k.at to the instant of a wall time, in the zone that the schedule had then. recorded are the Unix seconds near it at which
// there is a tick.
func (k *known) read(a asked, recorded map[int64]bool) {
	k.at = a.wall
	in := k.versions[len(k.versions)-1].timing
	for range 2 { // again where the zone was another then
		if in == nil {
			return
		}
		k.at, k.wall = a.read(in, func(at time.Time) bool {
			v := k.version(at)
			return recorded[at.Unix()] || len(recorded) == 0 && v != nil && v.timing != nil && v.names(at)
		})
		v := k.version(k.at)
		if v == nil || v.timing == nil || v.timing == in {
			return
		}
		in = v.timing
	}
}
