package calendar

import (
	"cmp"
	"slices"
	"time"
)

// Move moves one nominal time: from At, which the spec names, to To. Both are whole seconds.
type Move struct {
	At time.Time
	To time.Time
}

// movePlan is a Move in the canonical form, in Unix seconds.
type movePlan struct {
	At int64 `json:"at"`
	To int64 `json:"to"`
}

// Moved returns the timing with some of its nominal times moved. The moves replace the earlier ones. A move has an effect if the spec
// names At and if To is within start_at and end_at; exclusions do not apply to To. Moved keeps a move without effect. It does nothing for
// fixed_delay, because its times are not known in advance.
func (t *Timing) Moved(moves []Move) *Timing {
	if t.delay != nil {
		return t
	}
	n := *t
	n.hash = n.hashedOnce()
	n.plan.Moved = nil
	for _, m := range moves {
		n.plan.Moved = append(n.plan.Moved, movePlan{m.At.Unix(), m.To.Unix()})
	}
	slices.SortFunc(n.plan.Moved, func(a, b movePlan) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.To, b.To)) })
	n.plan.Moved = slices.CompactFunc(n.plan.Moved, func(a, b movePlan) bool { return a.At == b.At })
	n.move()
	return &n
}

// move computes the times that the plan's moves remove and add.
func (t *Timing) move() {
	t.away, t.added = nil, nil
	var held []movePlan
	for _, m := range t.plan.Moved {
		if at, _, ok := t.namedNext(m.At); ok && at == m.At && m.To >= t.start && m.To <= t.end {
			held = append(held, m)
			t.away = append(t.away, m.At)
		}
	}
	for _, m := range held {
		if at, _, ok := t.namedNext(m.To); !ok || at != m.To || t.gone(m.To) { // otherwise To already has a tick
			t.added = append(t.added, m.To)
		}
	}
	slices.Sort(t.added)
	t.added = slices.Compact(t.added)
}

func (t *Timing) gone(at int64) bool {
	_, found := slices.BinarySearch(t.away, at)
	return found
}

func (t *Timing) next(from int64) (int64, DSTNote, bool) {
	at, note, ok := t.namedNext(from)
	if len(t.away) == 0 {
		return at, note, ok
	}
	for ok && t.gone(at) {
		at, note, ok = t.namedNext(at + 1)
	}
	if i, _ := slices.BinarySearch(t.added, from); i < len(t.added) && (!ok || t.added[i] < at) {
		return t.added[i], DSTNone, true
	}
	return at, note, ok
}

func (t *Timing) prev(until int64) (int64, DSTNote, bool) {
	at, note, ok := t.namedPrev(until)
	if len(t.away) == 0 {
		return at, note, ok
	}
	for ok && t.gone(at) {
		at, note, ok = t.namedPrev(at - 1)
	}
	if i, _ := slices.BinarySearch(t.added, until+1); i > 0 && (!ok || t.added[i-1] > at) {
		return t.added[i-1], DSTNone, true
	}
	return at, note, ok
}

// moveCount returns the change of the count of [low, high) by moves.
func (t *Timing) moveCount(low, high int64) int {
	within := func(list []int64) int {
		from, _ := slices.BinarySearch(list, low)
		to, _ := slices.BinarySearch(list, high)
		return to - from
	}
	return within(t.added) - within(t.away)
}
