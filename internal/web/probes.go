package web

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// probeTimeout bounds the readiness check.
const probeTimeout = 2 * time.Second

// Probes adds two routes without a token. /healthz answers 200 while the process runs. /readyz answers 200 if ready returns nil within
// two seconds, otherwise 503 with Retry-After.
func Probes(e *echo.Echo, ready func(ctx context.Context) error) {
	e.GET("/healthz", func(c echo.Context) error {
		return Answer(c, http.StatusOK, map[string]string{"status": "ok"})
	})
	e.GET("/readyz", func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), probeTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			f := fault.New(http.StatusServiceUnavailable, "not_ready", "the service is not ready")
			f.RetryAfter = time.Second
			return withCause(f, err)
		}
		return Answer(c, http.StatusOK, map[string]string{"status": "ready"})
	})
}

// Cached returns a check that runs ready at most once per age, and returns the last result in between. So a flood of probes does not
// reach the database. Calls during a run wait for its result.
func Cached(age time.Duration, ready func(ctx context.Context) error) func(ctx context.Context) error {
	var mu sync.Mutex
	var checked time.Time
	var last error
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(checked) < age {
			return last
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout) // other callers wait for this run, so one caller must not cancel it
		defer cancel()
		last, checked = ready(ctx), time.Now()
		return last
	}
}
