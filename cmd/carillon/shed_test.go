package main

import (
	"crypto/ed25519"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/tenants"
)

func TestAFullProcessShedsLoad(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := whole{minter: tenants.NewIssuer(private, "test")}
	url := postgrestest.URL(t)
	h, err := wire(t.Context(), options{
		databaseURL: url, connections: 10, role: "api", issuer: s.minter.Name(), keys: []tenants.Key{s.minter.Key()}, minter: &s.minter,
		log:  slog.New(slog.DiscardHandler),
		shed: func(*pools) tenants.Shedding { return tenants.Shedding{AtATime: 1} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	pool, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := tenants.Ensure(t.Context(), pool, "acme", tenants.Wide()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h.router)
	t.Cleanup(server.Close)
	s.url = server.URL
	client, admin := checked(t), s.mint(t, "acme", tenants.TenantAdmin)
	s.expect(t, client, admin, "GET", "/v1/schedules", "", 200, "")

	body, sender := io.Pipe() // the request is under way until its body ends
	r, err := http.NewRequestWithContext(t.Context(), "PUT", server.URL+"/v1/workflows/w", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+admin)
	r.Header.Set("Content-Type", "application/json")
	answered := make(chan int, 1)
	go func() {
		resp, err := server.Client().Do(r)
		if err != nil {
			answered <- 0
			return
		}
		_ = resp.Body.Close()
		answered <- resp.StatusCode
	}()
	for deadline := time.Now().Add(inTime); ; <-time.After(5 * time.Millisecond) {
		if status, _ := s.send(t, client, admin, "GET", "/v1/schedules", "", ""); status == http.StatusServiceUnavailable {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no list was shed")
		}
	}
	s.expect(t, client, admin, "GET", "/v1/schedules", "", 503, "overloaded")
	s.expect(t, client, admin, "GET", "/v1/workflows/w", "", 404, "not_found")
	s.expect(t, client, "", "GET", "/healthz", "", 200, "")
	if _, err := io.WriteString(sender, `{}`); err != nil {
		t.Fatal(err)
	}
	_ = sender.Close()
	if status := <-answered; status != 200 && status != 201 {
		t.Errorf("what was under way: got %d", status)
	}
	s.expect(t, client, admin, "GET", "/v1/schedules", "", 200, "")
}
