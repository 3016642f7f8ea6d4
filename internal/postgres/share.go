package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrBusy is the error of a call that got no connection in time. Nothing was sent to the database.
var ErrBusy = errors.New("no connection to the database was free in time")

const (
	activeFor   = 10 * time.Second // how long after its last call a tenant counts as a user of the connections
	defaultWait = 5 * time.Second  // for a connection, in a call without a deadline
)

// shares divides the connections of a pool among tenants, so that the slow calls of one tenant do not block the others:
//   - A tenant without a connection gets the next free one. Some connections are reserved for such tenants.
//   - A tenant holds at most half of the connections while other tenants use them. If no other tenant does, it may hold all but the
//     reserved ones.
//   - A free connection goes to the waiting tenant with the fewest connections.
//
// The calls of one tenant get connections in order of arrival.
type shares struct {
	size, reserved int // connections; those reserved for tenants that hold none

	mu      sync.Mutex
	taken   int
	tenants map[string]*share // that hold connections or wait
	queue   []*share          // tenants that wait
	last    use               // the last call
	before  use               // the last call of another tenant than last's
}

// share is the part of one tenant.
type share struct {
	tenant  string
	held    int
	waiting []*waiter // its calls, in order of arrival
}

type waiter struct {
	since time.Time
	ready chan struct{} // closed when the call has a connection
}

// use is a call of a tenant.
type use struct {
	tenant string
	at     time.Time
}

func newShares(size int) *shares {
	s := &shares{size: size, tenants: map[string]*share{}}
	if size >= 4 {
		s.reserved = max(1, size/8)
	}
	return s
}

// enter waits until the tenant may take a connection. It waits at most half of the time until the deadline of ctx.
func (s *shares) enter(ctx context.Context, tenant string) error {
	now := time.Now()
	s.mu.Lock()
	if s.last.tenant != tenant {
		s.before = s.last
	}
	s.last = use{tenant, now}
	one := s.tenants[tenant]
	if one == nil {
		one = &share{tenant: tenant}
		s.tenants[tenant] = one
	}
	if len(one.waiting) == 0 && s.mayTake(one, now) {
		one.held++
		s.taken++
		s.mu.Unlock()
		return nil
	}
	w := &waiter{now, make(chan struct{})}
	if one.waiting = append(one.waiting, w); len(one.waiting) == 1 {
		s.queue = append(s.queue, one)
	}
	s.mu.Unlock()
	return s.wait(ctx, one, w)
}

func (s *shares) wait(ctx context.Context, one *share, w *waiter) error {
	longest := defaultWait
	if deadline, ok := ctx.Deadline(); ok {
		longest = deadline.Sub(w.since) / 2
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = ErrBusy
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(one.waiting, w)
	if at < 0 { // it got a connection in the meantime
		return nil
	}
	one.waiting = slices.Delete(one.waiting, at, at+1)
	s.tidy(one)
	return err
}

// leave gives a tenant's connection back.
func (s *shares) leave(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.tenants[tenant]
	one.held--
	s.taken--
	s.tidy(one)
	if len(s.queue) > 0 {
		s.serve(time.Now())
	}
}

// serve gives free connections to waiting tenants until none of them may take another.
func (s *shares) serve(now time.Time) {
	for {
		var next *share
		for _, one := range s.queue {
			if (next == nil || one.held < next.held) && s.mayTake(one, now) {
				next = one
			}
		}
		if next == nil {
			return
		}
		next.held++
		s.taken++
		close(next.waiting[0].ready)
		next.waiting = next.waiting[1:]
		at := slices.Index(s.queue, next)
		s.queue = slices.Delete(s.queue, at, at+1)
		if len(next.waiting) > 0 {
			s.queue = append(s.queue, next)
		}
	}
}

// mayTake reports whether a tenant may take one more connection.
func (s *shares) mayTake(one *share, now time.Time) bool {
	free := s.size - s.taken
	switch {
	case free <= 0:
		return false
	case one.held == 0:
		return true
	case free <= s.reserved:
		return false
	}
	return one.held < s.size/2 || s.alone(one, now)
}

// alone reports whether no other tenant uses the connections, or has used them within activeFor.
func (s *shares) alone(one *share, now time.Time) bool {
	other := s.before
	if s.last.tenant != one.tenant {
		other = s.last
	}
	return s.taken == one.held && (other.tenant == "" || now.Sub(other.at) >= activeFor)
}

// tidy removes a tenant from the queue if it does not wait any more, and from tenants if it holds no connection either.
func (s *shares) tidy(one *share) {
	if len(one.waiting) > 0 {
		return
	}
	if at := slices.Index(s.queue, one); at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	if one.held == 0 {
		delete(s.tenants, one.tenant)
	}
}

// waited returns how long the tenant's first waiting call has waited until now.
func (s *shares) waited(tenant string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.tenants[tenant]
	if one == nil || len(one.waiting) == 0 {
		return 0
	}
	return time.Since(one.waiting[0].since)
}

// waiting reports whether any call waits.
func (s *shares) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}
