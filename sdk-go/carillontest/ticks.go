package carillontest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// tick is one firing, with its lease if it has one.
type tick struct {
	carillon.Tick[json.RawMessage]
	queue  string
	record carillon.TickRecord
	began  time.Time // of the attempt

	due       time.Time // of another attempt, by the server's clock
	until     time.Time // end of the lease, by the real clock
	worker    string
	cancelled bool
}

// Advance moves the server's clock. All ticks that are due by then fire, in the order of their times. When it returns, pushed ticks have been
// delivered, and the others wait for a lease. The next attempt after a failure is due after the wait of the handler's error, or a second
// later.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	to := s.now.Add(d)
	s.mu.Unlock()
	for s.fireNext(to) {
	}
	s.mu.Lock()
	s.now = to
	s.mu.Unlock()
}

// fireNext fires the tick or attempt that is due first, if it is due by then.
func (s *Server) fireNext(by time.Time) bool {
	s.mu.Lock()
	var first *schedule
	for _, h := range s.schedules {
		if h.NextAt == nil || h.NextAt.After(by) {
			continue
		}
		if first == nil || h.NextAt.Before(*first.NextAt) || h.NextAt.Equal(*first.NextAt) && h.ID < first.ID {
			first = h
		}
	}
	for i, t := range s.retries {
		if !t.due.After(by) && (first == nil || !first.NextAt.Before(t.due)) {
			s.retries = slices.Delete(s.retries, i, i+1)
			s.now = t.due
			s.mu.Unlock()
			s.hand(t)
			return true
		}
	}
	if first == nil {
		s.mu.Unlock()
		return false
	}
	at := *first.NextAt
	s.now = at
	first.fires++
	first.retime(at)
	t := s.fire(first, at, "schedule", first.Payload)
	t.Occurrence, t.record.Occurrence = new(first.fires), new(first.fires)
	first.LastAt, first.LastTickID = &at, t.TickID
	s.mu.Unlock()
	s.hand(t)
	return true
}

// fire creates a tick. The caller holds the lock.
func (s *Server) fire(h *schedule, at time.Time, cause string, payload json.RawMessage) *tick {
	s.made++
	attempts := h.Delivery.MaxAttempts
	if attempts == 0 {
		attempts = 10
	}
	queue := h.Delivery.Queue
	if queue == "" {
		queue = "default"
	}
	if len(payload) == 0 {
		payload = json.RawMessage("null")
	}
	zone := h.timing.zone.String()
	t := &tick{queue: queue, Tick: carillon.Tick[json.RawMessage]{
		TickID: fmt.Sprintf("t%d", s.made), ScheduleID: h.ID, Workflow: h.Workflow, Key: h.Key,
		Timestamp: at, LocalTime: at.In(h.timing.zone), Timezone: zone, LastTimestamp: h.LastAt, Upcoming: slices.Clone(h.Upcoming),
		FiredAt: s.now, LatenessMS: s.now.Sub(at).Milliseconds(), Attempt: 1, MaxAttempts: attempts,
		Cause: cause, DST: "none", ScheduleVersion: h.Version, Payload: payload,
	}}
	t.record = carillon.TickRecord{
		TickID: t.TickID, ScheduleID: h.ID, Workflow: h.Workflow, Key: h.Key, Timestamp: at, LastTimestamp: h.LastAt,
		State: "scheduled", FiredAt: t.FiredAt, LatenessMS: t.LatenessMS, Cause: cause, DST: "none", ScheduleVersion: h.Version,
	}
	h.Stats.Fired++
	h.order = append(h.order, t)
	s.ticks[t.TickID] = t
	return t
}

