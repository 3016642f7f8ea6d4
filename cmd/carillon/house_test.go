package main

import (
	"log/slog"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
)

func raise(t *testing.T, part role) *house {
	t.Helper()
	h, err := build(t.Context(), plan{
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
	h.router.GET("/metrics", echo.WrapHandler(web.MetricsHandler(h.registry))) // serve has it on a listener of its own
	apitest.Routes(t, h.router.Routes())
}

func TestAProcessWithoutTheAPIHasProbesOnly(t *testing.T) {
	t.Parallel()
	for _, r := range raise(t, "sweep").router.Routes() {
		if r.Path != "/healthz" && r.Path != "/readyz" {
			t.Errorf("it serves %s %s", r.Method, r.Path)
		}
	}
}
