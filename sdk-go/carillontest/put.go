package carillontest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/mergepatch"
	"github.com/carillonhq/carillon/schedules/runs"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// What a put makes of a schedule.
const (
	inserted  = "inserted"
	updated   = "updated"
	unchanged = "unchanged"
)

func (s *Server) put(r *http.Request, values []string) (any, error) {
	of := name{values[0], values[1]}
	var p params
	if err := read(r, &p); err != nil {
		return nil, err
	}
	if err := checkNames(of); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.schedules[of]
	if err := condition(r, h.etag()); err != nil {
		return nil, err
	}
	result, err := s.define(of, p, false)
	if err != nil {
		return nil, err
	}
	h = s.schedules[of]
	if result == inserted {
		return reply{http.StatusCreated, h.view()}, nil
	}
	return h.view(), nil
}

// etag returns the version of a schedule; 0: there is none.
func (h *schedule) etag() int64 {
	if h == nil {
		return 0
	}
	return h.version
}

// define stores the definition of a schedule, and returns what that changed. A dry call changes nothing. The caller holds the lock.
func (s *Server) define(of name, p params, dry bool) (result string, err error) {
	h := s.schedules[of]
	d, err := p.read()
	if err != nil {
		return "", fault.Join(err, s.specFault(of, h, d))
	}
	if h != nil {
		h.awaken()
		return h.redefine(d, p, dry)
	}
	h = &schedule{
		server: s, name: of, definition: &d, version: 1, status: active, note: p.Note.text, anchor: wholeSecond(s.now), createdAt: s.now, updatedAt: s.now,
		left: ticksOf(d.spec),
	}
	if p.Status == paused {
		h.setStatus(paused)
	}
	t, first, err := h.compiled()
	if err != nil {
		return "", err
	}
	h.timing = t
	if h.status == active && !h.mayJoin(s.now, first) {
		return "", neverFires()
	}
	if dry {
		return inserted, nil
	}
	s.made++
	h.id = fmt.Sprintf("sched_%d", s.made)
	s.schedules[of] = h
	s.register(of.workflow)
	if h.status == active {
		h.join(s.now, first)
	}
	return inserted, nil
}

// specFault returns what is wrong with the spec of a definition that has other faults.
func (s *Server) specFault(of name, h *schedule, d definition) error {
	would := schedule{server: s, name: of, definition: &d, anchor: wholeSecond(s.now)}
	if h != nil {
		would.anchor = h.anchor
	}
	_, err := would.compile()
	return err
}

// mayJoin reports whether join would find a nominal time.
func (h *schedule) mayJoin(after, first time.Time) bool {
	if h.left != nil && *h.left < 1 {
		return false
	}
	from := after.Truncate(time.Second).Add(time.Second)
	if runs.Delays(h.timing) {
		_, ok := h.timing.Next(from)
		return ok || h.seenAt == nil && h.delayAt == nil
	}
	if first.After(from) {
		from = first
	}
	_, ok := h.timing.Next(from.Add(-time.Second))
	return ok
}

// redefine puts a definition into a stored schedule. If it returns a fault, nothing has changed.
func (h *schedule) redefine(d definition, p params, dry bool) (result string, err error) {
	now := h.server.now
	will := *h
	will.definition = &d
	if p.Note.sent {
		will.note = p.Note.text
	}
	respecified, status := h.specText != d.specText, p.Status
	switch {
	case h.status == completed && !respecified: // what has fired does not fire again
	case status != "" && status != h.status:
		will.setStatus(status)
	case status == paused: // the client states the pause
		will.bySync = false
	case h.status == completed || h.status == quarantined:
		will.setStatus(active)
	}
	if h.sameDefinition(&will) {
		return unchanged, nil
	}
	var first time.Time
	if respecified || followsSubject(d.spec) && h.subjectName() != will.subjectName() {
		if will.timing, first, err = will.compiled(); err != nil {
			return "", err
		}
		will.carryMoves(h.timing)
	}
	missed := will.terms().policy.Missed
	moves := h.timing.Hash() != will.timing.Hash() || h.status != will.status || h.member != nil && h.member.missed != missed ||
		respecified && !same(ticksOf(h.spec), ticksOf(d.spec))
	will.version++
	will.updatedAt = now
	if !moves {
		if !dry {
			*h = will
		}
		return updated, nil
	}
	if respecified {
		will.left = ticksOf(d.spec)
	} else if h.member != nil && h.left != nil && !runs.Delays(h.timing) {
		will.left = new(max(0, *h.left-h.timing.Count(h.member.from, now.Add(time.Microsecond))))
	}
	if will.status == active && !will.mayJoin(now, first) {
		return "", neverFires()
	}
	if dry {
		return updated, nil
	}
	due := h.leave(now)
	if !respecified {
		will.left = h.left
	}
	will.delayAt, will.delayLeft, will.member = h.delayAt, h.delayLeft, nil
	*h = will
	h.rearm(first)
	h.decideAll(due)
	return updated, nil
}

