package web

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// probeTimeout is how long a process may take to find out whether it is ready.
const probeTimeout = 2 * time.Second

// Probes adds /healthz, which answers as long as the process does, and /readyz, which answers 200 where ready returns
// nil within two seconds, else 503 with Retry-After. Neither needs a token.
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

// Cached returns a check that runs ready at most once in each age, and returns its last result in between: whoever floods the
// probe costs the database nothing. Calls that come while it runs wait for it.
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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout) // others wait for it as well
		defer cancel()
		last, checked = ready(ctx), time.Now()
		return last
	}
}
