package carillontest

import (
	"net/http"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules/runs"
)

// change finds the schedule of a route, evaluates preconditions, and answers the schedule after a change of its state.
func (s *Server) change(r *http.Request, values []string, fn func(h *schedule) error) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(values)
	if err != nil {
		return nil, err
	}
	if err := condition(r, h.version); err != nil {
		return nil, err
	}
	if err := fn(h); err != nil {
		return nil, err
	}
	return h.view(), nil
}

func (s *Server) pause(r *http.Request, values []string) (any, error) {
	var p struct {
		Until *time.Time `json:"until"`
		Note  *string    `json:"note"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	return s.change(r, values, func(h *schedule) error {
		if p.Until != nil {
			p.Until = new(wholeSecond(p.Until.UTC()))
			if !p.Until.After(s.now) {
				return fault.Invalid("/until", "%s has passed", p.Until.Format(time.RFC3339))
			}
		}
		return h.pause(p.Until, p.Note)
	})
}

// pause stops the schedule until a moment, or for good.
func (h *schedule) pause(until *time.Time, note *string) error {
	switch {
	case h.status == completed || h.status == quarantined:
		return fault.Conflict("not_active", "the schedule is %s", h.status)
	case h.status == paused && (h.pausedUntil == nil) == (until == nil) && (until == nil || until.Equal(*h.pausedUntil)) && same(h.statusNote, note) && !h.bySync:
		return nil
	}
	since := h.server.now
	if h.status == paused {
		since = h.pausedAt
	}
	due := h.leave(h.server.now)
	h.status, h.statusNote, h.pausedAt, h.pausedUntil, h.bySync = paused, note, since, until, false
	h.written()
	if until != nil {
		h.join(until.Add(-time.Second), time.Time{})
	}
	h.decideAll(due)
	return nil
}

// written notes a change that makes a version.
func (h *schedule) written() {
	h.version++
	h.updatedAt = h.server.now
}

func (s *Server) resume(r *http.Request, values []string) (any, error) {
	var p struct {
		FireOnce bool `json:"fire_once"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	return s.change(r, values, func(h *schedule) error { return h.resume(p.FireOnce) })
}

// resume lets a paused schedule fire from now on. once asks for a tick if a time passed in the pause.
func (h *schedule) resume(once bool) error {
	switch h.status {
	case active:
		return nil
	case paused:
	default:
		return fault.Conflict("not_paused", "the schedule is %s", h.status)
	}
	now, since := h.server.now, h.pausedAt
	due := h.leave(now)
	h.setStatus(active)
	h.written()
	if !h.join(now, time.Time{}) {
		h.status = completed
	}
	h.decideAll(due)
	last, ok := h.timing.Prev(now.Truncate(time.Second).Add(time.Second))
	if once && ok && last.At.After(since) {
		h.server.decide(h, runs.Run{At: last.At, DST: last.DST, From: last.At, Late: true, Missed: h.timing.Count(since.Add(time.Microsecond), last.At)}, true)
	}
	return nil
}

func (s *Server) skip(r *http.Request, values []string) (any, error) {
	var p struct {
		Count *int        `json:"count"`
		At    []time.Time `json:"at"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	switch {
	case (p.Count == nil) == (len(p.At) == 0):
		return nil, fault.Invalid("", "give either count or at, not both")
	case p.Count != nil && (*p.Count < 1 || *p.Count > mostSkips):
		return nil, fault.Invalid("/count", "%d is not between 1 and %d", *p.Count, mostSkips)
	}
	return s.change(r, values, func(h *schedule) error {
		if h.member == nil {
			return fault.Conflict("not_active", "the schedule is %s", h.status)
		}
		if p.Count != nil {
			for after := s.now; *p.Count > 0; *p.Count-- {
				at, ok := h.nextAfter(after)
				if !ok {
					break
				}
				p.At, after = append(p.At, at), at
			}
			return h.leaveOut(p.At)
		}
		for _, at := range p.At {
			next, ok := h.nextAfter(at.Add(-time.Nanosecond))
			if !h.skipped(at) && (!ok || !next.Equal(at)) || !at.After(s.now) {
				return fault.Invalid("/at", "%s is not the time of a coming tick", at.Format(time.RFC3339Nano))
			}
		}
		return h.leaveOut(p.At)
	})
}

const mostSkips = 1000

// leaveOut adds nominal times to those that the schedule skips.
func (h *schedule) leaveOut(more []time.Time) error {
	var kept []time.Time
	for _, at := range h.skips {
		if h.seenAt == nil || at.After(*h.seenAt) {
			kept = append(kept, at)
		}
	}
	for _, at := range more {
		if !h.skipped(at) {
			kept = append(kept, at.UTC())
		}
	}
	if len(kept) > mostSkips {
		return fault.Invalid("", "%d coming ticks would be skipped; the maximum is %d", len(kept), mostSkips)
	}
	h.skips = kept
	return nil
}

func (s *Server) unskip(r *http.Request, values []string) (any, error) {
	return s.change(r, values, func(h *schedule) error {
		var due []time.Time
		for _, at := range h.skips {
			if !at.After(s.now) { // a due tick stays skipped
				due = append(due, at)
			}
		}
		h.skips = due
		return nil
	})
}

func (s *Server) reschedule(r *http.Request, values []string) (any, error) {
	var p struct {
		At time.Time `json:"at"`
		To time.Time `json:"to"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	return s.change(r, values, func(h *schedule) error { return h.reschedule(p.At.UTC(), p.To.UTC()) })
}

// reschedule moves the coming tick of a nominal time to another time.
func (h *schedule) reschedule(at, to time.Time) error {
	now, m := h.server.now, h.member
	if m == nil {
		return fault.Conflict("not_active", "the schedule is %s", h.status)
	}
	next, ok := h.nextAfter(at.Add(-time.Nanosecond))
	if runs.Delays(h.timing) || !ok || !next.Equal(at) || !at.After(now) {
		return fault.Fields(fault.Field{Pointer: "/at", Code: "not_coming", Detail: at.Format(time.RFC3339Nano) + " is not the time of a coming tick"})
	}
	bad := func(code, detail string) error {
		return fault.Fields(fault.Field{Pointer: "/to", Code: code, Detail: detail})
	}
	before, hasBefore := h.timing.Prev(at)
	after, hasAfter := h.timing.Next(at)
	switch {
	case to.Nanosecond() != 0:
		return fault.Invalid("/to", "%s is not a whole second", to.Format(time.RFC3339Nano))
	case !to.After(now):
		return bad("has_passed", to.Format(time.RFC3339)+" has passed")
	case to.Before(m.from):
		return bad("out_of_order", "nothing of the schedule counts before "+m.from.Format(time.RFC3339))
	case hasBefore && !to.After(before.At):
		return bad("out_of_order", "it must come after the tick at "+before.At.Format(time.RFC3339))
	case hasAfter && !to.Before(after.At):
		return bad("out_of_order", "it must come before the next tick, at "+after.At.Format(time.RFC3339))
	case at.Equal(to):
		return nil
	}
	moves := h.moved(at, to)
	moved := h.timing.Moved(moves)
	if tick, ok := moved.Next(to.Add(-time.Second)); !ok || !tick.At.Equal(to) {
		return bad("out_of_order", "the spec's start_at or end_at does not allow it")
	}
	from := now
	if first := m.from.Add(-time.Second); first.After(now) {
		from = first
	}
	due := h.leave(now)
	h.moves, h.timing = moves, moved
	if !h.join(from, time.Time{}) {
		h.setStatus(active)
		h.status = completed
	}
	h.decideAll(due)
	return nil
}

// moved returns the schedule's moves with one more, which may move a tick that was moved before.
func (h *schedule) moved(at, to time.Time) (moves []calendar.Move) {
	for _, m := range h.moves {
		if m.To.Equal(at) {
			at = m.At
			continue
		}
		moves = append(moves, m)
	}
	if !at.Equal(to) {
		moves = append(moves, calendar.Move{At: at, To: to})
	}
	return moves
}
