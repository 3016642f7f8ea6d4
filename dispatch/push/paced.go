package push

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/rate"
	"github.com/carillonhq/carillon/dispatch/record"
)

// The queue of an endpoint with a rate takes tokens out of the bucket that all processes share, a few at a time. Without a token
// its ticks wait. First attempts of manual ticks come before the others, need no token, and are charged.

// paced is what a queue knows of the rate of its endpoint.
type paced struct {
	rate   rate.Rate // of the last tick that was queued; 0 a second: no limit
	tokens int       // taken, and not spent
	manual int       // ticks at the head of the queue that need no token
	owed   int       // for manual ticks that were sent
	asking bool      // tokens are being taken
	asked  time.Time // when they were last taken
}

const (
	askEvery    = 40 * time.Millisecond // less than what a bucket holds
	longestAsk  = time.Second           // between two requests for tokens, as the rate may be raised
	askDeadline = 2 * time.Second
)

// add adds a tick to the queue: a manual one before those that need a token.
func (q *queue) add(one *Delivery) {
	q.paced.rate = one.Endpoint.Rate
	if q.paced.rate.PerSecond > 0 && one.Tick.Cause == record.Manual && one.Tick.Attempt == 1 {
		q.waiting = slices.Insert(q.waiting, q.paced.manual, one)
		q.paced.manual++
		return
	}
	q.waiting = append(q.waiting, one)
}

// allowed returns how many of the next n ticks may be sent now.
func (q *queue) allowed(n int) int {
	if q.paced.rate.PerSecond == 0 {
		return n
	}
	return min(n, q.paced.manual+q.paced.tokens)
}

// spend takes the tokens of the next n ticks.
func (q *queue) spend(n int) {
	free := min(n, q.paced.manual)
	q.paced.manual -= free
	if q.paced.rate.PerSecond > 0 {
		q.paced.owed, q.paced.tokens = q.paced.owed+free, q.paced.tokens-(n-free)
	}
}

// startAsking begins to take tokens for the ticks of a queue. The caller holds the lock of the sender.
func (s *sender) startAsking(q *queue) {
	if s.lifecycle.closed || q.paced.asking {
		return
	}
	q.paced.asking = true
	s.lifecycle.working.Go(func() {
		for wait := time.Until(q.paced.asked.Add(askEvery)); s.sleep(wait); {
			var done bool
			if wait, done = s.ask(q); done {
				return
			}
		}
		s.mu.Lock()
		q.paced.asking = false
		s.mu.Unlock()
	})
}

// sleep waits, and returns false if the sender ends meanwhile.
func (s *sender) sleep(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.lifecycle.context.Done():
		return false
	}
}

// ask takes tokens once. done reports that there are tokens, or that no tick needs one now. Otherwise the caller asks again after wait.
func (s *sender) ask(q *queue) (wait time.Duration, done bool) {
	most := s.share(q.name.Tenant)
	s.mu.Lock()
	p := &q.paced
	want, debt := len(q.waiting)-p.manual, p.owed
	over := s.lifecycle.closed || want <= 0 && debt == 0
	s.mu.Unlock()
	r, g := rate.Rate{}, rate.Grant{}
	var err error
	if !over {
		if r, g, err = s.d.takeTokens(s.lifecycle.context, q.name, max(0, want), debt); err != nil && s.lifecycle.context.Err() == nil {
			s.d.log.Error("cannot take tokens of an endpoint's rate", "tenant", q.name.Tenant, "endpoint", q.name.Name, "error", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.asked = time.Now(); err != nil {
		return longestAsk, false
	}
	if p.owed, p.tokens = p.owed-debt, p.tokens+g.N; !over {
		p.rate = r
	}
	if !over && r.PerSecond > 0 && g.N == 0 && want > 0 {
		return min(max(g.Wait, askEvery), longestAsk), false
	}
	p.asking = false
	if len(q.waiting) > 0 && q.slots < most.endpoint && !s.lifecycle.closed {
		s.spawn(q)
	} else if q.idle() && s.queues[q.name] == q {
		delete(s.queues, q.name)
	}
	return 0, true
}

// takeTokens takes up to want tokens at the rate that the endpoint has now, and charges it for debt. A rate of 0 a second is no limit.
func (p *Pusher) takeTokens(ctx context.Context, of EndpointName, want, debt int) (r rate.Rate, g rate.Grant, err error) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	var perSecond, ramp *int32
	err = p.pool.QueryRow(ctx, `SELECT e.rate, e.ramp_s FROM (SELECT) one LEFT JOIN endpoint e ON e.tenant_id = $1 AND e.name = $2`, of.Tenant, of.Name).Scan(&perSecond, &ramp)
	if err != nil {
		return r, g, fmt.Errorf("read the rate of an endpoint: %w", err)
	}
	if r = rate.Of(perSecond, ramp); r.PerSecond == 0 {
		return r, g, nil
	}
	g, err = rate.Take(ctx, p.pool, rate.Name{Tenant: of.Tenant, Kind: rate.Endpoint, Name: of.Name}, r, want, debt)
	return r, g, err
}
