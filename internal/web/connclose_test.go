package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// raised serves a handler on a free port, and returns the address.
func raised(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, h, quiet()) }()
	t.Cleanup(func() { stop(); <-served })
	return l.Addr().String()
}

// said sends the whole text, even if the server reads only a part of it, and then reads the answer, as many clients do.
func said(t *testing.T, address, text string) (*http.Response, []byte) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(c, strings.NewReader(text)); err != nil {
		t.Errorf("%.40q: %v", text, err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.40q: %v", text, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("%.40q: the answer was cut: %v", text, err)
	}
	return r, body
}

// A request that net/http refuses by itself is answered as any other fault is.
func TestWhatCannotBeReadIsAProblem(t *testing.T) {
	t.Parallel()
	address := raised(t, New(Options{Log: quiet()}))
	for name, c := range map[string]struct {
		text, code string
		status     int
	}{
		"headers too large":  {"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat("A", 100<<10) + "\r\n\r\n", "headers_too_large", 431},
		"too many headers":   {"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: b\r\n", 20_000) + "\r\n", "headers_too_large", 431},
		"path too long":      {"GET /" + strings.Repeat("a", 100<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", "headers_too_large", 431},
		"no host":            {"GET / HTTP/1.1\r\n\r\n", "malformed_request", 400},
		"bad escape":         {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "malformed_request", 400},
		"NUL in a header":    {"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00\r\n\r\n", "malformed_request", 400},
		"version 2":          {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", "malformed_request", 400},
		"unknown coding":     {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", "malformed_request", 400},
		"no version":         {"GET /\r\n\r\n", "malformed_request", 400},
		"of the server":      {"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "not_found", 404},
		"to another machine": {"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\nConnection: close\r\n\r\n", "not_found", 404},
	} {
		r, body := said(t, address, c.text)
		var doc struct {
			Code, Instance, Type string
			Status               int
		}
		if err := json.Unmarshal(body, &doc); err != nil || r.StatusCode != c.status || doc.Status != c.status || doc.Code != c.code || doc.Type != "about:blank" {
			t.Errorf("%s: got %d %s, want %d %s", name, r.StatusCode, body, c.status, c.code)
		}
		if r.Header.Get("Content-Type") != "application/problem+json" || doc.Instance == "" || r.Header.Get("X-Request-Id") != doc.Instance || r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %v %s", name, r.Header, body)
		}
	}
}

// A client that sends a large body to its end still reads the answer, although the server refused the request at once.
func TestARefusalIsReadThoughTheBodyIsNot(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet(), BodyLimit: 1000})
	e.POST("/", func(c echo.Context) error {
		if _, err := Body[map[string]string](c); err != nil {
			return err
		}
		return Answer(c, 200, nil)
	})
	address := raised(t, e)
	const large = 8 << 20
	for path, want := range map[string]int{"/": 413, "/nowhere": 404} {
		text := "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n" + string(bytes.Repeat([]byte("x"), large))
		if r, body := said(t, address, text); r.StatusCode != want {
			t.Errorf("%s: got %d %s, want %d", path, r.StatusCode, body, want)
		}
	}
}

// The server answers a refused request at once, even if the rest of its body never arrives.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	e.POST("/", func(c echo.Context) error { return fault.New(401, "unauthenticated", "who are you?") })
	c, err := net.Dial("tcp", raised(t, e))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	start := time.Now()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if took := time.Since(start); r.StatusCode != 401 || took > 15*time.Second { // a body has 20 s to arrive
		t.Errorf("got %d after %s", r.StatusCode, took)
	}
}
