package web_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
)

func TestRunApart(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant, runs := addTenant(t, pool, "mine"), 0
	failed := errors.New("not this time")
	send := func(key, body string, run func() (int, any, error)) (web.Reply, error) {
		t.Helper()
		req := httptest.NewRequest(http.MethodPost, "/a", strings.NewReader(body))
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		once, err := web.OnceOf(echo.New().NewContext(req, httptest.NewRecorder()))
		if err != nil {
			t.Fatal(err)
		}
		return once.RunApart(t.Context(), pool, tenant, time.Minute, run)
	}
	run := func() (int, any, error) { runs++; return 200, map[string]int{"n": runs}, nil }
	check := func(key, body, want string) {
		t.Helper()
		if r, err := send(key, body, run); err != nil || r.Status != 200 || strings.TrimSpace(string(r.Body)) != want {
			t.Errorf("%s: got %d %s %v, want %s", key, r.Status, r.Body, err, want)
		}
	}
	check("", "", `{"n":1}`)
	check("", "", `{"n":2}`)
	check("k", "x", `{"n":3}`)
	check("k", "x", `{"n":3}`)
	if _, err := send("k", "y", run); codeOf(err) != "idempotency_key_reused" {
		t.Errorf("got %v for another body", err)
	}
	if _, err := send("l", "", func() (int, any, error) { return 0, nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	check("l", "", `{"n":4}`)
	_, err := send("m", "", func() (int, any, error) {
		if _, err := send("m", "", run); codeOf(err) != "idempotency_in_flight" {
			t.Errorf("got %v while in flight", err)
		}
		// Its process is taken for dead, and another does the work.
		if _, err := pool.Exec(t.Context(), `UPDATE idempotency SET created_at = now() - interval '61 s' WHERE key = 'm'`); err != nil {
			t.Fatal(err)
		}
		check("m", "", `{"n":5}`)
		return 200, "late", nil
	})
	if err != nil {
		t.Error(err)
	}
	check("m", "", `{"n":5}`)
	if _, err := pool.Exec(t.Context(), `UPDATE idempotency SET created_at = now() - interval '24 hours 1 second'`); err != nil {
		t.Fatal(err)
	}
	check("k", "y", `{"n":6}`)
}
