package carillontest

import (
	"container/heap"
	"time"
)

// event is something that happens at a time of the server's clock.
type event struct {
	at    time.Time
	order int // of two events at one time, the one that was made first comes first
	place int // in the agenda; -1: it is not there
	run   func()
}

// agenda has the coming events, the next one first.
type agenda struct {
	events []*event
	made   int
}

// newEvent returns an event that is not in the agenda yet.
func (a *agenda) newEvent(run func()) *event {
	a.made++
	return &event{order: a.made, place: -1, run: run}
}

// set puts an event at a time. The zero time removes it.
func (a *agenda) set(e *event, at time.Time) {
	switch {
	case at.IsZero() && e.place >= 0:
		heap.Remove(a, e.place)
	case at.IsZero():
	case e.place < 0:
		e.at = at
		heap.Push(a, e)
	default:
		e.at = at
		heap.Fix(a, e.place)
	}
}

// next returns the time of the next event.
func (a *agenda) next() (at time.Time, ok bool) {
	if len(a.events) == 0 {
		return at, false
	}
	return a.events[0].at, true
}

// take removes the next event if it is due at now.
func (a *agenda) take(now time.Time) *event {
	if len(a.events) == 0 || a.events[0].at.After(now) {
		return nil
	}
	return heap.Pop(a).(*event)
}

func (a *agenda) Len() int { return len(a.events) }

func (a *agenda) Less(i, j int) bool {
	x, y := a.events[i], a.events[j]
	if order := x.at.Compare(y.at); order != 0 {
		return order < 0
	}
	return x.order < y.order
}

func (a *agenda) Swap(i, j int) {
	a.events[i], a.events[j] = a.events[j], a.events[i]
	a.events[i].place, a.events[j].place = i, j
}

func (a *agenda) Push(e any) {
	one := e.(*event)
	one.place = len(a.events)
	a.events = append(a.events, one)
}

func (a *agenda) Pop() any {
	n := len(a.events) - 1
	e := a.events[n]
	a.events[n] = nil
	a.events, e.place = a.events[:n], -1
	return e
}
