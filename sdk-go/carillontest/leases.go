package carillontest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

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

func (s *Server) lease(r *http.Request) (int, any) {
	var p struct {
		Workflows []string `json:"workflows"`
		Queues    []string `json:"queues"`
		Max       int      `json:"max"`
		Wait      string   `json:"wait"`
		Lease     string   `json:"lease"`
		Worker    string   `json:"worker"`
	}
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	wait, errWait := parseDuration(p.Wait)
	lease, errLease := parseDuration(p.Lease)
	if errWait != nil || errLease != nil || lease < 10*time.Second || lease > 10*time.Minute || p.Max < 1 || p.Max > 1000 || len(p.Workflows) == 0 {
		return refuse(http.StatusUnprocessableEntity, "invalid", "a lease needs workflows, max of 1 to 1000 and lease of 10s to 10m")
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		s.mu.Lock()
		ticks := s.pick(p.Workflows, p.Queues, p.Max, lease, p.Worker)
		changed, lapse := s.changed, time.Until(s.expires)
		none := len(s.leased) == 0
		s.mu.Unlock()
		if len(ticks) > 0 {
			return http.StatusOK, map[string]any{"ticks": ticks}
		}
		if none {
			lapse = wait + time.Second // after the end of this poll
		}
		lapsed := time.NewTimer(lapse)
		select {
		case <-changed:
		case <-lapsed.C:
		case <-over.C:
			lapsed.Stop()
			return http.StatusOK, map[string]any{"ticks": ticks}
		case <-r.Context().Done():
			lapsed.Stop()
			return refuse(http.StatusServiceUnavailable, "gone", "the client has disconnected")
		}
		lapsed.Stop()
	}
}

// pick leases ready ticks. The caller holds the lock.
func (s *Server) pick(workflows, queues []string, most int, lease time.Duration, worker string) []carillon.Tick[json.RawMessage] {
	now := time.Now()
	s.expire(now)
	picked := []carillon.Tick[json.RawMessage]{}
	for _, workflow := range workflows {
		var left []*tick
		for i, t := range s.ready[workflow] {
			if len(picked) == most {
				left = append(left, s.ready[workflow][i:]...)
				break
			}
			if len(queues) > 0 && !slices.Contains(queues, t.queue) {
				left = append(left, t)
				continue
			}
			s.begin(t, worker)
			t.until = now.Add(lease)
			if len(s.leased) == 0 || t.until.Before(s.expires) {
				s.expires = t.until
			}
			s.leased[t.TickID] = t
			picked = append(picked, t.Tick)
		}
		s.ready[workflow] = left
	}
	return picked
}

// expire ends the attempts whose lease has ended. The caller holds the lock.
func (s *Server) expire(now time.Time) {
	if len(s.leased) == 0 || now.Before(s.expires) {
		return
	}
	s.expires = now.Add(time.Hour)
	for _, t := range s.leased {
		if t.until.After(now) {
			if t.until.Before(s.expires) {
				s.expires = t.until
			}
			continue
		}
		s.end(t, finish{Outcome: "fail", Error: "the lease ended", Retry: new(true)}, 0)
		if i := slices.Index(s.retries, t); i >= 0 {
			s.retries = slices.Delete(s.retries, i, i+1)
			s.ready[t.Workflow] = append(s.ready[t.Workflow], t)
		}
	}
}

// holder returns the tick of a lease token, or the status 404, or 409 if the token is wrong or the tick has ended. The caller holds the lock.
func (s *Server) holder(id, token string) (t *tick, status int, code string) {
	t = s.ticks[id]
	switch {
	case t == nil:
		return nil, http.StatusNotFound, "not_found"
	case s.leased[id] == nil || t.LeaseToken != token || !time.Now().Before(t.until):
		return nil, http.StatusConflict, "lease_lost"
	}
	return t, 0, ""
}

