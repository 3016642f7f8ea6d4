package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// checker compares the record and the receipts with the operations of the clients. It uses no code of the product, and does not trust what
// the product reports of itself.
type checker struct {
	history  *history
	record   *record
	lives    map[name]*biography
	receipts map[string][]*receipt // by tick
	byID     map[string]*tick
	troubles *troubles

	early    bool // ticks may be under way: missing ones are no violation yet
	checked  int
	byRule   map[string]int
	violated []Violation
	shown    map[string]int
}

// Violation is a broken promise, with the smallest history that shows it.
type Violation struct {
	Rule    string   `json:"rule"` // I1 to I12
	What    string   `json:"what"`
	Key     string   `json:"key,omitempty"`
	History []string `json:"history,omitempty"`
}

// mostShown is the number of violations of a rule that are shown with their history.
const mostShown = 5

// doubtfulFor is the time after a fault in which it may still have lost an acknowledgement.
const doubtfulFor = 15 * time.Second

func newChecker(rec *record, h *history, l *ledger, t *troubles) *checker {
	c := &checker{
		record: rec, history: h, lives: map[name]*biography{}, receipts: map[string][]*receipt{}, byID: map[string]*tick{}, troubles: t,
		byRule: map[string]int{}, shown: map[string]int{},
	}
	for n, ops := range h.byKey() {
		c.lives[n] = biographyOf(ops)
	}
	for _, ticks := range rec.ticks {
		for _, t := range ticks {
			c.byID[t.TickID] = t
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.list {
		c.receipts[r.TickID] = append(c.receipts[r.TickID], r)
	}
	for _, list := range c.receipts {
		slices.SortFunc(list, func(a, b *receipt) int { return a.Done.Compare(b.Done) })
	}
	for _, what := range l.bad {
		rule, text, ok := strings.Cut(what, " ")
		if !ok || !strings.HasPrefix(rule, "I") {
			rule, text = "I5", what
		}
		c.violate(rule, name{}, nil, "%s", text)
	}
	return c
}

// check runs all checks.
func (c *checker) check() {
	for n, b := range c.lives {
		c.key(n, b)
	}
	for n, ticks := range c.record.ticks {
		if c.lives[n] == nil {
			c.violate("I1", n, ticks[0], "a tick of a key that nobody wrote")
		}
	}
	for n := range c.record.stored {
		if c.lives[n] == nil {
			c.violate("I8", n, nil, "a schedule that nobody wrote")
		}
	}
	for id, list := range c.receipts {
		c.deliveries(id, list)
	}
	for _, left := range c.record.left {
		c.violate("I10", name{}, nil, "after %s: %s", c.record.late.Round(time.Second), left)
	}
	for n, ticks := range c.record.ticks {
		for _, t := range ticks {
			c.checked++
			c.finished(n, t)
		}
	}
	slices.SortStableFunc(c.violated, func(a, b Violation) int { return strings.Compare(a.Rule, b.Rule) })
}

// key checks the ticks of one key: life by life, and then those that no life explains.
func (c *checker) key(n name, b *biography) {
	byLife := map[string][]*tick{}
	for _, t := range c.record.ticks[n] {
		byLife[t.ScheduleID] = append(byLife[t.ScheduleID], t)
	}
	for _, l := range b.lives {
		ticks := byLife[l.id]
		delete(byLife, l.id)
		c.due(n, b, l, ticks)
		c.chained(n, b, l, ticks)
		c.sequence(n, ticks)
		c.asked(n, b, l, ticks)
	}
	for _, ticks := range byLife {
		if b.doubt.IsZero() {
			c.violate("I1", n, ticks[0], "a tick of a schedule that no answer named")
			continue
		}
		c.sequence(n, ticks)
	}
	c.kept(n, b)
	c.audited(n, b)
}

// due checks I1: each time that must have come has one tick, or exactly one tick counts it as missed.
func (c *checker) due(n name, b *biography, l *life, ticks []*tick) {
	upto := c.record.judged
	must, may := l.times(upto)
	if !b.doubt.IsZero() {
		must = slices.DeleteFunc(must, func(t time.Time) bool { return !t.Before(b.doubt) })
	}
	var last time.Time
	for _, t := range ticks {
		if !t.timed() {
			continue
		}
		if !t.FiredAt.IsZero() && t.FiredAt.Before(t.Timestamp) {
			c.violate("I2", n, t, "it was created %s before its time", t.Timestamp.Sub(t.FiredAt))
		}
		if t.Timestamp.Equal(last) {
			c.violate("I1", n, t, "a second tick at one time")
			continue
		}
		if _, named := slices.BinarySearchFunc(may, t.Timestamp, time.Time.Compare); !named && !l.free(t) && (b.doubt.IsZero() || t.Timestamp.Before(b.doubt) || !b.any(t.Timestamp)) {
			c.violate("I1", n, t, "a tick that was not due")
		}
		least, most := within(must, last, t.Timestamp), within(may, last, t.Timestamp)
		if b.doubt.IsZero() || t.Timestamp.Before(b.doubt) {
			if t.MissedCount < least || t.MissedCount > most {
				c.violate("I1", n, t, "missed_count is %d, and %d to %d times were missed: %s", t.MissedCount, least, most, times(must, last, t.Timestamp))
			}
			if l.missed == "all" && t.MissedCount > 0 && t.Reason != "missed" {
				c.violate("I1", n, t, "it counts %d missed times, though each had to come", t.MissedCount)
			}
		}
		last = t.Timestamp
	}
	if lost := within(must, last, upto.Add(time.Nanosecond)); lost > 0 && !c.early {
		c.violate("I1", n, lastOf(ticks), "%d times have no tick: %s", lost, times(must, last, upto.Add(time.Nanosecond)))
	}
}

func lastOf(ticks []*tick) *tick {
	if len(ticks) == 0 {
		return nil
	}
	return ticks[len(ticks)-1]
}

// times lists the first of the times strictly between two moments.
func times(all []time.Time, after, before time.Time) string {
	var texts []string
	for _, t := range all {
		if t.After(after) && t.Before(before) && len(texts) < 5 {
			texts = append(texts, t.UTC().Format("15:04:05"))
		}
	}
	return strings.Join(texts, " ")
}

// sequence checks I3 of the handed-out ticks: their numbers have no gap, and each names the one before it.
func (c *checker) sequence(n name, ticks []*tick) {
	var before *tick
	for _, t := range ticks {
		if t.Occurrence == nil || !t.timed() {
			continue
		}
		number := int64(1)
		if before != nil {
			number = *before.Occurrence + 1
		}
		if *t.Occurrence != number {
			c.violate("I3", n, t, "its occurrence is %d, not %d", *t.Occurrence, number)
		}
		switch {
		case before == nil && t.LastTimestamp != nil:
			c.violate("I3", n, t, "it is the first, and names %s as the last", t.LastTimestamp)
		case before != nil && (t.LastTimestamp == nil || !t.LastTimestamp.Equal(before.Timestamp)):
			c.violate("I3", n, t, "last_timestamp is %v, not %s", t.LastTimestamp, before.Timestamp)
		}
		before = t
	}
}

// asked checks I8 of triggered ticks: each acknowledged one exists, once.
func (c *checker) asked(n name, b *biography, l *life, ticks []*tick) {
	manual := 0
	for _, t := range ticks {
		if t.Cause == "manual" {
			manual++
		}
	}
	if manual < l.manual && !b.late(c.record.judged) || manual > l.manual && b.doubt.IsZero() {
		c.violate("I8", n, lastOf(ticks), "%d ticks were triggered, and %d exist", l.manual, manual)
	}
	for _, o := range b.ops {
		if o.Kind == "trigger" && o.Outcome == okay && o.Tick != "" && o.End.Before(c.record.judged) && c.byID[o.Tick] == nil {
			c.violate("I8", n, nil, "tick %s was acknowledged and does not exist", o.Tick)
		}
	}
}

// late reports whether a tick was triggered after the moment up to which ticks are checked.
func (b *biography) late(judged time.Time) bool {
	return slices.ContainsFunc(b.ops, func(o *operation) bool { return o.Kind == "trigger" && o.End.After(judged) })
}

// kept checks I8 and I10 of schedules: the stored schedule is the acknowledged one, and it has a next time.
func (c *checker) kept(n name, b *biography) {
	s, there := c.record.stored[n]
	if there && s.Status == "quarantined" {
		c.violate("I10", n, nil, "the schedule is quarantined")
	}
	if !b.doubt.IsZero() || len(b.lives) == 0 {
		return
	}
	l := b.lives[len(b.lives)-1]
	if there && s.Status == "active" && s.NextAt == nil && !l.deleted && l.def.timing.lasts() { // a schedule at its end is completed within a minute
		c.violate("I10", n, nil, "the schedule is active and has no next time")
	}
	switch {
	case l.deleted && there:
		c.violate("I8", n, nil, "it was deleted, and exists")
	case l.deleted:
	case !there:
		c.violate("I8", n, nil, "it was acknowledged, and does not exist")
	case l.id != "" && s.ID != l.id:
		c.violate("I8", n, nil, "it is another schedule, %s and not %s", s.ID, l.id)
	case l.last > 0 && s.Version != l.last:
		c.violate("I8", n, nil, "its version is %d, and %d was acknowledged last", s.Version, l.last)
	case (s.Status == "paused") != l.paused:
		c.violate("I8", n, nil, "it is %s", s.Status)
	}
}

// audited checks I12: each change has one row. Bulk and sync have a row for the whole call, not for a key.
func (c *checker) audited(n name, b *biography) {
	if !b.doubt.IsZero() {
		return
	}
	versions, rows := map[int64]int{}, map[int64]int{}
	deleted, deletions := 0, 0
	for _, l := range b.lives {
		if !l.single {
			return
		}
		for v := int64(1); v <= l.last; v++ {
			versions[v]++
		}
		if l.deleted {
			deleted++
		}
	}
	for _, a := range c.record.audit[n] {
		switch {
		case a.Action == "schedule.delete":
			deletions++
		case a.After != nil && slices.Contains([]string{"schedule.put", "schedule.patch", "schedule.pause", "schedule.resume"}, a.Action):
			rows[a.After.Version]++
		}
	}
	if deleted != deletions {
		c.violate("I12", n, nil, "%d deletions have %d rows of audit", deleted, deletions)
	}
	for v, want := range versions {
		if rows[v] != want {
			c.violate("I12", n, nil, "version %d was written %d times and has %d rows of audit", v, want, rows[v])
		}
		delete(rows, v)
	}
	for v, n1 := range rows {
		c.violate("I12", n, nil, "%d rows of audit name version %d, which no answer named", n1, v)
	}
}

// finished checks I4: a tick ends, with a reason.
func (c *checker) finished(n name, t *tick) {
	switch t.State {
	case "succeeded":
		if !slices.ContainsFunc(c.receipts[t.TickID], func(r *receipt) bool { return r.Outcome == taken || r.Outcome == cutOff }) {
			c.violate("I4", n, t, "it succeeded, and no receiver took it")
		}
	case "failed":
		if t.Attempt < 10 {
			c.violate("I4", n, t, "it failed after %d attempts of 10", t.Attempt)
		}
	case "skipped":
		if t.Reason == "" {
			c.violate("I4", n, t, "it was skipped without a reason")
		}
	case "cancelled":
	default:
		if len(c.record.left) == 0 && !c.early { // otherwise it was already reported
			c.violate("I4", n, t, "it is still %s", t.State)
		}
	}
	if t.EndedAt != nil && t.EndedAt.Before(t.FiredAt.Add(-time.Second)) {
		c.violate("I4", n, t, "it ended at %s, before it was handed out", t.EndedAt)
	}
}

// violate notes a violation. The first ones of a rule get their history.
func (c *checker) violate(rule string, n name, t *tick, format string, args ...any) {
	c.byRule[rule]++
	if c.shown[rule]++; c.shown[rule] > mostShown {
		return
	}
	v := Violation{Rule: rule, What: fmt.Sprintf(format, args...)}
	if n.key != "" {
		v.Key = fmt.Sprintf("%s: %s %q", n.tenant, n.workflow, n.key)
	}
	v.History = c.story(n, t)
	c.violated = append(c.violated, v)
}
