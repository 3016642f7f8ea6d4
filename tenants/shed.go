package tenants

import (
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

// class is the priority of a request for load shedding: lower classes are shed first. Probes have no class and are never shed.
type class int

const (
	bulkClass   class = iota // lists, exports, and requests about many things
	singleClass              // requests about one thing, and those that an operator needs to see and stop a flood
	workClass                // leases, heartbeats and finishes
	classes
)

// Shedding is the load shedding of one process. An overloaded process answers 503 to some requests, so that it answers the others in
// time. The zero value sheds nothing.
type Shedding struct {
	// AtATime is the number of concurrent requests from which bulkClass is shed; singleClass is shed from twice and workClass from four
	// times as many. Requests that wait for ticks and requests without a token do not count. 0: no limit.
	AtATime int
	// Waits returns how long a tenant's first waiting request has waited for a database connection. Nil: not measured.
	Waits func(tenant ID) time.Duration
	// LookupWaits returns how long look-ups of tenants and keys have recently waited for a connection. Nil: not measured.
	LookupWaits func() time.Duration
}

// shedAfter is the wait for a connection from which each class is shed.
var shedAfter = [classes]time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second}

func (s Shedding) over(of class, flying int, tenant ID) bool {
	if s.AtATime > 0 && flying >= s.AtATime<<of {
		return true
	}
	return s.Waits != nil && s.Waits(tenant) >= shedAfter[of]
}

func overloaded() error {
	f := fault.Unavailable("overloaded", "the service is overloaded; try again")
	f.RetryAfter = 2 * time.Second
	return f
}

// PoolUse is the statistics of a pool of connections since its start.
type PoolUse struct {
	Acquired int64         // acquired connections
	Waited   time.Duration // the sum of the waits for them
	Busy     bool          // all connections are in use
}

const (
	sampleEvery  = 100 * time.Millisecond // the minimum between two samples of a pool
	sampleWindow = 500 * time.Millisecond // the time that an average covers
)

// PoolWaits returns a function that measures the recent wait for a connection of a pool: the average of the last half second, or the time
// since the last acquired connection while all are in use, whichever is longer. The function is safe for concurrent use.
func PoolWaits(use func() PoolUse, now func() time.Time) func() time.Duration {
	type sample struct {
		at time.Time
		PoolUse
	}
	var mu sync.Mutex
	var samples []sample
	var since time.Time // when the last connection was acquired, at the latest
	var wait time.Duration
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		at := now()
		if len(samples) > 0 && at.Sub(samples[len(samples)-1].at) < sampleEvery {
			return wait
		}
		last := use()
		if len(samples) == 0 || last.Acquired != samples[len(samples)-1].Acquired || !last.Busy {
			since = at
		}
		samples = append(samples, sample{at, last})
		for len(samples) > 2 && at.Sub(samples[1].at) >= sampleWindow {
			samples = samples[1:]
		}
		first := samples[0]
		wait = at.Sub(since)
		if n := last.Acquired - first.Acquired; n > 0 {
			wait = max(wait, (last.Waited-first.Waited)/time.Duration(n))
		}
		return wait
	}
}
