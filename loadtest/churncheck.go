package main

import (
	"fmt"
	"slices"
	"time"
)

// The kinds of changes.
const (
	created  = "created"
	upserted = "upserted" // with another payload
	retimed  = "retimed"
	paused   = "paused"
	resumed  = "resumed"
	deleted  = "deleted"
)

// cadence names the whole seconds that are offset after a multiple of every, since 1970.
type cadence struct{ every, offset int }

func (c cadence) names(t time.Time) bool {
	return t.Nanosecond() == 0 && (t.Unix()-int64(c.offset))%int64(c.every) == 0
}

// change is a change of a schedule at some moment between began and ended, with the schedule's state after it.
type change struct {
	kind         string
	began, ended time.Time
	cadence      cadence
	active, gone bool
	life         int // the number of schedules that have had the key so far
	version      int64
}

// churned is a schedule with all its changes, in order. The first one created it.
type churned struct {
	number  int
	key     string
	missed  string
	changes []change
}

func (s *churned) made(began time.Time, t cadence) {
	s.changes = []change{{kind: created, began: began, cadence: t, active: true, life: 1, version: 1}}
}

// next returns the state of the schedule after another change.
func (s *churned) next(kind string) change {
	c := s.changes[len(s.changes)-1]
	c.kind = kind
	switch kind {
	case created:
		c.active, c.gone, c.life = true, false, c.life+1
	case paused:
		c.active = false
	case resumed:
		c.active = true
	case deleted:
		c.active, c.gone = false, true
	}
	return c
}

// until returns when the next change had certainly replaced the i-th, and when it may have done so at the earliest.
func (s *churned) until(i int) (surely, perhaps time.Time) {
	if i+1 == len(s.changes) {
		never := time.Unix(1<<40, 0)
		return never, never
	}
	return s.changes[i+1].ended, s.changes[i+1].began
}

// lasts is like until, but for the timing of the i-th change: a later change that keeps the timing does not end it.
func (s *churned) lasts(i int) (surely, perhaps time.Time) {
	c := s.changes[i]
	for i+1 < len(s.changes) {
		if n := s.changes[i+1]; n.cadence != c.cadence || n.active != c.active || n.life != c.life {
			break
		}
		i++
	}
	return s.until(i)
}

// due reports whether the timing of the i-th change names a time that came while the timing was in force: surely, and perhaps. A due
// time is handed out or recorded, whatever changes later.
func (s *churned) due(i int, t time.Time) (surely, perhaps bool) {
	c := s.changes[i]
	if !c.active || !c.cadence.names(t) {
		return false, false
	}
	gone, going := s.lasts(i)
	return c.ended.Before(t) && !t.After(going), !t.Before(c.began) && !t.After(gone)
}

// churnTick is a row of the record. Life is the number of its schedule among those that had the key.
type churnTick struct {
	Key       *string
	Life      *int
	NominalAt time.Time
	Seq       int
	Version   int64
	Missed    int
	State     int16
	Reason    int16
	Attempt   int
	FiredAt   time.Time
	LastAt    *time.Time
}

// The record's numbers of states and reasons.
const (
	recordedSucceeded = 2
	recordedCancelled = 4
	recordedSkipped   = 5
	becausePaused     = 2
)

func outcomes(records []churnTick) map[string]int {
	n := map[string]int{"succeeded": 0, "skipped": 0, "cancelled": 0, "stood_for": 0}
	for _, t := range records {
		n["stood_for"] += t.Missed
		switch t.State {
		case recordedSucceeded:
			n["succeeded"]++
		case recordedSkipped:
			n["skipped"]++
		case recordedCancelled:
			n["cancelled"]++
		}
	}
	return n
}

// deliverySum counts the ticks that came to a worker, and the repeated deliveries.
type deliverySum struct{ ticks, again int }

// churnKinds are the kinds of findings that must not occur in churn.
var churnKinds = []string{
	"lost",                 // a time of the active schedule that no tick has or counts as missed
	"doubled",              // a time with two ticks, or a tick that was delivered twice
	"not_due",              // a tick, or a counted missed time, that no timing in force named
	"early",                //
	"unexplained",          // a state or reason that no change of the schedule explains
	"not_ended",            //
	"wrong_version",        // a version that was not in force when the tick was opened
	"wrong_last_timestamp", //
	"undelivered",          // succeeded in the record, but never delivered
}

// cancellingTakes is the time after fired_at in which a deletion may still cancel the tick.
const cancellingTakes = 5 * time.Second

// checkChurn compares the record with the changes of the schedules, whose times are in [from, to].
func checkChurn(all []*churned, from, to time.Time, records []churnTick, seen deliverySum) *findings {
	f := &findings{}
	byKey := map[string][]churnTick{}
	succeeded := 0
	for _, t := range records {
		if t.Key == nil {
			f.add("not_due", "a tick at %s of a schedule that never existed", stamp(t.NominalAt))
			continue
		}
		if t.State == recordedSucceeded {
			succeeded++
		}
		byKey[*t.Key] = append(byKey[*t.Key], t)
	}
	for _, s := range all {
		f.churned(s, from, to, byKey[s.key])
	}
	for range seen.again {
		f.add("doubled", "a repeated delivery of a tick")
	}
	for range max(0, succeeded-seen.ticks) {
		f.add("undelivered", "%d ticks succeeded, and %d came", succeeded, seen.ticks)
	}
	return f
}