// hand pushes a tick, or makes it ready for a lease.
func (s *Server) hand(t *tick) {
	s.mu.Lock()
	p, pushed := s.pushes[t.Workflow]
	if !pushed {
		s.ready[t.Workflow] = append(s.ready[t.Workflow], t)
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	if pushed {
		s.push(p, t)
	}
}

func (s *Server) trigger(r *http.Request, of name) (int, any) {
	var p struct {
		Payload rawJSON `json:"payload"`
	}
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	s.mu.Lock()
	held, status, refused := s.find(of)
	if refused != nil {
		s.mu.Unlock()
		return status, refused
	}
	once := r.Header.Get("Idempotency-Key") + " " + r.URL.EscapedPath()
	t := s.triggered[once]
	if t != nil {
		defer s.mu.Unlock()
		return http.StatusAccepted, t.record
	}
	if status, refused := condition(r, held); refused != nil {
		s.mu.Unlock()
		return status, refused
	}
	payload := held.Payload
	if p.Payload != "" {
		payload = json.RawMessage(p.Payload)
	}
	t = s.fire(held, s.now, "manual", payload)
	if r.Header.Get("Idempotency-Key") != "" {
		s.triggered[once] = t
	}
	record := t.record
	s.mu.Unlock()
	s.hand(t)
	return http.StatusAccepted, record
}

func (s *Server) one(id string) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.ticks[id]
	if t == nil {
		return refuse(http.StatusNotFound, "not_found", fmt.Sprintf("no tick %q", id))
	}
	return http.StatusOK, t.record
}

func (s *Server) history(r *http.Request, of name) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, status, refused := s.find(of)
	if refused != nil {
		return status, refused
	}
	q := r.URL.Query()
	var records []carillon.TickRecord
	for _, t := range slices.Backward(held.order) {
		from, errFrom := time.Parse(time.RFC3339, q.Get("from"))
		to, errTo := time.Parse(time.RFC3339, q.Get("to"))
		switch {
		case q.Get("state") != "" && !strings.EqualFold(q.Get("state"), t.record.State):
		case errFrom == nil && t.Timestamp.Before(from):
		case errTo == nil && !t.Timestamp.Before(to):
		default:
			records = append(records, t.record)
		}
	}
	return page(r, records)
}

// begin starts an attempt. The caller holds the lock.
func (s *Server) begin(t *tick, worker string) {
	t.began, t.worker, t.cancelled = s.now, worker, false
	t.LeaseToken = fmt.Sprintf("lease-%s-%d", t.TickID, t.Attempt)
	t.record.State, t.record.Attempt = "running", t.Attempt
}

// end notes the outcome of an attempt, and ends the tick or plans the next attempt. The caller holds the lock.
func (s *Server) end(t *tick, outcome finish, status int) {
	delete(s.leased, t.TickID)
	said := map[string]string{"complete": "succeeded", "fail": "failed"}[outcome.Outcome]
	if t.cancelled {
		said = "cancelled"
	}
	if said != "succeeded" || t.Attempt > 1 {
		t.record.Attempts = append(t.record.Attempts, carillon.Attempt{
			Attempt: t.Attempt, StartedAt: new(t.began), EndedAt: s.now, Outcome: said, Status: status, Error: outcome.Error, Worker: t.worker,
		})
	}
	t.record.Error = outcome.Error
	t.LeaseToken = ""
	if said == "failed" && (outcome.Retry == nil || *outcome.Retry) && t.Attempt < t.MaxAttempts {
		t.Attempt++
		t.record.State = "scheduled"
		after, err := parseDuration(outcome.RetryAfter)
		if err != nil || after == 0 {
			after = time.Second
		}
		t.due = s.now.Add(after)
		s.retries = append(s.retries, t)
		return
	}
	t.record.State, t.record.EndedAt = said, new(s.now)
	t.record.Result = json.RawMessage(outcome.Result)
	if held := s.schedules[name{t.Workflow, t.Key}]; held != nil && held.ID == t.ScheduleID {
		switch said {
		case "succeeded":
			held.Stats.Succeeded++
		case "failed":
			held.Stats.Failed++
		}
	}
}

// Cancel ends a tick: at once if no worker has it. Otherwise the next heartbeat of its worker reports the cancellation.
func (s *Server) Cancel(tickID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.ticks[tickID]
	if t == nil || t.record.EndedAt != nil {
		return
	}
	t.cancelled = true
	if s.leased[tickID] == nil {
		waiting := func(other *tick) bool { return other == t }
		s.ready[t.Workflow] = slices.DeleteFunc(s.ready[t.Workflow], waiting)
		s.retries = slices.DeleteFunc(s.retries, waiting)
		s.end(t, finish{}, 0)
	}
}
