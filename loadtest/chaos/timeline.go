package chaos

import (
	"slices"
	"time"
)

// era is a part of a schedule's life in which one timing applies. It began after fromA and at fromB at the latest, and ended in the same way
// between toA and toB: an operation takes effect at an unknown moment between its start and its end.
type era struct {
	timing       *timing
	fromA, fromB time.Time
	toA, toB     time.Time // zero: it goes on
}

// must reports whether a nominal time belongs to the era wherever its operations took effect. may reports whether it can belong to it.
func (e *era) must(t time.Time) bool { return t.After(e.fromB) && (e.toA.IsZero() || !t.After(e.toA)) }
func (e *era) may(t time.Time) bool  { return t.After(e.fromA) && (e.toB.IsZero() || !t.After(e.toB)) }

// limits returns, for a timing with max_ticks, the earliest and the latest possible last time.
func (e *era) limits(upto time.Time) (earliest, latest time.Time) {
	nth := func(after time.Time) time.Time {
		if all := e.timing.next(after, e.timing.most, upto); len(all) == e.timing.most {
			return all[len(all)-1]
		}
		return upto
	}
	return nth(e.fromA), nth(e.fromB)
}

// life is one schedule, from its creation to its deletion.
type life struct {
	id       string // "": no answer had it
	eras     []*era
	versions map[int64]*definition
	last     int64 // the version of the last answer that had one
	def      *definition
	paused   bool
	deleted  bool
	manual   int // triggered ticks
	missed   string
	single   bool // never changed by bulk or sync, whose answers have no version
}

// biography is what the checker knows of a key: its lives, and the moment from which nothing is certain, because an operation was refused
// after an attempt with a lost answer.
type biography struct {
	lives []*life
	doubt time.Time // zero: never
	every []*definition
	ops   []*operation
}

// biographyOf returns the biography of one key from its operations, which happened one after another.
func biographyOf(ops []*operation) *biography {
	b := &biography{ops: ops}
	var l *life
	for _, o := range ops {
		if o.after != nil {
			b.every = append(b.every, o.after)
		}
		if o.Outcome == maybe && b.doubt.IsZero() {
			b.doubt = o.Start
		}
		if o.Outcome != okay || !b.doubt.IsZero() {
			continue
		}
		if o.Kind == "trigger" {
			l.manual++
			continue
		}
		if o.after == nil {
			l.close(o)
			l.deleted = true
			l = nil
			continue
		}
		if l == nil {
			l = &life{versions: map[int64]*definition{}, missed: o.after.missed, single: true, paused: o.pause}
			b.lives = append(b.lives, l)
			if !o.pause {
				l.open(o)
			}
		} else {
			l.change(o)
		}
		l.def = o.after
		if o.Schedule != "" && l.id == "" {
			l.id = o.Schedule
		}
		if o.Kind == "bulk" || o.Kind == "sync" {
			l.single, l.last = false, 0
		} else if o.Version > 0 {
			l.versions[o.Version], l.last = o.after, o.Version
		}
	}
	return b
}

func (l *life) open(o *operation) {
	l.eras = append(l.eras, &era{timing: &o.after.timing, fromA: o.Start, fromB: o.settled()})
}

func (l *life) close(o *operation) {
	if n := len(l.eras); n > 0 && l.eras[n-1].toA.IsZero() {
		l.eras[n-1].toA, l.eras[n-1].toB = o.Start, o.settled()
	}
}

// change begins another era if the operation changed the timing or whether it is active.
func (l *life) change(o *operation) {
	retimed := !l.def.timing.same(&o.after.timing) || l.def.jitter != o.after.jitter
	if l.paused == o.pause && !retimed {
		return
	}
	if !l.paused {
		l.close(o)
	}
	if l.paused = o.pause; !o.pause {
		l.open(o)
	}
}

// times returns the nominal times of a life up to a moment: those that must have come, and those that may.
func (l *life) times(upto time.Time) (must, may []time.Time) {
	both := map[int64]int{}
	for _, e := range l.eras {
		if e.timing.kind == delayed {
			continue
		}
		end := upto
		if !e.toB.IsZero() && e.toB.Before(end) {
			end = e.toB
		}
		earliest, latest := end, end
		if e.timing.most > 0 {
			earliest, latest = e.limits(upto)
		}
		for _, t := range e.timing.between(e.fromA, end) {
			if t.After(latest) {
				break
			}
			may = append(may, t)
			if e.must(t) && !t.After(earliest) {
				must = append(must, t)
			} else if both[t.Unix()]++; both[t.Unix()] == 2 && e.timing.most == 0 {
				must = append(must, t) // both the timing before the change and the one after it name it
			}
		}
	}
	return sorted(must), sorted(may)
}

func sorted(times []time.Time) []time.Time {
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal)
}

// lasts reports whether the timing never ends.
func (t *timing) lasts() bool {
	return t.kind != once && t.kind != delayed && t.end.IsZero() && t.most == 0
}

// within counts the times strictly between two moments.
func within(times []time.Time, after, before time.Time) (n int) {
	for _, t := range times {
		if t.After(after) && t.Before(before) {
			n++
		}
	}
	return n
}

// any reports whether any definition of the key ever named a time. While operations are in doubt, the checker knows no more.
func (b *biography) any(t time.Time) bool {
	return slices.ContainsFunc(b.every, func(d *definition) bool { return d.timing.names(t) })
}
