// Package calendar computes when schedules fire: exactly in every time zone, without a clock and without I/O.
//
// A Spec names nominal times: by cron expressions, calendars, intervals, an RFC 5545 rule and single times, less what it excludes.
// Compile checks a spec and makes a Timing of it, whose Next and Prev find ticks by arithmetic over bit sets and over a table of
// the zone's offsets: they never step through time, and next(t) > t always. Wall times that a change of the clock skips or
// repeats are resolved by a named policy, never by chance. The package carries its own tz database, which Use replaces at run
// time.
package calendar

import (
	"iter"
	"time"
)

// Tick is one nominal time: At is UTC and a whole second.
type Tick struct {
	At  time.Time
	DST DSTNote
}

// Class says what a spec's members are, which decides the DST policies that are left to auto.
type Class string

// The classes of a spec.
const (
	ClassFixed     Class = "fixed"      // at certain hours
	ClassEveryHour Class = "every_hour" // in every hour of the day
	ClassElapsed   Class = "elapsed"    // by elapsed time, whatever clocks show
	ClassMixed     Class = "mixed"
)

// Timing is a compiled spec. It does not change, and several goroutines may use it at once.
type Timing struct {
	plan    plan
	zones   *Zones
	zone    *zone
	sources []source
	start   int64
	end     int64
	delay   *delay // of fixed_delay, which stands alone
	class   Class
	first   firstTick
	notes   []Warning
	out     *exclusions
	hash    func() [16]byte // worked out once
	away    []int64         // times that the spec names and that are moved, in order
	added   []int64         // and where to
	// tooComplex says that the exclusions cost too much to work out.
	tooComplex bool
}

// Next is the first tick strictly after an instant; false if there is none. For fixed_delay it is the tick that follows a run
// which ended at after.
func (t *Timing) Next(after time.Time) (Tick, bool) {
	if t.delay != nil {
		return t.delay.next(t, after)
	}
	return t.tick(t.next(after.Unix() + 1))
}

// Prev is the last tick strictly before an instant; false if there is none, and for fixed_delay, which has no past.
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

// namedNext is the first time at or after an instant that the spec names, moves aside.
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

// namedPrev is the last time at or before an instant that the spec names, moves aside.
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

// All are the ticks strictly after an instant, in order, until none is left. Of fixed_delay they are those of runs that take no
// time.
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

// Location is the timing's zone for the standard library, by the database the timing was compiled with. Its arithmetic
// (time.Date, AddDate) must not be used to decide when something fires.
func (t *Timing) Location() *time.Location { return t.zone.location() }

// Zone is the name of the timing's zone.
func (t *Timing) Zone() string { return t.plan.Zone }

// Zones is the tz database that the timing was compiled with.
func (t *Timing) Zones() *Zones { return t.zones }

// Local is an instant as the clock of the timing's zone shows it.
func (t *Timing) Local(at time.Time) time.Time { return at.In(t.zone.location()) }

// Class is the class of the spec's members.
func (t *Timing) Class() Class { return t.class }

// Jitter is the width of the window in which ticks are spread after their nominal time.
func (t *Timing) Jitter() time.Duration { return time.Duration(t.plan.Jitter) * time.Second }
