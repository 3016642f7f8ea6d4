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
)

type contextKey int

const (
	requestIDKey contextKey = iota
	traceparentKey
	stoppingKey
	wireKey
	accountKey
)

var (
	saneRequestID   = regexp.MustCompile(`^[A-Za-z0-9._-]{8,128}$`)
	saneTraceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)
)

// RequestID returns the id of the request in ctx. The answer and its log lines contain it.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

// Traceparent returns the request's trace context (W3C Trace Context 3.2), or "" if the request has no valid one.
func Traceparent(ctx context.Context) string {
	t, _ := ctx.Value(traceparentKey).(string)
	return t
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

// frame is the outermost middleware. It sets the request's id and the common headers, recovers panics, answers errors, and writes the
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
			if t := r.Header.Get("traceparent"); len(t) <= 256 && validTraceparent(t) {
				ctx = context.WithValue(ctx, traceparentKey, t)
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

// validTraceparent reports whether the standard allows t. It refuses version ff, more than four fields in version 00, and ids of zeros.
func validTraceparent(t string) bool {
	if !saneTraceparent.MatchString(t) || t[:2] == "ff" || t[:2] == "00" && len(t) != 55 {
		return false
	}
	return t[3:35] != "00000000000000000000000000000000" && t[36:52] != "0000000000000000"
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
