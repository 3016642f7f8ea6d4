package web

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/trace"
)

type contextKey int

const (
	requestIDKey contextKey = iota
	stoppingKey
	wireKey
	accountKey
)

var saneRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{8,128}$`)

// RequestID returns the id of the request in ctx. The answer and its log lines contain it.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

// Stopping returns a channel that is closed when the server begins to stop, so that a waiting handler answers at once. It returns nil
// for a request that does not come from Serve.
func Stopping(ctx context.Context) <-chan struct{} {
	s, _ := ctx.Value(stoppingKey).(<-chan struct{})
	return s
}

// factsKey is the context key of the attributes that Note adds.
const factsKey = "web.facts"

// Note adds attributes to the request's line in the access log. It must not get a payload, a token or a secret.
func Note(c echo.Context, facts ...slog.Attr) {
	have, _ := c.Get(factsKey).([]slog.Attr)
	c.Set(factsKey, append(have, facts...))
}

// frame is the outermost middleware. It sets the request's id, its trace and the common headers, recovers panics, answers errors, and writes the
// metrics and the log line.
func frame(o Options) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			start := time.Now()
			r := c.Request()
			id := r.Header.Get(echo.HeaderXRequestID)
			if !saneRequestID.MatchString(id) {
				id = rand.Text()
			}
			ctx := context.WithValue(r.Context(), requestIDKey, id)
			if t := r.Header.Get("traceparent"); t != "" && len(t) <= 256 {
				if parent, ok := trace.Parse(t); ok {
					ctx = trace.With(ctx, parent)
				}
			}
			c.SetRequest(r.WithContext(ctx))
			h := c.Response().Header()
			h.Set(echo.HeaderXRequestID, id)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Cache-Control", "no-store")

			err := recovered(c, o.Log, next)
			if err != nil {
				boundDrain(c, r)
				c.Error(err)
			}
			took := time.Since(start)
			o.Metrics.observe(c, took)
			facts := []slog.Attr{
				slog.String("request_id", id),
				slog.String("method", r.Method),
				slog.String("route", c.Path()),
				slog.Int("status", c.Response().Status),
				slog.Int64("bytes", c.Response().Size),
				slog.Duration("took", took),
				slog.String("remote", c.RealIP()),
			}
			noted, _ := c.Get(factsKey).([]slog.Attr)
			o.Log.LogAttrs(ctx, slog.LevelInfo, "answered", append(facts, noted...)...)
			return nil
		}
	}
}

// recovered runs next and returns a panic as an error. If a part of the answer is already sent, it closes the connection instead, so
// that the client does not mistake the part for the whole.
func recovered(c echo.Context, log *slog.Logger, next echo.HandlerFunc) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		log.ErrorContext(c.Request().Context(), "a handler panicked",
			"request_id", RequestID(c.Request().Context()), "route", c.Path(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		if c.Response().Committed {
			panic(http.ErrAbortHandler)
		}
		err = errPanicked
	}()
	return next(c)
}

// Versioned returns middleware that names the version of the program in each answer.
func Versioned(version string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Header().Set("Carillon-Version", version)
			return next(c)
		}
	}
}
