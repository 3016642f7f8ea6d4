package chaos

import (
	"slices"
	"time"
)

// era is a stretch of a schedule's life in which one timing counts. It began at some moment after fromA and no later
// than fromB, and ended so too: what is not known is when, between the start and the end of an operation, it was done.
type era struct {
	timing       *timing
	fromA, fromB time.Time
	toA, toB     time.Time // zero: it goes on
}

// must tells whether a nominal time counts whenever the operations were done, may whether it can.
func (e *era) must(t time.Time) bool { return t.After(e.fromB) && (e.toA.IsZero() || !t.After(e.toA)) }
func (e *era) may(t time.Time) bool  { return t.After(e.fromA) && (e.toB.IsZero() || !t.After(e.toB)) }

// limits tell for a timing with max_ticks which are its last times, at the earliest and at the latest.
func (e *era) limits(upto time.Time) (earliest, latest time.Time) {
	nth := func(after time.Time) time.Time {
		if all := e.timing.next(after, e.timing.most, upto); len(all) == e.timing.most {
			return all[len(all)-1]
		}
		return upto
	}
	return nth(e.fromA), nth(e.fromB)
}

// life is one schedule, from when it was made until it was deleted.
type life struct {
	id       string // "": no answer told
	eras     []*era
	versions map[int64]*definition
	last     int64 // version, as of the last answer that told one
	def      *definition
	paused   bool
	deleted  bool
	manual   int // ticks that were asked for
	missed   string
	single   bool // never changed by bulk or sync, whose answers tell no version
}

// biography is what is known of a key: its lives, and from when on nothing is sure, since an operation was refused after an
// attempt whose answer was lost.
type biography struct {
	lives []*life
	doubt time.Time // zero: never
	every []*definition
	ops   []*operation
}

// biographyOf reads the operations on one key, which were done one after another.
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

// change begins another era where the timing, or whether it counts, is another.
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

// times are the nominal times of a life up to a moment: those that must have come, and those that may.
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
				must = append(must, t) // by the timing before the change, or by the one after it
			}
		}
	}
	return sorted(must), sorted(may)
}

func sorted(times []time.Time) []time.Time {
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal)
}

// lasts tells whether the timing names a time at every moment.
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

// any tells whether any definition that a key ever had names a time: all that can be said where there is doubt.
func (b *biography) any(t time.Time) bool {
	return slices.ContainsFunc(b.every, func(d *definition) bool { return d.timing.names(t) })
}
