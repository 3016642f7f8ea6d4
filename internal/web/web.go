// Package web is the edge of the API: it turns requests into values that are checked, and values and errors into
// answers. It promises that an answer is JSON or a problem document (RFC 9457), bears X-Request-Id, and never shows
// what went wrong inside; that a body is read strictly and within its limit; and that a request ends in time.
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

// Options are what a router needs to know. The zero value of each but Log is good.
type Options struct {
	Log       *slog.Logger
	BodyLimit int64          // bytes of a body once it is unpacked; 0: 1 MiB. A route may have another: see BodyLimit
	Timeout   time.Duration  // of a request; 0: 10 s. A route may have another: see Timeout
	Metrics   *Metrics       // nil: none are taken
	Proxies   []netip.Prefix // whose X-Forwarded-For says the address of the client; others' is ignored
}

// New returns a router without routes. Faults that its handlers return are answered as problem documents.
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
	e.Use(frame(o), unambiguous, whole, accountable, conditions(e), within(o.Timeout), limited(o.BodyLimit))
	return e
}

// clientAddress returns how the address of a request's client is told: the last one of X-Forwarded-For that is not of a
// trusted proxy, if the request came from one; otherwise the address that the request came from.
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

// escapedPath has the router see each path as it was sent, so that an escaped slash never ends a segment.
func escapedPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		u := c.Request().URL
		u.RawPath = u.EscapedPath()
		return next(c)
	}
}

// whole refuses what the router matches loosely: a last parameter that swallows further segments.
func whole(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !exact(c) {
			return echo.ErrNotFound
		}
		return next(c)
	}
}

// exact reports whether the path has as many segments as the route that it was matched with.
func exact(c echo.Context) bool {
	pattern := c.Path()
	return pattern == "" || strings.Contains(pattern, "*") ||
		strings.Count(pattern, "/") == strings.Count(c.Request().URL.EscapedPath(), "/")
}

// accountable notes what a request changes, so that no answer says of a change that it was not made where it may have been.
func accountable(next echo.HandlerFunc) echo.HandlerFunc {
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

// Timeout gives a route another time to end in than the router's own; its connection's deadlines go with it.
func Timeout(d time.Duration) echo.MiddlewareFunc {
	return within(d)
}

const (
	clientKey = "web.client" // the request's context as the connection gave it, without a deadline of ours
	limitKey  = "web.limit"  // the one with the deadline that counts: the innermost

	outcomeKey = "web.outcome" // what is known of the request's changes; nil: it makes none
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
			defer context.AfterFunc(client, cancel)()
			c.SetRequest(r.WithContext(ctx))
			c.Set(limitKey, ctx)
			if nested {
				conn := http.NewResponseController(c.Response()) // a recorder has no deadlines to set, and needs none
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

// slack is how much longer a connection may take than the handler of its request.
const slack = 10 * time.Second
