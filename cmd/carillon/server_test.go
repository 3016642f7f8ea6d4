package main

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// whole is a Carillon that listens on loopback, with the issuer of its tokens.
type whole struct {
	url    string
	minter tenants.Minter
	routes []*echo.Route
	router *echo.Echo
	pool   *pgxpool.Pool
}

func serveHouse(t *testing.T) whole {
	t.Helper()
	return serveAs(t, func(*options) {})
}

// serveWithout serves without the issuer's private key.
func serveWithout(t *testing.T) whole {
	t.Helper()
	return serveAs(t, func(p *options) { p.minter = nil })
}

// serveAs serves a process with options that a test can change.
func serveAs(t *testing.T, change func(*options)) whole {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := whole{minter: tenants.NewIssuer(private, "test")}
	s.pool = postgrestest.Database(t) // as a superuser, to whom no policy applies
	p := options{
		databaseURL: s.pool.Config().ConnString(),
		connections: 10,
		role:        "all",
		issuer:      s.minter.Name(),
		keys:        []tenants.Key{s.minter.Key()},
		minter:      &s.minter,
		outbound:    web.Outbound{Loopback: true},
		log:         slog.New(slog.DiscardHandler),
	}
	change(&p)
	h, err := wire(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	if _, err := tenants.Ensure(t.Context(), h.platform, "acme", tenants.Wide()); err != nil {
		t.Fatal(err)
	}
	if err := h.dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.dispatch.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ahead := make(chan struct{})
	go func() { // on a busy machine forecasts take long, and are computed here
		defer close(ahead)
		h.forecasts.LookAhead(t.Context())
	}()
	t.Cleanup(func() { <-ahead })
	server := httptest.NewServer(h.router)
	t.Cleanup(server.Close)
	s.url, s.routes, s.router = server.URL, ofAPI(h.router), h.router
	return s
}

// ofAPI returns the routes but those below /console/, which are no part of the API. Package console tests them.
func ofAPI(router *echo.Echo) []*echo.Route {
	return slices.DeleteFunc(router.Routes(), func(r *echo.Route) bool { return strings.HasPrefix(r.Path, "/console/") })
}

// mint returns a token of the platform's issuer. Without a tenant it is one of the platform's operator.
func (s whole) mint(t *testing.T, tenant string, scopes ...string) string {
	t.Helper()
	token, err := s.minter.Mint(tenants.Claims{Subject: "ann", Tenant: tenant, Scopes: scopes, TTL: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// checked returns a client that compares each request and answer with the document.
func checked(t *testing.T) *http.Client {
	t.Helper()
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: apitest.Transport(t, base)}
}

func (s whole) send(t *testing.T, client *http.Client, token, method, path, media, body string) (status int, answer []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", media)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}
