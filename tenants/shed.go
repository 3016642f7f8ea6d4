package tenants

import (
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

// class is what a request is shed with: the lower first. Probes are of none, and are never shed.
type class int

const (
	bulkClass   class = iota // lists, exports, and what is of many things at once
	singleClass              // of one thing: reads, upserts, triggers; and what an operator needs to see and stop a flood
	workClass                // leases, heartbeats and finishes
	classes
)

// Shedding says when a process is overloaded: it then answers 503 to a part of the requests, so that the others are still
// answered in time. The zero value sheds nothing.
type Shedding struct {
	// AtATime is how many requests are worked on at a time until the first class is shed; the others go twice and four times
	// as far. Requests that wait for ticks do not count, nor do those without a token. 0: any number.
	AtATime int
	// Waits returns how long a tenant's requests have waited for a connection to the database by now. Nil: not at all.
	Waits func(tenant ID) time.Duration
	// LookupWaits returns how long look-ups of tenants and keys have lately waited for a connection. Nil: not at all.
	LookupWaits func() time.Duration
}

// shedAfter are the waits for a connection from which each class is shed.
var shedAfter = [classes]time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second}

func (s Shedding) over(of class, flying int, tenant ID) bool {
	if s.AtATime > 0 && flying >= s.AtATime<<of {
		return true
	}
	return s.Waits != nil && s.Waits(tenant) >= shedAfter[of]
}

func overloaded() error {
	f := fault.Unavailable("overloaded", "the service has more to do than it can just now; try again")
	f.RetryAfter = 2 * time.Second
	return f
}

// PoolUse is what a pool of connections has done so far.
type PoolUse struct {
	Acquired int64         // connections that were handed out
	Waited   time.Duration // for them, together
	Busy     bool          // all are in use
}

const (
	waitsLooked = 100 * time.Millisecond // between two looks at the pool
	waitsOver   = 500 * time.Millisecond // that a look goes back
)

// PoolWaits tells how long a connection of a pool has lately been waited for: on the average of the last half second, or
// since when nobody has got one though all are in use. It is safe for concurrent use.
func PoolWaits(use func() PoolUse, now func() time.Time) func() time.Duration {
	type look struct {
		at time.Time
		PoolUse
	}
	var mu sync.Mutex
	var looks []look
	var since time.Time // when a connection was got last, as far as is known
	var wait time.Duration
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		at := now()
		if len(looks) > 0 && at.Sub(looks[len(looks)-1].at) < waitsLooked {
			return wait
		}
		is := use()
		if len(looks) == 0 || is.Acquired != looks[len(looks)-1].Acquired || !is.Busy {
			since = at
		}
		looks = append(looks, look{at, is})
		for len(looks) > 2 && at.Sub(looks[1].at) >= waitsOver {
			looks = looks[1:]
		}
		first := looks[0]
		wait = at.Sub(since)
		if n := is.Acquired - first.Acquired; n > 0 {
			wait = max(wait, (is.Waited-first.Waited)/time.Duration(n))
		}
		return wait
	}
}
