package carillontest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// poll is what a worker asks for: the ticks of a workflow in a queue, or in all queues if queue is empty.
type poll struct{ workflow, queue string }

// finish is the outcome of an attempt, as the API's clients send it.
type finish struct {
	TickID     string  `json:"tick_id"`
	LeaseToken string  `json:"lease_token"`
	Outcome    string  `json:"outcome"`
	Result     rawJSON `json:"result"`
	Error      string  `json:"error"`
	Retry      *bool   `json:"retry"`
	RetryAfter string  `json:"retry_after"`
}

func (f finish) outcome() outcome {
	if f.Outcome == "complete" {
		return outcome{result: succeeded, kept: f.Result}
	}
	after, _ := parseDuration(f.RetryAfter)
	return outcome{result: failed, final: f.Retry != nil && !*f.Retry, retryAfter: after, err: f.Error}
}

// leaseParams are the body of a long poll.
type leaseParams struct {
	Workflows []string `json:"workflows"`
	Queues    []string `json:"queues"`
	Max       int      `json:"max"`
	Wait      string   `json:"wait"`
	Lease     string   `json:"lease"`
	Worker    string   `json:"worker"`
}

func (s *Server) lease(r *http.Request, _ []string) (any, error) {
	var p leaseParams
	if err := read(r, &p); err != nil {
		return nil, err
	}
	wait, _ := parseDuration(p.Wait)
	length, ok := parseDuration(p.Lease)
	if p.Lease == "" {
		length, ok = time.Minute, true
	}
	if !ok || length < 10*time.Second || length > 10*time.Minute || p.Max < 1 || p.Max > 1000 || len(p.Workflows) == 0 {
		return nil, fault.Invalid("", "a lease needs workflows, max of 1 to 1000 and lease of 10s to 10m")
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		s.mu.Lock()
		ticks := s.pick(p, length)
		s.note(p)
		changed, lapse := s.changed, time.Until(s.expires)
		none := len(s.leased) == 0
		s.mu.Unlock()
		answer := map[string]any{"ticks": ticks}
		if len(ticks) > 0 {
			return answer, nil
		}
		if none {
			lapse = wait + time.Second // no lease can end, so the timer is longer than this poll
		}
		lapsed := time.NewTimer(lapse)
		select {
		case <-changed:
		case <-lapsed.C:
		case <-over.C:
			lapsed.Stop()
			return answer, nil
		case <-r.Context().Done():
			lapsed.Stop()
			return nil, fault.Unavailable("gone", "the client has disconnected")
		}
		lapsed.Stop()
	}
}

// note remembers what the workers of Work poll for. The caller holds the lock.
func (s *Server) note(p leaseParams) {
	if s.workers == 0 || p.Wait == "" || p.Wait == "0s" {
		return
	}
	queues := p.Queues
	if len(queues) == 0 {
		queues = []string{""}
	}
	for _, workflow := range p.Workflows {
		for _, queue := range queues {
			if of := (poll{workflow, queue}); !s.polled[of] {
				s.polled[of] = true
				s.announce()
			}
		}
	}
}

// pick leases ready ticks. The caller holds the lock.
func (s *Server) pick(p leaseParams, length time.Duration) []carillon.Tick[json.RawMessage] {
	now := time.Now()
	s.expire(now)
	picked := []carillon.Tick[json.RawMessage]{}
	for _, workflow := range p.Workflows {
		all := s.ready[workflow]
		s.ready[workflow] = nil
		slices.SortStableFunc(all, func(a, b *tick) int { return a.terms().delivery.Priority - b.terms().delivery.Priority })
		var left []*tick
		for _, t := range all {
			switch {
			case len(picked) == p.Max, len(p.Queues) > 0 && !slices.Contains(p.Queues, t.terms().delivery.Queue), s.room(workflow) < 1:
				left = append(left, t)
			case s.unwanted(t):
			case s.holds(t):
				t.parked = true
				left = append(left, t)
			default:
				s.begin(t, p.Worker, now.Add(length))
				t.byWork = s.workers > 0 && p.Wait != "" && p.Wait != "0s"
				picked = append(picked, t.wire())
			}
		}
		s.ready[workflow] = append(left, s.ready[workflow]...)
	}
	return picked
}

// unwanted ends a tick that is not to be delivered any more: it was told to stop, or it is too late. The caller holds the lock.
func (s *Server) unwanted(t *tick) bool {
	terms := t.terms()
	switch {
	case t.stopped():
		s.end(t, outcome{result: cancelled, unsent: true})
	case !t.aside && terms.expired(t.at, s.now):
		s.end(t, outcome{result: failed, final: true, unsent: true, err: "it could not be delivered within its max_lateness"})
	default:
		return false
	}
	return true
}

// begin starts an attempt. The caller holds the lock.
func (s *Server) begin(t *tick, worker string, until time.Time) {
	t.began, t.worker, t.leased, t.byWork = s.now, worker, until, false
	t.token = "lease-" + strconv.Itoa(t.number) + "-" + strconv.Itoa(t.attempt)
	if len(s.leased) == 0 || until.Before(s.expires) {
		s.expires = until
	}
	s.leased[t] = true
	if w := s.workflows[t.of.workflow]; w != nil {
		w.running++
	}
}