// carryMoves keeps the moves of coming ticks if the new spec means the same as the one before.
func (h *schedule) carryMoves(before *calendar.Timing) {
	if len(h.moves) == 0 {
		return
	}
	if before.Moved(nil).Hash() != h.timing.Hash() {
		h.moves = nil
		return
	}
	h.timing = h.timing.Moved(h.moves)
}

// rearm lets a schedule that left fire again: from now on, or from the end of its pause. A schedule that is paused for good stays out.
func (h *schedule) rearm(first time.Time) (joined bool) {
	switch {
	case h.status == active:
		return h.join(h.server.now, first)
	case h.pausedUntil != nil:
		return h.join(h.pausedUntil.Add(-time.Second), first)
	}
	return false
}

// decideAll decides the ticks of runs that were due when the schedule left its timing.
func (h *schedule) decideAll(due []runs.Run) {
	for _, r := range due {
		h.server.decide(h, r, false)
	}
}

func (h *schedule) sameDefinition(o *schedule) bool {
	return h.specText == o.specText && string(encoded(h.stated)) == string(encoded(o.stated)) && h.payload == o.payload && h.subjectName() == o.subjectName() &&
		maps.Equal(h.labels, o.labels) && same(h.note, o.note) && same(h.statusNote, o.statusNote) && h.status == o.status && h.bySync == o.bySync
}

// same reports whether both are nil, or point to equal values.
func same[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// patch applies a merge patch (RFC 7396) to the definition of a schedule.
func (s *Server) patch(r *http.Request, values []string) (any, error) {
	var sent map[string]json.RawMessage
	if err := read(r, &sent); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(values)
	if err != nil {
		return nil, err
	}
	if err := condition(r, h.version); err != nil {
		return nil, err
	}
	stored := map[string]any{"spec": json.RawMessage(h.specText), "policy": h.stated.Policy, "delivery": h.stated.Delivery, "labels": h.labels}
	if h.payload != "" {
		stored["payload"] = h.payload
	}
	if h.subject != "" {
		stored["subject"] = h.subject
	}
	change, err := json.Marshal(sent)
	if err != nil {
		return nil, fault.Malformed("invalid_json", "%s", err)
	}
	merged, err := mergepatch.Apply(encoded(stored), change)
	if err != nil {
		return nil, fault.Malformed("invalid_json", "%s", err)
	}
	var p params
	if err := decode(merged, &p); err != nil {
		return nil, err
	}
	if note, ok := sent["note"]; ok && string(note) == "null" {
		p.Note = noteChange{sent: true}
	}
	if status, ok := sent["status"]; ok && string(status) == "null" {
		p.Status = active
	}
	if _, err := s.define(h.name, p, false); err != nil {
		return nil, err
	}
	return h.view(), nil
}

func (s *Server) get(r *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(values)
	if err != nil {
		return nil, err
	}
	return conditional(r, h.version, h.view())
}

// byID answers the schedule with an id.
func (s *Server) byID(_ *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.schedules {
		if h.id == values[0] {
			return h.view(), nil
		}
	}
	return nil, fault.NotFound("no schedule has the id %q", values[0])
}

// remove deletes a schedule. Ticks that wait for another tick, or for their time, are cancelled.
func (s *Server) remove(r *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(values)
	if err != nil {
		return nil, err
	}
	if err := condition(r, h.version); err != nil {
		return nil, err
	}
	h.delete()
	return reply{status: http.StatusNoContent}, nil
}

func (h *schedule) delete() {
	s := h.server
	due := h.leave(s.now)
	delete(s.schedules, h.name)
	for _, run := range due {
		t := s.newTick(h, run.At, "schedule")
		t.dst, t.missed, t.attempt = run.DST, run.Missed, 0
		t.finish("cancelled", "")
	}
	for _, t := range h.history {
		if t.state == "scheduled" {
			s.agenda.set(t.event, time.Time{})
			t.finish("cancelled", "")
		}
	}
	h.waiting, h.replays = nil, nil
}

// named answers the schedules of some keys.
func (s *Server) named(r *http.Request, _ []string) (any, error) {
	var p struct {
		Workflow string   `json:"workflow"`
		Keys     []string `json:"keys"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := struct {
		Items []carillon.Schedule `json:"items"`
	}{[]carillon.Schedule{}}
	for _, key := range p.Keys {
		if h := s.schedules[name{p.Workflow, key}]; h != nil {
			found.Items = append(found.Items, h.view())
		}
	}
	return found, nil
}
