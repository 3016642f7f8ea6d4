package main

import (
	"net/http"
	"testing"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// Pages, their files and the document are sent compressed, and are cached by clients.
func TestPagesAreSentPackedAndOnce(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	for _, path := range []string{"/openapi.yaml", "/docs", "/docs/start.js", "/docs/scalar.js", "/docs/LICENSE.txt", "/console"} {
		get := func(header http.Header) answer {
			t.Helper()
			got, _ := s.ask(t, client, "", "GET", path, header, nil, patience)
			return got
		}
		first := get(http.Header{"Accept-Encoding": {"gzip"}})
		h := first.header
		caching := "public, max-age=60"
		if path == "/console" {
			caching = "no-cache" // it names the scripts of this build
		}
		if first.status != 200 || h.Get("Content-Encoding") != "gzip" || h.Get("Cache-Control") != caching || h.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: got %d %v", path, first.status, h)
		}
		again := get(http.Header{"Accept-Encoding": {"gzip"}, "If-None-Match": {h.Get("ETag")}})
		if again.status != 304 || len(again.body) != 0 || again.header.Get("ETag") != h.Get("ETag") {
			t.Errorf("%s again: got %d, %d bytes, %v", path, again.status, len(again.body), again.header)
		}
		if path == "/docs/scalar.js" {
			continue // it is sent compressed to all clients
		}
		plain := get(http.Header{"Accept-Encoding": {"identity"}})
		if plain.status != 200 || plain.header.Get("Content-Encoding") != "" || plain.header.Get("ETag") == h.Get("ETag") || len(plain.body) < len(first.body) && len(plain.body) > 2000 {
			t.Errorf("%s as it is: got %d, %d bytes, %v", path, plain.status, len(plain.body), plain.header)
		}
	}
	if got, _ := s.ask(t, client, "", "GET", "/docs/none.js", nil, nil, patience); got.status != 404 || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("a file that is not there: got %d %v", got.status, got.header)
	}
}

// Each page can be turned off by itself. The document of the API is for programs, and stays.
func TestPagesCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"DATABASE_URL":           postgrestest.URL(t),
		"CARILLON_ISSUER_KEY":    "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
		"CARILLON_CONNECTIONS":   "12",
		"CARILLON_CLEAR_SECRETS": "true",
		"CARILLON_NO_DOCS":       "true",
	}
	without, with := serveOn(t, environment, "--no-console"), serveOn(t, environment, "--no-docs=false")
	for path, want := range map[string][2]int{
		"/docs": {404, 200}, "/docs/start.js": {404, 200}, "/console": {404, 200}, "/openapi.yaml": {200, 200}, "/healthz": {200, 200},
	} {
		for i, s := range []served{without, with} {
			if status, body := call(t, http.MethodGet, "http://"+s.Listen+path, "", ""); status != want[i] {
				t.Errorf("%s of process %d: got %d %.200s, want %d", path, i, status, body, want[i])
			}
		}
	}
}
