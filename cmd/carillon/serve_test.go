package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// served is a `carillon serve` in this process.
type served struct {
	Listen  string `json:"listen"`
	Metrics string `json:"metrics"`
	stop    func() // like SIGTERM, without waiting
}

// serveOn runs `carillon serve` until the test ends.
func serveOn(t *testing.T, environment map[string]string, flags ...string) served {
	t.Helper()
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-format", "json"}, flags...)
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, args, func(name string) string { return environment[name] }, io.Discard, w)
		_ = w.Close()
	}()
	lines := bufio.NewScanner(r)
	s := served{stop: cancel}
	for s.Listen == "" {
		if !lines.Scan() {
			t.Fatalf("it ended with %d", <-ended)
		}
		if strings.Contains(lines.Text(), `"msg":"serving"`) {
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				t.Fatal(err)
			}
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, r)
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitDone {
			t.Errorf("it ended with %d", code)
		}
		<-drained
	})
	return s
}

func TestServeSharesADatabase(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"DATABASE_URL":           postgrestest.URL(t),
		"CARILLON_ISSUER_KEY":    "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
		"CARILLON_CONNECTIONS":   "12",
		"CARILLON_CLEAR_SECRETS": "true",
	}
	getenv := func(name string) string { return environment[name] }
	one, other := serveOn(t, environment, "--role", "api"), serveOn(t, environment)

	var platform, acme bytes.Buffer
	if code := run(t.Context(), []string{"token", "--scope", "platform:admin"}, getenv, &platform, io.Discard); code != exitDone {
		t.Fatalf("token ended with %d", code)
	}
	if code := run(t.Context(), []string{"token", "--tenant", "acme"}, getenv, &acme, io.Discard); code != exitDone {
		t.Fatalf("token ended with %d", code)
	}
	token := strings.TrimSpace(acme.String())
	const path = "/v1/workflows/w/schedules/k"
	if status, _ := call(t, http.MethodGet, "http://"+one.Listen+path, token, ""); status != http.StatusUnauthorized && status != http.StatusForbidden {
		t.Errorf("got %d for a tenant that is not there", status)
	}
	if status, body := call(t, http.MethodPut, "http://"+one.Listen+"/v1/platform/tenants/globex", strings.TrimSpace(platform.String()), `{"name": "globex"}`); status != http.StatusCreated {
		t.Fatalf("got %d: %s", status, body)
	}
	var globex bytes.Buffer
	if code := run(t.Context(), []string{"token", "--tenant", "globex"}, getenv, &globex, io.Discard); code != exitDone {
		t.Fatalf("token ended with %d", code)
	}
	token = strings.TrimSpace(globex.String())
	if status, body := call(t, http.MethodPut, "http://"+one.Listen+path, token, `{"spec": {"cron": "0 8 * * *"}}`); status != http.StatusCreated {
		t.Errorf("got %d: %s", status, body)
	}
	if status, body := call(t, http.MethodGet, "http://"+other.Listen+path, token, ""); status != http.StatusOK {
		t.Errorf("the other process: got %d: %s", status, body)
	}
	if status, _ := call(t, http.MethodGet, "http://"+one.Metrics+"/metrics", "", ""); status != http.StatusOK {
		t.Errorf("metrics: got %d", status)
	}
	answer, err := client.Get("http://" + one.Listen + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("got %d: the metrics are served to everyone", answer.StatusCode)
	}
	if status, _ := call(t, http.MethodPost, "http://"+one.Listen+tokenPath, "", `{}`); status != http.StatusNotFound {
		t.Errorf("got %d where only carillon dev mints tokens", status)
	}
}

// After SIGTERM a draining process answers as before, except /readyz, and then ends.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	s := serveOn(t, map[string]string{
		"DATABASE_URL":           postgrestest.URL(t),
		"CARILLON_CLEAR_SECRETS": "true",
		"CARILLON_ISSUER_KEY":    "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
	}, "--drain", "5s")
	if status, body := call(t, http.MethodGet, "http://"+s.Listen+"/readyz", "", ""); status != http.StatusOK {
		t.Fatalf("got %d: %s", status, body)
	}
	s.stop()
	for status := 0; status != http.StatusServiceUnavailable; { // the change is made at once, but in another goroutine
		status, _ = call(t, http.MethodGet, "http://"+s.Listen+"/readyz", "", "")
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/v1/workflows": http.StatusUnauthorized} {
		if status, body := call(t, http.MethodGet, "http://"+s.Listen+path, "", ""); status != want {
			t.Errorf("%s while draining: got %d: %s", path, status, body)
		}
	}
}
