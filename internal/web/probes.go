package web

import (
	"context"
	"net/http"
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
