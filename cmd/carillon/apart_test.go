package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/tenants"
)

// An operator can configure a separate database user for the requests of tenants. The user is a member of their roles only.
func TestTenantsRequestsLogInAsTheirOwnUser(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	var database string
	if err := pool.QueryRow(t.Context(), `SELECT current_database()`).Scan(&database); err != nil {
		t.Fatal(err)
	}
	user := "web_of_" + database // roles belong to the cluster
	if _, err := pool.Exec(t.Context(), `CREATE ROLE `+user+` LOGIN PASSWORD 'secret' IN ROLE carillon_api, carillon_platform`); err != nil {
		t.Fatal(err)
	}
	whole := pool.Config().ConnString()
	u, err := url.Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "secret")
	h, err := wire(t.Context(), options{databaseURL: whole, apiURL: u.String(), connections: 10, role: "all", issuer: "test", log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.close()
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), `DROP ROLE `+user); err != nil {
			t.Error(err)
		}
	})
	tenant, err := tenants.Ensure(t.Context(), h.platform, "acme", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	ctx := postgres.ForTenant(t.Context(), int32(tenant.ID))
	var who, as string
	if err := h.api.QueryRow(ctx, `SELECT session_user, current_user`).Scan(&who, &as); err != nil || who != user || as != postgres.APIRole {
		t.Errorf("got %s as %s, %v", who, as, err)
	}
	if err := h.platform.QueryRow(ctx, `SELECT session_user, current_user`).Scan(&who, &as); err != nil || who != user || as != postgres.PlatformRole {
		t.Errorf("got %s as %s, %v", who, as, err)
	}
	if err := h.engine.QueryRow(ctx, `SELECT session_user, current_user`).Scan(&who, &as); err != nil || strings.HasPrefix(who, "web") || as != postgres.EngineRole {
		t.Errorf("got %s as %s, %v", who, as, err)
	}
	_, err = h.api.Exec(ctx, `SET ROLE carillon_engine`)
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42501" {
		t.Errorf("got %v of the engine's role", err)
	}
}
