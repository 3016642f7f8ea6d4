package carillontest

import (
	"strings"
	"time"
)

// settleLimit is how long the clock waits for handlers, by the real clock.
const settleLimit = 30 * time.Second

// Advance moves the clock to a moment: an instant such as "2026-11-01T12:00:00Z" (RFC 3339), or a length of time from now such as "36h" or
// "1d" (a day is 24 hours). Each tick that is due by then fires at its time, in order, and so does each retry. When Advance returns, the
// handlers of these ticks have ended; ticks without a handler wait for a lease.
func (s *Server) Advance(to string) {
	s.help()
	if at, ok := s.moment(to); ok {
		s.AdvanceTo(at)
	}
}

// AdvanceBy moves the clock by a length of time, as [Server.Advance] does.
func (s *Server) AdvanceBy(d time.Duration) {
	s.help()
	s.AdvanceTo(s.Now().Add(d))
}

// AdvanceTo moves the clock to an instant, as [Server.Advance] does.
func (s *Server) AdvanceTo(to time.Time) {
	s.help()
	s.moving.Lock()
	defer s.moving.Unlock()
	if !s.forward(to) {
		return
	}
	for {
		s.mu.Lock()
		at, ok := s.agenda.next()
		if !ok || at.After(to) {
			s.now = to
			s.mu.Unlock()
			return
		}
		if at.After(s.now) {
			s.now = at
		}
		s.fire()
		s.mu.Unlock()
		s.settle()
	}
}

// Outage moves the clock to a moment, as [Server.Advance] does, but the server is away until then: nothing fires on the way. Then the
// server catches up at that moment. The ticks that were missed follow the missed policy and max_lateness of their schedules.
func (s *Server) Outage(to string) {
	s.help()
	at, ok := s.moment(to)
	if !ok {
		return
	}
	s.moving.Lock()
	defer s.moving.Unlock()
	if !s.forward(at) {
		return
	}
	s.mu.Lock()
	s.now = at
	s.fire()
	s.mu.Unlock()
	s.sendOut()
	s.catchUp()
	s.waitForWorkers()
}

// catchUp runs the events that are due now and the handlers of their ticks, until no event is due.
func (s *Server) catchUp() {
	for {
		s.mu.Lock()
		at, ok := s.agenda.next()
		due := ok && !at.After(s.now)
		if due {
			s.fire()
		}
		s.mu.Unlock()
		if !due {
			return
		}
		s.sendOut()
	}
}

func (s *Server) help() {
	if s.tb != nil {
		s.tb.Helper()
	}
}

// forward reports whether a moment is not in the past.
func (s *Server) forward(to time.Time) bool {
	if now := s.Now(); to.Before(now) {
		s.help()
		s.fail("the clock shows %s and cannot go back to %s", now.Format(time.RFC3339), to.Format(time.RFC3339))
		return false
	}
	return true
}

// moment reads an instant, or a length of time from now.
func (s *Server) moment(text string) (time.Time, bool) {
	s.help()
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), true
	}
	d, ok := parseDuration(strings.TrimPrefix(text, "+"))
	if !ok {
		s.fail("%q is neither an instant such as 2026-11-01T12:00:00Z nor a length of time such as 36h or 1d", text)
		return time.Time{}, false
	}
	return s.Now().Add(d), true
}

// fire runs the events that are due now. The caller holds the lock.
func (s *Server) fire() {
	for e := s.agenda.take(s.now); e != nil; e = s.agenda.take(s.now) {
		e.run()
	}
}

// settle runs the handlers and webhooks of the ticks that were handed out, and waits for workers that Work runs.
func (s *Server) settle() {
	s.sendOut()
	s.waitForWorkers()
}

// sendOut runs the ticks that wait for a handler or a webhook of this process.
func (s *Server) sendOut() {
	for {
		s.mu.Lock()
		t := s.nextOut()
		s.mu.Unlock()
		if t == nil {
			return
		}
		s.send(t)
	}
}

// waitForWorkers waits until the workers of Work have ended all ticks that they lease.
func (s *Server) waitForWorkers() {
	s.mu.Lock()
	none := s.workers == 0
	s.mu.Unlock()
	if none {
		return
	}
	late := time.NewTimer(settleLimit)
	defer late.Stop()
	for {
		s.mu.Lock()
		t, changed := s.unsettled(), s.changed
		s.mu.Unlock()
		if t == nil {
			return
		}
		select {
		case <-changed:
		case <-late.C:
			s.help()
			s.fail("the handler of tick %s of %s/%s has not ended within %s", t.id(), t.of.workflow, t.of.key, settleLimit)
			return
		}
	}
}

// runDue runs the events that a request made due now, as the server does within milliseconds. While the clock moves, the call that moves
// it runs them instead.
func (s *Server) runDue() {
	if !s.moving.TryLock() {
		return
	}
	defer s.moving.Unlock()
	s.sendOut()
	s.catchUp()
}
