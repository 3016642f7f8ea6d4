package carillontest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/schedules/runs"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// The outcomes of an attempt.
const (
	succeeded = "succeeded"
	failed    = "failed"
	lost      = "lost"
	cancelled = "cancelled"
)

// outcome is how an attempt ended.
type outcome struct {
	result     string // succeeded, failed, lost or cancelled
	final      bool   // a failure that is not retried
	retryAfter time.Duration
	kept       rawJSON // the result of the tick
	err        string
	status     int  // of the webhook's answer
	unsent     bool // the attempt was never made
}

// retryWait is the wait before the next attempt. The server draws it from a range that has this wait in it.
const retryWait = time.Second

// end ends the attempt that runs, and then the tick, or plans the next attempt. The caller holds the lock.
func (s *Server) end(t *tick, o outcome) {
	s.unlease(t)
	defer s.announce()
	stopped := t.stopped()
	if !o.unsent && (o.result != succeeded || t.attempt > t.first+1) {
		began := t.began
		t.attempts = append(t.attempts, carillon.Attempt{
			Attempt: t.attempt, StartedAt: &began, EndedAt: s.now, TookMS: new(s.now.Sub(began).Milliseconds()), Outcome: o.result,
			Status: o.status, Error: o.err, Worker: t.worker,
		})
	}
	t.err = o.err
	if o.result != succeeded && !stopped && s.retry(t, o) {
		return
	}
	state := o.result
	switch {
	case stopped || o.result == cancelled:
		state = cancelled
	case o.result == lost:
		state = failed
	}
	if stopped && o.result == succeeded && o.kept != "" { // it came too late to be the tick's
		t.attempts = append(t.attempts, carillon.Attempt{Attempt: t.attempt, EndedAt: s.now, Outcome: cancelled, Result: json.RawMessage(o.kept)})
	} else {
		t.result = o.kept
	}
	t.finish(state, "")
	s.count(t, state)
	s.endDelay(t)
	s.releaseNext(t.of)
}

// retry plans the next attempt of a tick whose attempt failed. It returns false if the tick has none left, or would be too late.
func (s *Server) retry(t *tick, o outcome) bool {
	terms := t.terms()
	if o.final || o.result == cancelled || t.attempt-t.first >= terms.delivery.MaxAttempts {
		return false
	}
	due := s.now.Add(max(retryWait, o.retryAfter))
	if o.result == lost {
		due = s.now
	}
	if !t.aside && terms.expired(t.at, due) {
		return false
	}
	t.attempt++
	if o.result == lost { // it need not wait for the clock, which may stand still
		s.deliver(t)
		return true
	}
	t.retries = true
	t.event = s.agenda.newEvent(func() {
		t.retries = false
		s.deliver(t)
	})
	s.agenda.set(t.event, due)
	return true
}

// count counts an ended tick in the tally of its schedule, and pauses a schedule that failed too often in a row.
func (s *Server) count(t *tick, state string) {
	h := t.of
	if t.aside {
		h.aside--
	} else {
		h.live--
	}
	switch state {
	case succeeded:
		h.stats.Succeeded++
		h.failures = 0
	case failed:
		h.stats.Failed++
		h.failures++
		if s.schedules[h.name] != h { // it was deleted
			return
		}
		h.awaken() // a pause may have ended since the tick fired
		if most := h.terms().maxFailures; most > 0 && h.failures >= most && h.status == active {
			_ = h.pause(nil, new(fmt.Sprintf("paused after %d failed ticks in a row", h.failures))) // an active schedule can be paused
		}
	}
}

// endDelay sets the next time of a fixed_delay whose tick has ended.
func (s *Server) endDelay(t *tick) {
	h := t.of
	if !t.timed || h.delayAt == nil || !h.delayAt.Equal(t.at) {
		return
	}
	h.delayAt = nil
	m := h.member
	if m == nil || !runs.Delays(h.timing) { // another spec is in force since
		return
	}
	from := s.now
	if m.from.After(from) {
		from = m.from
	}
	if tick, ok := h.timing.Next(from); ok && (h.delayLeft == nil || *h.delayLeft > 0) {
		m.next = tick.At
		h.rouse()
		return
	}
	h.completeIfOver()
}

// releaseNext hands out the oldest tick that waits for the schedule's running ticks. It skips ticks that have expired meanwhile.
func (s *Server) releaseNext(h *schedule) {
	for h.aside == 0 && h.live == 0 && len(h.waiting) > 0 {
		t := h.waiting[0]
		h.waiting = h.waiting[1:]
		if terms := h.terms(); t.timed && terms.expired(t.at, s.now) {
			h.stats.Skipped++
			t.finish("skipped", "expired")
			s.endDelay(t)
			continue
		}
		if t.timed {
			t.cause = "buffered"
		}
		s.handOut(t)
	}
	if h.aside == 0 && len(h.replays) > 0 && (h.live == 0 || h.terms().policy.Overlap == "allow_all") {
		t := h.replays[0]
		h.replays = h.replays[1:]
		s.runAside(t)
	}
}

// runAside hands out a replayed tick.
func (s *Server) runAside(t *tick) {
	t.state = "running"
	t.of.aside++
	s.deliver(t)
}

// Cancel ends a tick: at once if no worker has it. Otherwise the next heartbeat of its worker reports the cancellation.
func (s *Server) Cancel(tickID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tickOf(tickID); t != nil && t.endedAt == nil {
		s.cancel(t)
	}
}

// cancel ends a tick that has not ended, or tells it to stop. The caller holds the lock.
func (s *Server) cancel(t *tick) {
	h := t.of
	switch {
	case t.state == "scheduled":
		same := func(other *tick) bool { return other == t }
		h.waiting, h.replays = slices.DeleteFunc(h.waiting, same), slices.DeleteFunc(h.replays, same)
		if t.event != nil {
			s.agenda.set(t.event, time.Time{})
		}
		t.later = false
		t.finish(cancelled, "requested")
		s.endDelay(t)
	case t.stopped():
	default:
		t.reason = "requested"
		if s.withdraw(t) {
			s.end(t, outcome{result: cancelled})
		}
	}
}

// withdraw takes back a running tick, unless a worker or a webhook has it, and reports whether it did.
func (s *Server) withdraw(t *tick) bool {
	if s.leased[t] {
		return false
	}
	if t.event != nil && t.event.place >= 0 { // it waits for a retry, or for its end
		s.agenda.set(t.event, time.Time{})
		t.retries = false
		return true
	}
	same := func(other *tick) bool { return other == t }
	s.ready[t.of.workflow] = slices.DeleteFunc(s.ready[t.of.workflow], same)
	s.outbox = slices.DeleteFunc(s.outbox, same)
	return true
}
