package carillontest

import (
	"slices"
	"time"

	"github.com/carillonhq/carillon/schedules/runs"
)

// rouse puts the next time at which the schedule is served into the agenda.
func (h *schedule) rouse() {
	m := h.member
	at := time.Time{}
	switch {
	case m.run != nil:
		walk, _ := runs.WalkOf(h.timing, *m.run, h.workflow)
		at = walk.Due(m.phase)
	case !m.next.IsZero():
		at = h.timing.Due(m.next)
	}
	h.server.agenda.set(m.wake, at)
}

// serveDue serves the runs of a schedule that are due now. The ticks of a held workflow wait.
func (s *Server) serveDue(h *schedule) {
	if w := s.workflows[h.workflow]; w != nil && w.State == held {
		w.waiting = append(w.waiting, h)
		return
	}
	for m := h.member; m != nil; m = h.member {
		r, served := h.serve(m)
		if !served {
			break
		}
		own, counts := r.For(h.timing, m.from, m.until)
		if counts && runs.Delays(h.timing) {
			m.next, h.delayAt = time.Time{}, &own.At
			if h.delayLeft != nil {
				h.delayLeft = new(*h.delayLeft - 1)
			}
		}
		if counts {
			s.decide(h, own, false)
		}
	}
	if h.member != nil {
		h.rouse()
		h.completeIfOver()
	}
}

// serve returns the next run of the schedule if it is due now, and moves the membership past that run.
func (h *schedule) serve(m *membership) (r runs.Run, served bool) {
	t, now := h.timing, h.server.now
	if m.run == nil {
		if m.next.IsZero() || t.Due(m.next).After(now) {
			return r, false
		}
		m.run, m.begun = new(runs.Begin(t, m.next, now, m.missed)), now
	}
	if walk, jitters := runs.WalkOf(t, *m.run, h.workflow); jitters && walk.Due(m.phase).After(now) {
		return r, false
	}
	r = m.underWay(t, now)
	m.run, m.next = nil, r.Next
	if m.until != nil && m.next.After(*m.until) {
		m.next = time.Time{}
	}
	return r, true
}

// completeIfOver ends the membership of a schedule that has no nominal time left.
func (h *schedule) completeIfOver() {
	m := h.member
	if m == nil || m.run != nil || !m.next.IsZero() {
		return
	}
	if runs.Delays(h.timing) && h.delayAt != nil && (h.delayLeft == nil || *h.delayLeft > 0) {
		return
	}
	h.awaken()
	h.leave(h.server.now)
	if h.status == active {
		h.status = completed
	}
}

// decide makes the tick of a run, and decides what becomes of it. forced: a client asked for it, and it does not expire.
func (s *Server) decide(h *schedule, r runs.Run, forced bool) {
	if h.seenAt != nil && !h.seenAt.Before(r.At) {
		return
	}
	cause := "schedule"
	if r.Late {
		cause = "catch_up"
	}
	t := s.newTick(h, r.At, cause)
	t.dst, t.missed, t.timed = r.DST, r.Missed, true
	h.stats.Missed += int64(r.Missed)
	policy := h.terms()
	reason := s.reason(h, r, &policy, forced)
	h.seenAt = &t.at
	s.start(t, reason, policy.policy.Overlap)
}

// reason returns why a tick of the schedule's timing is skipped; empty: it is not.
func (s *Server) reason(h *schedule, r runs.Run, t *terms, forced bool) string {
	switch {
	case r.Drop:
		return "missed"
	case s.workflows[h.workflow] == nil:
		return "no_workflow"
	case h.pausedAtTime(r.At):
		return "paused"
	case !forced && t.expired(r.At, s.now):
		return "expired"
	case r.Quiet:
		return "quiet_hours"
	case slices.ContainsFunc(h.skips, r.At.Equal):
		return "requested"
	case h.rezonedAt != nil && h.lastAt != nil && !h.lastAt.After(*h.rezonedAt) && h.rezonedAt.Before(r.At) && r.At.Before(h.lastAt.Add(20*time.Hour)):
		return "superseded"
	}
	return ""
}

// pausedAtTime reports whether the schedule is paused at a nominal time.
func (h *schedule) pausedAtTime(at time.Time) bool {
	return h.status == paused && (h.pausedUntil == nil || h.pausedUntil.After(at))
}

const mostBuffered = 1000

// start hands a new tick out, buffers it or skips it, by the overlap policy. A reason skips it whatever else runs.
func (s *Server) start(t *tick, reason, overlap string) {
	h := t.of
	busy := h.live + len(h.waiting)
	switch {
	case reason != "":
	case overlap == "allow_all" || busy+h.aside == 0:
		s.handOut(t)
		return
	case busy == 0, overlap == "buffer_one" && len(h.waiting) == 0, overlap == "buffer_all" && len(h.waiting) < mostBuffered:
		s.buffer(t)
		return
	case overlap == "cancel_other":
		s.stopOthers(h)
		s.buffer(t)
		return
	default:
		reason = "overlap"
	}
	h.stats.Skipped++
	t.finish("skipped", reason)
	s.endDelay(t)
}

func (s *Server) buffer(t *tick) {
	t.state = "scheduled"
	h := t.of
	h.waiting = append(h.waiting, t)
	slices.SortStableFunc(h.waiting, func(a, b *tick) int { return a.at.Compare(b.at) })
}

// stopOthers tells the running tick of a schedule to stop, and skips the ticks that wait for it.
func (s *Server) stopOthers(h *schedule) {
	gone := h.waiting
	h.waiting = nil
	for _, t := range gone {
		h.stats.Skipped++
		t.finish("skipped", "superseded")
		s.endDelay(t)
	}
	t := h.newest
	if t == nil || t.state != "running" {
		return
	}
	t.reason = "superseded"
	if t.event != nil && t.event.place >= 0 && t.retries { // no worker has it: it ends at once
		s.agenda.set(t.event, s.now)
	}
}

// handOut makes a tick running, and gives it to a handler or to the next lease.
func (s *Server) handOut(t *tick) {
	h := t.of
	t.state, t.reason, t.firedAt, t.attempt, t.last = "running", "", s.now, 1, h.lastAt
	h.live++
	h.stats.Fired++
	h.newest = t
	if t.timed {
		h.sequence++
		t.occurrence = new(h.sequence)
		h.lastAt = &t.at
	}
	if w := s.workflows[h.workflow]; w != nil {
		t.workflowVersion = w.Version
	}
	s.deliver(t)
}
