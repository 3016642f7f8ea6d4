// Package web is the HTTP edge of the API. It turns requests into checked values, and turns values and errors into answers.
//
// Each answer is JSON or a problem document (RFC 9457), has an X-Request-Id, and never shows an internal error. Bodies are parsed
// strictly and have a limit. Each request has a timeout. Budget bounds the memory of concurrent requests, and turns their CPU.
//
// The package writes no table. Its locks are in memory, so a crash leaves nothing behind. A request that fails in the middle of a
// commit is answered with outcome_unknown.
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Options configure a router. All fields but Log may be zero.
type Options struct {
	Log       *slog.Logger
	BodyLimit int64          // of a decompressed body in bytes; 0: 1 MiB. The middleware BodyLimit overrides it for a route
	Timeout   time.Duration  // of a request; 0: 10 s. The middleware Timeout overrides it for a route
	Metrics   *Metrics       // nil: no metrics
	Proxies   []netip.Prefix // trusted proxies: only their X-Forwarded-For is used
}

// New returns a router without routes. It answers the faults of its handlers with problem documents.
func New(o Options) *echo.Echo {
	if o.BodyLimit == 0 {
		o.BodyLimit = 1 << 20
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard)
	e.IPExtractor = clientAddress(o.Proxies)
	e.HTTPErrorHandler = problems(o.Log)
	e.Pre(escapedPath, heads)
	e.Use(frame(o), unambiguous, exactPath, watchOutcome, conditions(e), within(o.Timeout), limited(o.BodyLimit))
	return e
}

// clientAddress returns a function that finds the client's address. For a request from a trusted proxy it is the last address in
// X-Forwarded-For that is not a trusted proxy. For any other request it is the address of the connection.
func clientAddress(trusted []netip.Prefix) echo.IPExtractor {
	if len(trusted) == 0 {
		return echo.ExtractIPDirect()
	}
	options := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, p := range trusted {
		options = append(options, echo.TrustIPRange(&net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}))
	}
	return echo.ExtractIPFromXFFHeader(options...)
}

// escapedPath makes the router match the escaped path, so that an escaped slash never ends a segment.
func escapedPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		u := c.Request().URL
		u.RawPath = u.EscapedPath()
		return next(c)
	}
}

// exactPath answers 404 where Echo's last path parameter has matched more than one segment.
func exactPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !exact(c) {
			return echo.ErrNotFound
		}
		return next(c)
	}
}

// exact reports whether the path has as many segments as the matched route.
func exact(c echo.Context) bool {
	pattern := c.Path()
	return pattern == "" || strings.Contains(pattern, "*") ||
		strings.Count(pattern, "/") == strings.Count(c.Request().URL.EscapedPath(), "/")
}

// watchOutcome records whether a request's transactions may have committed, so that an error never claims that nothing was changed
// when something may have been.
func watchOutcome(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Method == http.MethodGet {
			return next(c)
		}
		ctx, outcome := postgres.Watch(r.Context())
		c.Set(outcomeKey, outcome)
		c.SetRequest(r.WithContext(ctx))
		return next(c)
	}
}

// Timeout sets a route's own timeout, and moves the deadlines of its connection accordingly.
func Timeout(d time.Duration) echo.MiddlewareFunc {
	return within(d)
}

const (
	clientKey = "web.client" // the context of the connection's request, without our deadline
	limitKey  = "web.limit"  // the context with the innermost deadline, which applies

	outcomeKey = "web.outcome" // the *postgres.Outcome of the request; absent for a GET
)

func within(d time.Duration) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			client, nested := c.Get(clientKey).(context.Context)
			if !nested {
				client = r.Context()
				c.Set(clientKey, client)
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), d)
			defer cancel()
			defer context.AfterFunc(client, func() {
				if disconnected(client) {
					cancel()
				}
			})()
			c.SetRequest(r.WithContext(ctx))
			c.Set(limitKey, ctx)
			if nested {
				conn := http.NewResponseController(c.Response()) // a test's recorder has no deadlines to set
				_ = conn.SetReadDeadline(time.Now().Add(d + slack))
				_ = conn.SetWriteDeadline(time.Now().Add(d + 2*slack))
			}
			err := next(c)
			if err != nil && c.Get(limitKey) == ctx && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
			}
			c.SetRequest(r)
			return err
		}
	}
}

// slack is the time that a connection gets beyond the timeout of its request.
const slack = 10 * time.Second
