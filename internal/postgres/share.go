package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrBusy is returned to a call that found no free connection in its time. Nothing was sent.
var ErrBusy = errors.New("no connection to the database was free in time")

const (
	othersCount  = 10 * time.Second // a tenant counts as another user of the connections for so long after its last call
	longestShare = 5 * time.Second  // for a connection, where a call has no deadline
)

// shares divides the connections of a pool among tenants, so that one whose calls are slow holds up no other:
//   - A tenant that holds no connection gets the next free one. Some are kept free for such tenants.
//   - A tenant holds at most half of the connections while others use them, and all others while it is alone.
//   - A free connection goes to the waiting tenant that holds the fewest.
//
// A tenant's own calls wait in the order in which they came.
type shares struct {
	size, kept int // connections, and how many of them are kept for tenants that hold none

	mu      sync.Mutex
	taken   int
	tenants map[string]*share // those that hold connections or wait
	line    []*share          // those that wait
	last    use               // the last call
	before  use               // the last call of a tenant other than last's
}

// share is what one tenant has of the connections.
type share struct {
	tenant  string
	held    int
	waiting []*waiter // its calls, the first first
}

type waiter struct {
	since time.Time
	ready chan struct{} // closed when it has got a connection
}

// use is a call of a tenant.
type use struct {
	tenant string
	at     time.Time
}

func newShares(size int) *shares {
	s := &shares{size: size, tenants: map[string]*share{}}
	if size >= 4 {
		s.kept = max(1, size/8)
	}
	return s
}

// enter waits until a tenant may take a connection. It waits for at most half of the time that ctx leaves.
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
	if len(one.waiting) == 0 && s.open(one, now) {
		one.held++
		s.taken++
		s.mu.Unlock()
		return nil
	}
	w := &waiter{now, make(chan struct{})}
	if one.waiting = append(one.waiting, w); len(one.waiting) == 1 {
		s.line = append(s.line, one)
	}
	s.mu.Unlock()
	return s.wait(ctx, one, w)
}

func (s *shares) wait(ctx context.Context, one *share, w *waiter) error {
	longest := longestShare
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
	if at < 0 { // it has got a connection meanwhile
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
	if len(s.line) > 0 {
		s.serve(time.Now())
	}
}

// serve hands out free connections until none is left that a waiting tenant may take.
func (s *shares) serve(now time.Time) {
	for {
		var next *share
		for _, one := range s.line {
			if (next == nil || one.held < next.held) && s.open(one, now) {
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
		at := slices.Index(s.line, next)
		s.line = slices.Delete(s.line, at, at+1)
		if len(next.waiting) > 0 {
			s.line = append(s.line, next)
		}
	}
}

// open reports whether a tenant may take a connection more.
func (s *shares) open(one *share, now time.Time) bool {
	free := s.size - s.taken
	switch {
	case free <= 0:
		return false
	case one.held == 0:
		return true
	case free <= s.kept:
		return false
	}
	return one.held < s.size/2 || s.alone(one, now)
}

// alone reports whether no other tenant uses the connections or has lately done so.
func (s *shares) alone(one *share, now time.Time) bool {
	other := s.before
	if s.last.tenant != one.tenant {
		other = s.last
	}
	return s.taken == one.held && (other.tenant == "" || now.Sub(other.at) >= othersCount)
}

// tidy forgets a tenant that neither holds nor waits, and takes one that waits no longer out of the line.
func (s *shares) tidy(one *share) {
	if len(one.waiting) > 0 {
		return
	}
	if at := slices.Index(s.line, one); at >= 0 {
		s.line = slices.Delete(s.line, at, at+1)
	}
	if one.held == 0 {
		delete(s.tenants, one.tenant)
	}
}

// waited returns how long the first waiting call of a tenant has waited by now.
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
	return len(s.line) > 0
}
