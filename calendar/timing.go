// Package calendar computes when schedules fire, exactly and in every time zone. It reads no clock and does no I/O.
//
// A Spec describes nominal times by cron expressions, calendars, intervals, an RFC 5545 rule, single times and relative times, without
// its exclusions. Compile checks a spec and returns a Timing. Next and Prev of a Timing find ticks by arithmetic over bit sets and over a
// table of the zone's offsets. They never step through time, and next(t) > t always holds. A named policy resolves the wall times that a
// change of the clock skips or repeats.
//
// The package contains its own tz database, which Use replaces at run time. It writes no table and keeps no state but that database, so
// a crash loses nothing. Timings are immutable and need no lock.
package calendar

import (
	"iter"
	"time"
)

// Tick is one nominal time. At is in UTC and a whole second.
type Tick struct {
	At  time.Time
	DST DSTNote
}

// Class is the kind of a spec's members. It determines the DST policy for auto.
type Class string

// The classes of a spec.
const (
	ClassFixed     Class = "fixed"      // at certain hours of the day
	ClassEveryHour Class = "every_hour" // in every hour of the day
	ClassElapsed   Class = "elapsed"    // by elapsed time, independent of clocks
	ClassMixed     Class = "mixed"      // several of these
)

// Timing is a compiled spec. It is immutable, and safe for concurrent use.
type Timing struct {
	plan    plan
	zones   *Zones
	zone    *zone
	sources []source
	start   int64
	end     int64
	delay   *delay // of fixed_delay, which is the only member then
	class   Class
	first   firstTick
	notes   []Warning
	out     *exclusions
	quiet   *quietWeek      // nil: it has no quiet hours
	hash    func() [16]byte // computed once
	away    []int64         // the moved times, in order
	added   []int64         // their new times, in order

	tooComplex bool // the exclusions cost too much to compute
}

// Next returns the first tick strictly after an instant, or false. For fixed_delay it returns the tick that follows a run which ended at
// after.
func (t *Timing) Next(after time.Time) (Tick, bool) {
	if t.delay != nil {
		return t.delay.next(t, after)
	}
	return t.tick(t.next(after.Unix() + 1))
}

// Prev returns the last tick strictly before an instant, or false. It returns false for fixed_delay, whose past ticks are unknown.
func (t *Timing) Prev(before time.Time) (Tick, bool) {
	until := before.Unix()
	if before.Nanosecond() == 0 {
		until--
	}
	return t.tick(t.prev(until))
}

func (t *Timing) tick(at int64, note DSTNote, ok bool) (Tick, bool) {
	if !ok {
		return Tick{}, false
	}
	return Tick{At: time.Unix(at, 0).UTC(), DST: note}, true
}

// namedNext returns the first time of the spec at or after an instant, ignoring moves.
func (t *Timing) namedNext(from int64) (int64, DSTNote, bool) {
	from = max(from, t.start)
	var best int64
	var note DSTNote
	found := false
	for _, s := range t.sources {
		at, n, ok := s.next(from)
		if !ok || at > t.end {
			continue
		}
		if !found || at < best || at == best && n < note {
			best, note, found = at, n, true
		}
	}
	return best, note, found
}

// namedPrev returns the last time of the spec at or before an instant, ignoring moves.
func (t *Timing) namedPrev(until int64) (int64, DSTNote, bool) {
	until = min(until, t.end)
	var best int64
	var note DSTNote
	found := false
	for _, s := range t.sources {
		at, n, ok := s.prev(until)
		if !ok || at < t.start {
			continue
		}
		if !found || at > best || at == best && n < note {
			best, note, found = at, n, true
		}
	}
	return best, note, found
}

// All yields the ticks strictly after an instant, in order. For fixed_delay it assumes that runs take no time.
func (t *Timing) All(after time.Time) iter.Seq[Tick] {
	return func(yield func(Tick) bool) {
		for {
			tick, ok := t.Next(after)
			if !ok || !yield(tick) {
				return
			}
			after = tick.At
		}
	}
}

// Location returns the timing's zone as a time.Location, from the tz database of its compilation. Code must not use the standard
// library's arithmetic (time.Date, AddDate) to decide when a schedule fires.
func (t *Timing) Location() *time.Location { return t.zone.location() }

// Zone returns the name of the timing's zone.
func (t *Timing) Zone() string { return t.plan.Zone }

// Zones returns the tz database with which the timing was compiled.
func (t *Timing) Zones() *Zones { return t.zones }

// Local returns an instant in the timing's zone.
func (t *Timing) Local(at time.Time) time.Time { return at.In(t.zone.location()) }

// Moment parses an instant, or a wall time in the timing's zone, of whole seconds. A wall time in a gap moves forward; in an overlap it is
// the first one. The error is of type Faults.
func (t *Timing) Moment(text string) (time.Time, error) {
	k := compiler{zone: t.zone}
	at, ok := k.moment("", text)
	if !ok {
		return time.Time{}, k.faults
	}
	return time.Unix(at, 0).UTC(), nil
}

// Class returns the class of the spec's members.
func (t *Timing) Class() Class { return t.class }

// Jitter returns the length of the window after a nominal time in which ticks are spread.
func (t *Timing) Jitter() time.Duration { return time.Duration(t.plan.Jitter) * time.Second }
