package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

var pathParameter = regexp.MustCompile(`:[a-z_]+|\*`)

// HEAD is answered like GET on every path but that of a stream of events, without the body.
func TestHEADIsAnsweredAsGET(t *testing.T) {
	t.Parallel()
	s := serveHouse(t)
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	t.Cleanup(client.CloseIdleConnections)
	token := s.mint(t, "acme", tenants.TenantScopes()...)
	s.expect(t, client, token, "PUT", "/v1/workflows/x/schedules/x", `{"spec": {"cron": "0 8 * * *"}}`, 201, "")
	s.expect(t, client, token, "PUT", "/v1/endpoints/x", `{"url": "https://example.com/"}`, 201, "")
	asked := 0
	for _, route := range s.routes {
		if route.Method != http.MethodGet {
			continue
		}
		path := pathParameter.ReplaceAllString(route.Path, "x")
		if path == "/v1/ticks/tail" { // a stream of events has no answer to HEAD
			if got, _ := s.ask(t, client, token, "HEAD", path, nil, nil, patience); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET" || got.header.Get("X-Request-Id") == "" {
				t.Errorf("HEAD %s: got %d %v", path, got.status, got.header)
			}
			continue
		}
		asIs := http.Header{"Accept-Encoding": {"identity"}} // Go's client requests gzip by itself for a method with a body
		get, _ := s.ask(t, client, token, "GET", path, asIs, nil, patience)
		head, _ := s.ask(t, client, token, "HEAD", path, asIs, nil, patience)
		if head.status != get.status || len(head.body) != 0 {
			t.Errorf("%s: HEAD got %d with %d bytes, GET got %d", path, head.status, len(head.body), get.status)
		}
		for _, name := range []string{"Content-Type", "ETag", "Location", "Cache-Control"} {
			if head.header.Get(name) != get.header.Get(name) {
				t.Errorf("%s: HEAD has %s %q, GET has %q", path, name, head.header.Get(name), get.header.Get(name))
			}
		}
		asked++
	}
	if asked < 30 {
		t.Errorf("only %d routes take GET", asked)
	}
	if got, _ := s.ask(t, client, token, "HEAD", "/v1/token", nil, nil, patience); got.status != 405 || got.header.Get("Allow") != "POST" {
		t.Errorf("HEAD where there is no GET: got %d, Allow %q", got.status, got.header.Get("Allow"))
	}
	if got, _ := s.ask(t, client, token, "PATCH", "/v1/endpoints", nil, nil, patience); got.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("Allow is %q", got.header.Get("Allow"))
	}
}

// After the answer to HEAD the connection carries the next answer, also after a route that streams.
func TestTheAnswerToHEADLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := serveHouse(t)
	token := s.mint(t, "acme", tenants.TenantScopes()...)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for _, ask := range []struct{ method, path string }{{"HEAD", "/v1/schedules/export"}, {"HEAD", "/openapi.yaml"}, {"GET", "/healthz"}} {
		r, err := http.NewRequestWithContext(t.Context(), ask.method, s.url+ask.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		if err := r.Write(conn); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: got %v, %v", ask.method, ask.path, resp, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if n := answers.Buffered(); n > 0 {
			rest, _ := answers.Peek(n)
			t.Errorf("%s %s is followed by %q", ask.method, ask.path, rest)
		}
	}
}
