package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
)

func raise(t *testing.T, part role) *app {
	t.Helper()
	h, err := wire(t.Context(), options{
		databaseURL: postgrestest.URL(t),
		connections: 10,
		role:        part,
		issuer:      "test",
		log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

func TestTheRouterIsTheContract(t *testing.T) {
	t.Parallel()
	h := raise(t, "all")
	h.router.GET("/metrics", echo.WrapHandler(web.MetricsHandler(h.registry))) // serve has a listener of its own for it
	apitest.Routes(t, ofAPI(h.router))
}

func TestAProcessWithoutTheAPIHasProbesOnly(t *testing.T) {
	t.Parallel()
	for _, r := range raise(t, "sweep").router.Routes() {
		if r.Path != "/healthz" && r.Path != "/readyz" {
			t.Errorf("it serves %s %s", r.Method, r.Path)
		}
	}
}

// A server may become read-only while connections to it stay open, and new ones to a standby are refused.
func TestAReadOnlyDatabaseIsNotReady(t *testing.T) {
	t.Parallel()
	h := raise(t, "api")
	ready := func() int {
		w := httptest.NewRecorder()
		h.router.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		return w.Code
	}
	until(t, "it is ready", func() bool { return ready() == http.StatusOK })
	for _, conn := range h.platform.AcquireAllIdle(t.Context()) {
		if _, err := conn.Exec(t.Context(), `SET default_transaction_read_only = on`); err != nil {
			t.Error(err)
		}
		conn.Release()
	}
	for ready() != http.StatusServiceUnavailable { // readiness is checked once a second
		if t.Context().Err() != nil {
			t.Fatal("it is ready on connections that became read-only")
		}
	}
	if _, err := h.engine.Exec(t.Context(), `
		SET ROLE NONE;
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	h.platform.Reset()
	if err := h.ready(t.Context()); err == nil {
		t.Error("it is ready where new connections are read-only")
	}
}
