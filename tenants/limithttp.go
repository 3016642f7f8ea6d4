package tenants

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// Limit is middleware behind Authenticate that answers 429 with Retry-After to requests above the tenant's quotas. While several callers
// of a tenant send requests, the caller with the most requests may use only a part of each quota. Every answer has the headers RateLimit
// and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10).
func (l *Limits) Limit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		who, known := c.Get(callerKey).(Identity)
		if !known { // a public route
			return next(c)
		}
		ctx, method := c.Request().Context(), c.Request().Method
		q := platformQuotas
		if who.Tenant != 0 {
			var err error
			if q, err = l.Directory.Quotas(ctx, who.Tenant); err != nil {
				return err
			}
		}
		k := kindOf(method, c.Path())
		rate := k.rate(q)
		others, mostOf := l.callers.note(bucketName{tenant: who.Tenant, quota: rate.Quota}, who.Subject, rate.PerSec)
		greedy := others && mostOf
		if err := l.spend(c, who.Tenant, rate.leaving(greedy)); err != nil {
			return err
		}
		if upserts(method, c.Path()) && who.Tenant != 0 {
			if err := l.spend(c, who.Tenant, Upserts(q).leaving(greedy)); err != nil {
				return err
			}
		}
		of, most := callerQuota{bucketName{tenant: who.Tenant, quota: k.concurrent}, who.Subject}, k.most(q)
		if !l.enter(of, most, others) {
			return tooMany(k.concurrent, most)
		}
		defer l.leave(of)
		return next(c)
	}
}

// spend takes one token of the rate, and adds the tokens left for the next second to the answer's headers. The bucket may have more.
func (l *Limits) spend(c echo.Context, tenant ID, r Rate) error {
	left, wait, err := l.Buckets.Take(c.Request().Context(), tenant, r, 1)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	extend(h, "RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=1`, r.Quota, r.PerSec))
	extend(h, "RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, r.Quota, min(max(left, 0), r.PerSec), max(1, wholeSeconds(wait))))
	if wait > 0 {
		return tooFast(r, wait)
	}
	return nil
}

// extend appends an item to a list header.
func extend(h http.Header, name, item string) {
	if before := h.Get(name); before != "" {
		item = before + ", " + item
	}
	h.Set(name, item)
}

var bulkRoutes = []string{"/v1/schedules/bulk", "/v1/schedules/sync"}

const tailRoute = "/v1/ticks/tail"

// kindOf returns the kind of a request to a route.
func kindOf(method, route string) kind {
	switch {
	case ofWorker(method, route), route == tailRoute: // a tail stays open, as a poll does
		return workerRequest
	case method == http.MethodPost && slices.Contains(bulkRoutes, route):
		return bulkRequest
	}
	return anyRequest
}

// ofWorker reports whether a worker sends such requests to lease and finish ticks.
func ofWorker(method, route string) bool {
	return method == http.MethodPost && strings.HasPrefix(route, "/v1/ticks/") &&
		slices.Contains([]string{"lease", "heartbeat", "finish", "complete", "fail"}, route[strings.LastIndex(route, "/")+1:])
}

const oneSchedule = "/v1/workflows/:workflow/schedules/:key"

func upserts(method, route string) bool {
	return route == oneSchedule && (method == http.MethodPut || method == http.MethodPatch)
}