func (s *Server) beatOne(id, token, lease string) (until time.Time, status int, code string) {
	t, status, code := s.holder(id, token)
	if t == nil {
		return until, status, code
	}
	if t.cancelled {
		return until, http.StatusConflict, "cancelled"
	}
	d, err := parseDuration(lease)
	if err != nil || d == 0 {
		d = time.Minute
	}
	t.until = time.Now().Add(d)
	return t.until, http.StatusOK, ""
}

func (s *Server) finishOne(f finish) (status int, code string) {
	t, status, code := s.holder(f.TickID, f.LeaseToken)
	if t == nil {
		return status, code
	}
	cancelled := t.cancelled
	s.end(t, f, 0)
	if cancelled {
		return http.StatusConflict, "cancelled"
	}
	return http.StatusNoContent, ""
}

func refuseTick(status int, code, id string) (int, any) {
	return refuse(status, code, fmt.Sprintf("the lease token does not fit tick %q, or its lease has ended", id))
}

func (s *Server) heartbeat(r *http.Request, id string) (int, any) {
	var p struct {
		LeaseToken string `json:"lease_token"`
		Lease      string `json:"lease"`
	}
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until, status, code := s.beatOne(id, p.LeaseToken, p.Lease)
	if code != "" {
		return refuseTick(status, code, id)
	}
	return http.StatusOK, map[string]any{"lease_until": until}
}

func (s *Server) complete(r *http.Request, id string) (int, any) {
	var p struct {
		LeaseToken string  `json:"lease_token"`
		Result     rawJSON `json:"result"`
	}
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	return s.finish(finish{TickID: id, LeaseToken: p.LeaseToken, Outcome: "complete", Result: p.Result})
}

func (s *Server) fail(r *http.Request, id string) (int, any) {
	var p struct {
		LeaseToken string `json:"lease_token"`
		Error      string `json:"error"`
		Retry      *bool  `json:"retry"`
		RetryAfter string `json:"retry_after"`
	}
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	return s.finish(finish{TickID: id, LeaseToken: p.LeaseToken, Outcome: "fail", Error: p.Error, Retry: p.Retry, RetryAfter: p.RetryAfter})
}

func (s *Server) finish(f finish) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status, code := s.finishOne(f); code != "" {
		return refuseTick(status, code, f.TickID)
	}
	return http.StatusNoContent, nil
}

// many serves the routes for several ticks: lease, finish and heartbeat.
func (s *Server) many(r *http.Request, route string) (int, any) {
	type result struct {
		TickID     string     `json:"tick_id"`
		Status     int        `json:"status"`
		Code       string     `json:"code,omitempty"`
		LeaseUntil *time.Time `json:"lease_until,omitempty"`
	}
	var results []result
	switch route {
	case "lease":
		return s.lease(r)
	case "finish":
		var p struct {
			Ticks []finish `json:"ticks"`
		}
		if status, refused := body(r, &p); refused != nil {
			return status, refused
		}
		if len(p.Ticks) < 1 || len(p.Ticks) > 1000 {
			return refuse(http.StatusUnprocessableEntity, "invalid", "1 to 1000 ticks at once")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range p.Ticks {
			status, code := s.finishOne(f)
			results = append(results, result{TickID: f.TickID, Status: status, Code: code})
		}
	case "heartbeat":
		var p struct {
			Ticks []struct {
				TickID     string `json:"tick_id"`
				LeaseToken string `json:"lease_token"`
				Lease      string `json:"lease"`
			} `json:"ticks"`
		}
		if status, refused := body(r, &p); refused != nil {
			return status, refused
		}
		if len(p.Ticks) < 1 || len(p.Ticks) > 1000 {
			return refuse(http.StatusUnprocessableEntity, "invalid", "1 to 1000 ticks at once")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range p.Ticks {
			until, status, code := s.beatOne(t.TickID, t.LeaseToken, t.Lease)
			kept := result{TickID: t.TickID, Status: status, Code: code}
			if code == "" {
				kept.LeaseUntil = &until
			}
			results = append(results, kept)
		}
	default:
		return refuse(http.StatusNotFound, "not_found", "carillontest has no such route")
	}
	return http.StatusOK, map[string]any{"results": results}
}
