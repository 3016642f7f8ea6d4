package chaos

import (
	"fmt"
	"slices"
	"time"
)

// The most entries of each kind in a story.
const (
	storyOps   = 6
	storyTicks = 3 // on either side
	storyNear  = 12 * time.Second
)

// event is a line of a story.
type event struct {
	at   time.Time
	text string
}

// story lists what happened to a key around a tick: the operations before it, the ticks beside it, its receipts, and the faults of that time,
// in the order of time.
func (c *checker) story(n name, t *tick) []string {
	var events []event
	add := func(at time.Time, format string, args ...any) {
		events = append(events, event{at, fmt.Sprintf(format, args...)})
	}
	var around time.Time
	if t != nil {
		around = t.Timestamp
		c.tellTicks(n, t, add)
		for _, r := range c.receipts[t.TickID] {
			add(r.At, "%s receives attempt %d and answers %q at %s", r.Where, r.Attempt, r.Outcome, clock(r.Done))
		}
	}
	if b := c.lives[n]; b != nil {
		ops := b.ops
		if t != nil {
			ops = slices.DeleteFunc(slices.Clone(ops), func(o *operation) bool { return o.Start.After(t.Timestamp.Add(storyNear)) })
		}
		for _, o := range ops[max(0, len(ops)-storyOps):] {
			add(o.Start, "%s begins, ends at %s as %s (%d, %d tries), version %d: %.400s", o.Kind, clock(o.End), o.Outcome, o.Status, o.Tries, o.Version, o.Body)
			if t == nil {
				around = o.End
			}
		}
	}
	if !around.IsZero() {
		c.troubles.mu.Lock()
		for _, d := range c.troubles.list {
			if d.From.Before(around.Add(storyNear)) && d.To.After(around.Add(-storyNear)) {
				add(d.From, "%s of %s until %s", d.Kind, d.On, clock(d.To))
			}
		}
		c.troubles.mu.Unlock()
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	var lines []string
	for _, e := range events {
		lines = append(lines, clock(e.at)+" "+e.text)
	}
	return lines
}

func (c *checker) tellTicks(n name, t *tick, add func(time.Time, string, ...any)) {
	ticks := c.record.ticks[n]
	at, _ := slices.BinarySearchFunc(ticks, t.Timestamp, func(a *tick, when time.Time) int { return a.Timestamp.Compare(when) })
	for _, other := range ticks[max(0, at-storyTicks):min(len(ticks), at+storyTicks+1)] {
		mark := ""
		if other.TickID == t.TickID {
			mark = ": this one"
		}
		add(other.Timestamp, "tick of %s, %s %s, %s, missed %d, occurrence %d, attempt %d, version %d, handed out at %s, last %v%s", other.ScheduleID, other.State,
			other.Reason, other.Cause, other.MissedCount, deref(other.Occurrence), other.Attempt, other.Version, clock(other.FiredAt), other.LastTimestamp, mark)
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