// churned checks the ticks of one key, which are in order of life and time.
func (f *findings) churned(s *churned, from, to time.Time, ticks []churnTick) {
	has := map[int64]bool{}
	var last *time.Time
	for i, t := range ticks {
		if i > 0 && *ticks[i-1].Life != *t.Life {
			last = nil
		}
		at := t.NominalAt
		f.fired = append(f.fired, lateness{at, t.FiredAt.Sub(at)})
		if t.FiredAt.Before(at) {
			f.add("early", "%s at %s was opened at %s", s.key, stamp(at), t.FiredAt)
		}
		cadences := s.named(*t.Life, at)
		if len(cadences) == 0 || t.Seq != 0 || at.Before(from) || at.After(to) {
			f.add("not_due", "%s, schedule %d of that key, at %s, opened at %s: %s", s.key, *t.Life, stamp(at), t.FiredAt.Format(time.StampMilli), s)
		}
		f.stands(s, t, cadences, has)
		f.outcome(s, t)
		if t.State == recordedSkipped || t.State == recordedCancelled {
			continue
		}
		if (last == nil) != (t.LastAt == nil) || last != nil && !last.Equal(*t.LastAt) {
			f.add("wrong_last_timestamp", "%s at %s says %v and not %v", s.key, stamp(at), t.LastAt, last)
		}
		last = &at
	}
	for at := from.Truncate(time.Second); !at.After(to); at = at.Add(time.Second) {
		if has[at.Unix()] {
			continue
		}
		for i := range s.changes {
			if surely, _ := s.due(i, at); surely {
				f.add("lost", "%s at %s: %s", s.key, stamp(at), s)
			}
		}
	}
}

// named returns the timings by which the schedule with that life may have had a tick at a time.
func (s *churned) named(life int, at time.Time) (list []cadence) {
	for i, c := range s.changes {
		if _, perhaps := s.due(i, at); perhaps && c.life == life && !slices.Contains(list, c.cadence) {
			list = append(list, c.cadence)
		}
	}
	return list
}

// stands notes the times of a tick: its own, and the missed times that it counts, by one of its timings.
func (f *findings) stands(s *churned, t churnTick, cadences []cadence, has map[int64]bool) {
	note := func(at time.Time) {
		if has[at.Unix()] {
			f.add("doubled", "%s at %s: %s", s.key, stamp(at), s)
		}
		has[at.Unix()] = true
	}
	note(t.NominalAt)
	if t.Missed == 0 || len(cadences) == 0 {
		return
	}
	stoodFor := func(c cadence) (list []time.Time, due bool) {
		due = true
		for n := 1; n <= t.Missed; n++ {
			at := t.NominalAt.Add(-time.Duration(n*c.every) * time.Second)
			list, due = append(list, at), due && slices.Contains(s.named(*t.Life, at), c)
		}
		return list, due
	}
	for _, c := range cadences {
		if list, due := stoodFor(c); due {
			for _, at := range list {
				note(at)
			}
			return
		}
	}
	f.add("not_due", "%s at %s counts %d missed times that were not all due: %s", s.key, stamp(t.NominalAt), t.Missed, s)
}

// outcome checks that the changes of a schedule explain the outcome of its tick.
func (f *findings) outcome(s *churned, t churnTick) {
	versions, stopped, erased := false, false, false
	for i, c := range s.changes {
		if c.life != *t.Life {
			continue
		}
		// A deletion holds for good: the tick may be opened after a new schedule was created with the same key.
		erased = erased || c.gone && !t.FiredAt.Add(cancellingTakes).Before(c.began)
		// The version at fired_at is the one that fires, exactly.
		if replaced, _ := s.until(i); c.gone || t.FiredAt.Before(c.began) || t.FiredAt.After(replaced) {
			continue
		}
		versions = versions || c.version == t.Version
		stopped = stopped || !c.active
	}
	switch {
	case t.State == recordedSucceeded:
	case t.State == recordedSkipped && t.Reason == becausePaused && stopped:
	case t.State == recordedCancelled && erased:
		return // of whichever version was the last
	case t.State < recordedSucceeded:
		f.add("not_ended", "%s at %s is in state %d", s.key, stamp(t.NominalAt), t.State)
	default:
		f.add("unexplained", "%s at %s, opened at %s, is in state %d for reason %d: %s", s.key, stamp(t.NominalAt), t.FiredAt.Format(time.StampMilli), t.State, t.Reason, s)
	}
	if !versions {
		f.add("wrong_version", "%s at %s, opened at %s, is of version %d: %s", s.key, stamp(t.NominalAt), t.FiredAt.Format(time.StampMilli), t.Version, s)
	}
}

// String lists all changes of the schedule.
func (s *churned) String() (text string) {
	for _, c := range s.changes {
		text += c.String() + "; "
	}
	return text
}

// String describes the change: its kind, its time, and the state of the schedule after it.
func (c change) String() string {
	const clock = "15:04:05.000"
	return fmt.Sprintf("%s %s–%s, every %d s from %d, version %d", c.kind, c.began.UTC().Format(clock), c.ended.UTC().Format(clock), c.cadence.every, c.cadence.offset, c.version)
}
