package carillontest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules/runs"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// The states of a schedule.
const (
	active      = "active"
	paused      = "paused"
	completed   = "completed"
	quarantined = "quarantined"
)

// schedule is a stored schedule: its definition, its timing, and the counters of its ticks.
type schedule struct {
	server *Server
	id     string
	name
	*definition
	version   int64
	status    string
	note      *string
	anchor    time.Time // of fixed_rate: the moment of creation, rounded up to a second
	createdAt time.Time
	updatedAt time.Time

	statusNote  *string
	pausedAt    time.Time
	pausedUntil *time.Time // nil: for good
	bySync      bool       // a sync paused it

	timing *calendar.Timing // with the moves
	moves  []calendar.Move
	left   *int // of max_ticks, from the last join on
	skips  []time.Time
	member *membership // nil: it does not fire

	tally
	lastAt    *time.Time // nominal time of the last tick of the sequence
	seenAt    *time.Time // and of the last that was recorded, skipped ones included
	rezonedAt *time.Time
	newest    *tick   // the own tick that was handed out last
	last      *tick   // the tick that was recorded last
	waiting   []*tick // own buffered ticks, in order
	replays   []*tick // replayed ticks that wait
	delayAt   *time.Time
	delayLeft *int
	history   []*tick // oldest first
}

// tally counts the ticks of a schedule.
type tally struct {
	stats    carillon.Stats
	failures int64 // failed ticks in a row
	sequence int64 // number of the last tick of the sequence
	manual   int   // number of the last manual tick
	live     int   // own ticks that were handed out and have not ended
	aside    int   // replayed ticks that run
}

// membership is the time during which a schedule fires by one timing.
type membership struct {
	from   time.Time  // the first nominal time that may count
	until  *time.Time // the last one; nil: no limit
	next   time.Time  // the next nominal time that is not served; zero: there is none
	missed string     // the policy for missed times
	run    *runs.Run  // a run that has begun and waits for the schedule's turn, with jitter
	begun  time.Time  // when the run began
	phase  int64      // the schedule's turn
	wake   *event     // when the next run begins, or the turn comes
}

func (h *schedule) identity() string { return "1/" + h.workflow + "/" + h.key }

func (h *schedule) subjectName() string { return cmp.Or(h.subject, h.key) }

// terms returns the policy and the delivery in force.
func (h *schedule) terms() terms { return h.termsIn(h.server.workflows[h.workflow]) }

// join lets the schedule fire by its timing, from the first nominal time after a moment on. If the spec was just compiled, first is the
// earliest nominal time that it allows; zero: no bound. join returns false if no nominal time is left.
func (h *schedule) join(after, first time.Time) bool {
	if runs.Delays(h.timing) {
		return h.joinDelay(after)
	}
	from := after.Truncate(time.Second).Add(time.Second)
	if first.After(from) {
		from = first
	}
	tick, ok := h.timing.Next(from.Add(-time.Second))
	if !ok || h.left != nil && *h.left < 1 {
		return false
	}
	m := &membership{from: from, next: tick.At}
	if h.left != nil {
		last, _ := h.timing.Nth(tick.At, *h.left)
		m.until = &last.At
	}
	h.enter(m)
	return true
}

// joinDelay is join for fixed_delay. While a tick is out, the end of that tick sets the next time.
func (h *schedule) joinDelay(after time.Time) bool {
	from := after.Truncate(time.Second).Add(time.Second)
	tick, ok := h.timing.Next(from)
	if h.seenAt == nil && h.delayAt == nil {
		if own, err := h.compile(); err == nil {
			tick, ok = own.First(from)
		}
	}
	if !ok || h.left != nil && *h.left < 1 {
		return false
	}
	h.delayLeft = h.left
	m := &membership{from: from, next: tick.At}
	if h.delayAt != nil {
		m.next = time.Time{}
	}
	h.enter(m)
	return true
}

func (h *schedule) enter(m *membership) {
	m.missed = h.terms().policy.Missed
	if h.timing.Jitter() > 0 {
		m.phase = runs.PhaseOf(h.identity())
	}
	m.wake = h.server.agenda.newEvent(func() { h.server.serveDue(h) })
	h.member = m
	h.rouse()
}

// leave ends the membership, and returns the runs that were due and not served. The caller decides their ticks once the change is made.
func (h *schedule) leave(now time.Time) (due []runs.Run) {
	if h.member == nil {
		return nil
	}
	due = h.unserved(now)
	switch {
	case runs.Delays(h.timing):
		if h.left != nil && h.delayLeft != nil {
			h.left = new(max(0, *h.delayLeft-len(due)))
		}
		for _, r := range due {
			h.delayAt = &r.At
		}
	case h.left != nil:
		h.left = new(max(0, *h.left-h.timing.Count(h.member.from, now.Add(time.Microsecond))))
	}
	h.server.agenda.set(h.member.wake, time.Time{})
	h.member = nil
	return due
}

