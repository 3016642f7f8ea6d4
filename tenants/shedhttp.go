package tenants

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/labstack/echo/v4"
)

// Shed returns middleware that sheds load. It belongs behind Authenticate: unauthenticated requests do not count, and a tenant whose
// own requests are slow is shed alone.
func (s Shedding) Shed() echo.MiddlewareFunc {
	var inFlight atomic.Int64
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			who, known := c.Get(callerKey).(Identity)
			if !known { // a public route
				return next(c)
			}
			method, route := c.Request().Method, c.Path()
			if s.over(classOf(method, route), int(inFlight.Load()), who.Tenant) {
				return overloaded()
			}
			if !strings.HasSuffix(route, "/lease") || method != http.MethodPost {
				inFlight.Add(1)
				defer inFlight.Add(-1)
			}
			return next(c)
		}
	}
}

// ShedLookups is middleware that sheds load while look-ups of tenants are slow. It belongs before Authenticate. It sheds requests for
// tokens first.
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

// lists names the routes that read or change many things.
var lists = []string{
	"/v1/schedules", "/v1/schedules/export", "/v1/schedules/bulk", "/v1/schedules/sync", "/v1/schedules/actions", "/v1/schedules/get",
	"/v1/workflows", "/v1/subjects", "/v1/calendars", "/v1/operations", "/v1/endpoints", "/v1/ticks", "/v1/usage",
	"/v1/workflows/:workflow/schedules/:key/ticks", "/v1/workflows/:workflow/schedules/:key/revisions", "/v1/workflows/:workflow/schedules/:key/backfill",
	"/v1/admin/forecast", "/v1/admin/audit", "/v1/admin/api-keys", "/v1/admin/dead-letters", "/v1/admin/dead-letters/replay", "/v1/platform/tenants",
}

func classOf(method, route string) class {
	switch {
	case kindOf(method, route).concurrent == workerRequest.concurrent:
		return workClass
	case slices.Contains(lists, route):
		return bulkClass
	}
	return singleClass
}
