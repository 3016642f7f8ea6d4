package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/labstack/echo/v4"
)

func TestMetricsHaveRoutesNotPaths(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	e := New(Options{Log: quiet(), Metrics: NewMetrics(r)})
	e.GET("/v1/things/:thing", func(c echo.Context) error { return Answer(c, 200, 1) })
	for _, path := range []string{"/v1/things/a", "/v1/things/b", "/made/up/1", "/v1/things/a/b"} {
		send(e, "GET", path)
	}
	send(e, "POST", "/v1/things/a")
	send(e, "BREW", "/v1/things/a")
	w := httptest.NewRecorder()
	MetricsHandler(r).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`carillon_http_request_seconds_count{method="GET",route="/v1/things/:thing",status="200"} 2`,
		`carillon_http_request_seconds_count{method="GET",route="none",status="404"} 1`,
		`carillon_http_request_seconds_count{method="POST",route="none",status="405"} 1`,
		`carillon_http_request_seconds_count{method="other",route="none",status="405"} 1`,
		"go_goroutines",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, w.Body)
		}
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	var ready error
	Probes(e, func(context.Context) error { return ready })
	if w, _ := send(e, "GET", "/readyz"); w.Code != 200 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	ready = errors.New("the secret reason")
	w, doc := send(e, "GET", "/readyz")
	if w.Code != 503 || doc["code"] != "not_ready" || w.Header().Get("Retry-After") != "1" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w, _ := send(e, "GET", "/healthz"); w.Code != 200 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// However many ask, a check runs once in its age.
func TestCachedChecksRunOncePerAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran, fails := 0, errors.New("away")
		check := Cached(time.Second, func(context.Context) error { ran++; return fails })
		for range 100 {
			if err := check(t.Context()); !errors.Is(err, fails) {
				t.Errorf("got %v", err)
			}
		}
		time.Sleep(time.Second) // of the test's own clock
		fails = nil
		if err := check(t.Context()); err != nil || ran != 2 {
			t.Errorf("got %v after %d checks, want the second one's", err, ran)
		}
	})
}

func TestDatabaseAwayIs503(t *testing.T) {
	t.Parallel()
	errs := map[string]error{
		"refused":  &pgconn.ConnectError{},
		"shutdown": &pgconn.PgError{Code: "57P01", Message: "secret"},
		"full":     &pgconn.PgError{Code: "53300"},
		"deadlock": &pgconn.PgError{Code: "40P01"},
		"locked":   &pgconn.PgError{Code: "55P03"},
		"standby":  &pgconn.PgError{Code: "25006"},
		"cut":      fmt.Errorf("read: %w", io.ErrUnexpectedEOF),
		"reset":    &net.OpError{Op: "read", Err: errors.New("connection reset by peer")},
		"ours":     &pgconn.PgError{Code: "42601", Message: "secret syntax"},
	}
	var log strings.Builder
	e := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	e.GET("/:which", func(c echo.Context) error { return errs[c.Param("which")] })
	for which := range errs {
		want := 503
		if which == "ours" {
			want = 500
		}
		w, _ := send(e, "GET", "/"+which)
		if w.Code != want || (w.Header().Get("Retry-After") != "") != (want == 503) || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: got %d %s", which, w.Code, w.Body)
		}
	}
}

func TestAccessLogHasNoSecrets(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	e := New(Options{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	e.GET("/v1/subjects/:key", func(c echo.Context) error {
		Note(c, slog.String("tenant", "acme"))
		return Answer(c, 200, 1)
	})
	send(e, "GET", "/v1/subjects/my-secret-key?token=my-secret-token", "Authorization", "Bearer my-secret-jwt")
	line := log.String()
	if strings.Contains(line, "secret") || !strings.Contains(line, `"route":"/v1/subjects/:key"`) || !strings.Contains(line, `"tenant":"acme"`) || !strings.Contains(line, `"status":200`) {
		t.Error(line)
	}
}