// unserved returns the runs whose times have come and that are not served: one that waits for its turn, those that would begin now, and
// one that waits for the end of quiet hours.
func (h *schedule) unserved(now time.Time) (due []runs.Run) {
	m, t := h.member, h.timing
	if m == nil {
		return nil
	}
	add := func(r runs.Run) {
		if own, counts := r.For(t, m.from, m.until); counts {
			due = append(due, own)
		}
	}
	next := m.next
	if m.run != nil {
		r := m.underWay(t, now)
		add(r)
		next = r.Next
	}
	for !next.IsZero() && !next.After(now) && !t.Due(next).After(now) {
		r := runs.Begin(t, next, now, m.missed)
		add(r)
		next = r.Next
	}
	if !next.IsZero() && !next.After(now) {
		waiting := runs.Run{At: next, From: next, Quiet: true}.Until(t, now.Truncate(time.Second).Add(time.Second))
		add(waiting.Placed(t))
	}
	return due
}

// underWay returns the run that waits for the schedule's turn, as it is now.
func (m *membership) underWay(t *calendar.Timing, now time.Time) runs.Run {
	if m.begun.Equal(now) {
		return *m.run
	}
	return runs.Resume(t, m.run.At, m.run.From, m.run.Missed, m.run.Drop, now)
}

// nextAfter returns the first nominal time after a moment that counts and is not to be skipped.
func (h *schedule) nextAfter(after time.Time) (time.Time, bool) {
	m := h.member
	if m == nil {
		return time.Time{}, false
	}
	if runs.Delays(h.timing) {
		at := m.next
		if m.run != nil {
			at = m.run.At
		}
		return at, at.After(after) && !h.skipped(at)
	}
	if first := m.from.Add(-time.Second); after.Before(first) {
		after = first
	}
	tick, ok := h.timing.Next(after)
	for ok && h.skipped(tick.At) {
		tick, ok = h.timing.Next(tick.At)
	}
	if !ok || m.until != nil && tick.At.After(*m.until) {
		return time.Time{}, false
	}
	return tick.At, true
}

func (h *schedule) skipped(at time.Time) bool { return slices.ContainsFunc(h.skips, at.Equal) }

// awaken makes a schedule active whose pause has ended, or completed if nothing comes after it.
func (h *schedule) awaken() {
	if h.status != paused || h.pausedUntil == nil || h.pausedUntil.After(h.server.now) {
		return
	}
	h.setStatus(active)
	if h.member == nil {
		h.status = completed
	}
}

// setStatus makes the schedule active or paused from now on.
func (h *schedule) setStatus(status string) {
	h.status, h.statusNote, h.pausedAt, h.pausedUntil, h.bySync = status, nil, time.Time{}, nil, false
	if status == paused {
		h.pausedAt = h.server.now
	}
}

// find returns a schedule, or the fault 404.
func (s *Server) find(values []string) (*schedule, error) {
	of := name{values[0], values[1]}
	if h := s.schedules[of]; h != nil {
		h.awaken()
		return h, nil
	}
	return nil, fault.NotFound("no schedule %q of workflow %q", of.key, of.workflow)
}

// view returns the schedule as the API shows it now.
func (h *schedule) view() carillon.Schedule {
	h.awaken()
	now, t := h.server.now, h.terms()
	v := carillon.Schedule{
		ID: h.id, Workflow: h.workflow, Key: h.key, Subject: h.subjectName(), Version: h.version, Status: h.status,
		Policy: t.policy, Delivery: t.delivery, Payload: json.RawMessage(cmp.Or(string(h.payload), "null")), Labels: maps.Clone(h.labels), Note: text(h.note),
		StatusNote: text(h.statusNote), PausedUntil: h.pausedUntil,
		Reading: h.timing.Reading(), TimezoneInForce: h.timing.Zone(), Upcoming: []time.Time{}, LastAt: h.lastAt, Stats: h.stats,
		Inherited: inherited(h.stated), Warnings: warnings(h.timing, now), TZData: h.timing.Zones().Version(),
		CreatedAt: h.createdAt, UpdatedAt: h.updatedAt, UpdatedBy: "carillontest",
	}
	if err := json.Unmarshal([]byte(h.specText), &v.Spec); err != nil {
		panic(fmt.Sprintf("carillontest: the SDK cannot read the spec %s: %v", h.specText, err))
	}
	if h.bySync {
		v.PausedBy = "sync"
	}
	if h.last != nil {
		v.LastTickID = h.last.id()
	}
	after := now
	if due := h.unserved(now); len(due) > 0 {
		after = due[0].At.Add(-time.Second)
	}
	for range 5 {
		at, ok := h.nextAfter(after)
		if !ok {
			break
		}
		v.Upcoming, after = append(v.Upcoming, at), at
	}
	if len(v.Upcoming) > 0 {
		v.NextAt, v.NextLocal = new(v.Upcoming[0]), new(h.timing.Local(v.Upcoming[0]))
	}
	return v
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func warnings(t *calendar.Timing, now time.Time) []carillon.Warning {
	all := []carillon.Warning{}
	for _, w := range t.Warnings(now) {
		all = append(all, carillon.Warning{Code: w.Code, Detail: w.Detail})
	}
	return all
}
