package carillontest

import (
	"errors"
	"net/http"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
)

// The limits of manual ticks that wait for their time.
const (
	mostLater    = 100
	longestAhead = 366 * 24 * time.Hour
)

// triggerParams say what payload a manual tick has, and when it fires.
type triggerParams struct {
	Payload rawJSON `json:"payload"`
	At      string  `json:"at"`
	In      string  `json:"in"`
}

func (s *Server) trigger(r *http.Request, values []string) (any, error) {
	var p triggerParams
	if err := read(r, &p); err != nil {
		return nil, err
	}
	t, err := s.triggerTick(r, values, p)
	if err != nil {
		return nil, err
	}
	return reply{http.StatusAccepted, t}, nil
}

// triggerTick makes the tick and returns it as it is then.
func (s *Server) triggerTick(r *http.Request, values []string, p triggerParams) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(values)
	if err != nil {
		return nil, err
	}
	if err := condition(r, h.version); err != nil {
		return nil, err
	}
	w := s.workflows[h.workflow]
	if w != nil && w.State == held {
		return nil, fault.Conflict("workflow_held", "the workflow is held: release it first")
	}
	at, err := p.due(h)
	if err != nil {
		return nil, err
	}
	t := s.newTick(h, at, "manual")
	t.payload = p.Payload
	h.manual++
	if p.At == "" && p.In == "" {
		s.fireManual(t)
		return t.record(), nil
	}
	t.state, t.attempt, t.later = "scheduled", 0, true
	t.event = s.agenda.newEvent(func() { s.fireLater(t) })
	s.agenda.set(t.event, at)
	return t.record(), nil
}

// due returns the nominal time of a manual tick.
func (p triggerParams) due(h *schedule) (time.Time, error) {
	now := h.server.now
	waiting := 0
	for _, t := range h.history {
		if t.later {
			waiting++
		}
	}
	switch {
	case p.At == "" && p.In == "":
		return now.Truncate(time.Second), nil
	case p.At != "" && p.In != "":
		return now, fault.Invalid("/in", "give at or in, not both")
	case waiting >= mostLater:
		return now, fault.Forbidden("quota_exceeded", "waiting_triggers allows %d, and %d are used", mostLater, waiting)
	}
	if p.In != "" {
		d, ok := parseDuration(p.In)
		if !ok || d > longestAhead {
			return now, fault.Invalid("/in", "%q is not a duration of at most 366 days", p.In)
		}
		return wholeSecond(now.Add(d)), nil
	}
	at, err := h.timing.Moment(p.At)
	if faults, is := errors.AsType[calendar.Faults](err); is {
		return now, fault.Invalid("/at", "%s", faults[0].Detail)
	}
	switch {
	case err != nil:
		return now, err
	case !at.After(now):
		return now, fault.Invalid("/at", "it has passed: omit it to trigger now")
	case at.After(now.Add(longestAhead)):
		return now, fault.Invalid("/at", "it is at most 366 days from now")
	}
	return at, nil
}

// fireManual decides a manual tick whose time has come.
func (s *Server) fireManual(t *tick) {
	reason := ""
	if s.workflows[t.of.workflow] == nil {
		reason = "no_workflow"
	}
	terms := t.of.terms()
	s.start(t, reason, terms.policy.Overlap)
}

// fireLater decides a manual tick that waited for its time.
func (s *Server) fireLater(t *tick) {
	h := t.of
	t.later, t.attempt, t.firedAt, t.last, t.version, t.def, t.timing = false, 1, s.now, h.lastAt, h.version, h.definition, h.timing
	h.last = t
	if h.pausedAtTime(t.at) {
		h.stats.Skipped++
		t.finish("skipped", "paused")
		return
	}
	s.fireManual(t)
}

func (s *Server) cancelTick(_ *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.tick(values[0])
	if err != nil {
		return nil, err
	}
	if t.endedAt != nil {
		return nil, fault.Conflict("tick_ended", "the tick is %s already", t.state)
	}
	s.cancel(t)
	return t.record(), nil
}

// replay delivers a failed tick again.
func (s *Server) replay(_ *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.tick(values[0])
	if err != nil {
		return nil, err
	}
	h := t.of
	switch {
	case t.state != failed:
		return nil, fault.Conflict("tick_not_failed", "the tick is %s", t.state)
	case s.schedules[h.name] != h:
		return nil, fault.Conflict("schedule_deleted", "the tick's schedule is deleted")
	case s.workflows[h.workflow] == nil:
		return nil, fault.Conflict("workflow_deleted", "the workflow %q is gone", h.workflow)
	}
	busy := h.live + len(h.waiting) + h.aside + len(h.replays)
	h.stats.Failed--
	t.aside, t.first, t.endedAt, t.err, t.reason = true, t.attempt, nil, "", ""
	t.attempt++
	if busy > 0 && h.terms().policy.Overlap != "allow_all" {
		t.state = "scheduled"
		h.replays = append(h.replays, t)
		return reply{http.StatusAccepted, t.record()}, nil
	}
	s.runAside(t)
	return reply{http.StatusAccepted, t.record()}, nil
}
