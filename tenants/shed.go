package tenants

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

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

// lists are routes that answer or change many things, beside those of all collections.
var lists = []string{
	"/v1/schedules", "/v1/schedules/export", "/v1/schedules/bulk", "/v1/schedules/sync", "/v1/schedules/actions", "/v1/schedules/get",
	"/v1/workflows", "/v1/keys", "/v1/calendars", "/v1/operations", "/v1/endpoints", "/v1/ticks", "/v1/usage",
	"/v1/workflows/:workflow/schedules/:key/ticks", "/v1/workflows/:workflow/schedules/:key/revisions", "/v1/workflows/:workflow/schedules/:key/backfill",
	"/v1/admin/forecast", "/v1/admin/audit", "/v1/admin/api-keys", "/v1/admin/dead-letters", "/v1/admin/dead-letters/replay", "/v1/platform/tenants",
}

func classOf(method, route string) class {
	switch {
	case kindOf(method, route).atOne == workerRequest.atOne:
		return workClass
	case slices.Contains(lists, route):
		return bulkClass
	}
	return singleClass
}

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

// Shed returns the middleware that sheds load. It comes behind Authenticate: strangers do not count, and a tenant whose own
// requests are slow is refused without harm to others.
func (s Shedding) Shed() echo.MiddlewareFunc {
	var flying atomic.Int64
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			who, known := c.Get(callerKey).(Identity)
			if !known { // a public route
				return next(c)
			}
			method, route := c.Request().Method, c.Path()
			if s.over(classOf(method, route), int(flying.Load()), who.Tenant) {
				return overloaded()
			}
			if !strings.HasSuffix(route, "/lease") || method != http.MethodPost {
				flying.Add(1)
				defer flying.Add(-1)
			}
			return next(c)
		}
	}
}

// ShedLookups returns the middleware that sheds load while tenants cannot be looked up in time. It comes before Authenticate;
// requests for tokens are shed first.
func (s Shedding) ShedLookups(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if s.LookupWaits != nil {
			of := classOf(c.Request().Method, c.Path())
			if c.Path() == TokenRoute {
				of = bulkClass
			}
			if s.LookupWaits() >= shedAfter[of] {
				return overloaded()
			}
		}
		return next(c)
	}
}

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