// unlease takes a tick from its worker. The caller holds the lock.
func (s *Server) unlease(t *tick) {
	if t.token == "" {
		return
	}
	delete(s.leased, t)
	t.token = ""
	if w := s.workflows[t.of.workflow]; w != nil && w.running > 0 {
		w.running--
	}
}

// conclude ends an attempt whose outcome is known: now, or when the time that Takes sets has passed. The caller holds the lock.
func (s *Server) conclude(t *tick, o outcome) {
	at := t.began.Add(s.takes[t.of.workflow])
	if !at.After(s.now) {
		s.end(t, o)
		return
	}
	delete(s.leased, t)
	t.event = s.agenda.newEvent(func() { s.end(t, o) })
	s.agenda.set(t.event, at)
	s.announce()
}

// expire ends the attempts whose lease has ended. The caller holds the lock.
func (s *Server) expire(now time.Time) {
	if len(s.leased) == 0 || now.Before(s.expires) {
		return
	}
	s.expires = now.Add(time.Hour)
	for t := range s.leased {
		if t.leased.After(now) {
			if t.leased.Before(s.expires) {
				s.expires = t.leased
			}
			continue
		}
		s.end(t, outcome{result: lost, err: "the lease ended"})
	}
}

// holder returns the tick of a lease token, or the status 404, or 409 if the token is wrong or the tick has ended. The caller holds the lock.
func (s *Server) holder(id, token string) (t *tick, status int, code string) {
	t = s.tickOf(id)
	switch {
	case t == nil:
		return nil, http.StatusNotFound, "not_found"
	case !s.leased[t] || t.token != token || !time.Now().Before(t.leased):
		return nil, http.StatusConflict, "lease_lost"
	}
	return t, 0, ""
}

func (s *Server) beatOne(id, token, lease string) (until time.Time, status int, code string) {
	t, status, code := s.holder(id, token)
	if t == nil {
		return until, status, code
	}
	if t.stopped() {
		return until, http.StatusConflict, "cancelled"
	}
	d, ok := parseDuration(lease)
	if !ok {
		d = time.Minute
	}
	t.leased = time.Now().Add(d)
	return t.leased, http.StatusOK, ""
}

func (s *Server) finishOne(f finish) (status int, code string) {
	t, status, code := s.holder(f.TickID, f.LeaseToken)
	if t == nil {
		return status, code
	}
	s.conclude(t, f.outcome())
	return http.StatusNoContent, ""
}

func refuseTick(status int, code, id string) error {
	return fault.New(status, code, "the lease token does not fit tick %q, or its lease has ended", id)
}

func (s *Server) heartbeat(r *http.Request, values []string) (any, error) {
	var p struct {
		LeaseToken string `json:"lease_token"`
		Lease      string `json:"lease"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until, status, code := s.beatOne(values[0], p.LeaseToken, p.Lease)
	if code != "" {
		return nil, refuseTick(status, code, values[0])
	}
	return map[string]any{"lease_until": until}, nil
}

func (s *Server) complete(r *http.Request, values []string) (any, error) {
	return s.finishTick(r, values[0], "complete")
}

func (s *Server) failTick(r *http.Request, values []string) (any, error) {
	return s.finishTick(r, values[0], "fail")
}

func (s *Server) finishTick(r *http.Request, id, outcome string) (any, error) {
	var f finish
	if err := read(r, &f); err != nil {
		return nil, err
	}
	f.TickID, f.Outcome = id, outcome
	s.mu.Lock()
	defer s.mu.Unlock()
	if status, code := s.finishOne(f); code != "" {
		return nil, refuseTick(status, code, id)
	}
	return reply{status: http.StatusNoContent}, nil
}

// verdict is what became of one tick of a request with many.
type verdict struct {
	TickID     string     `json:"tick_id"`
	Status     int        `json:"status"`
	Code       string     `json:"code,omitempty"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"`
}

func (s *Server) finishMany(r *http.Request, _ []string) (any, error) {
	return many(s, r, func(f finish) verdict {
		status, code := s.finishOne(f)
		return verdict{TickID: f.TickID, Status: status, Code: code}
	})
}

func (s *Server) heartbeatMany(r *http.Request, _ []string) (any, error) {
	type beat struct {
		TickID     string `json:"tick_id"`
		LeaseToken string `json:"lease_token"`
		Lease      string `json:"lease"`
	}
	return many(s, r, func(b beat) verdict {
		until, status, code := s.beatOne(b.TickID, b.LeaseToken, b.Lease)
		v := verdict{TickID: b.TickID, Status: status, Code: code}
		if code == "" {
			v.LeaseUntil = &until
		}
		return v
	})
}

// many answers a request with 1 to 1,000 ticks.
func many[T any](s *Server, r *http.Request, one func(T) verdict) (any, error) {
	var p struct {
		Ticks []T `json:"ticks"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	if len(p.Ticks) < 1 || len(p.Ticks) > 1000 {
		return nil, fault.Invalid("/ticks", "1 to 1000 ticks at once")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var results []verdict
	for _, t := range p.Ticks {
		results = append(results, one(t))
	}
	return map[string]any{"results": results}, nil
}
