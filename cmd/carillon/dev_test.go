package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/api/apitest"
)

// inTime bounds the waits of these tests, with a reserve for a busy machine.
const inTime = 3 * time.Minute

// running is a `carillon dev` in this process.
type running struct {
	announcement
	lines chan string // of standard output
	stop  func() int
}

// start runs `carillon dev` as main does, with a data folder that the database's account can enter.
func start(t *testing.T, flags ...string) running {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready.json")
	args := append([]string{"dev", "--listen", "127.0.0.1:0", "--log-format", "json", "--ready-file", ready}, flags...)
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		ended <- run(ctx, args, func(string) string { return "" }, w, &stderr)
		_ = w.Close()
	}()
	d := running{lines: make(chan string, 10_000)}
	go func() {
		defer close(d.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			d.lines <- s.Text()
		}
	}()
	var code int
	stopped := false
	d.stop = func() int {
		if !stopped {
			begin := time.Now()
			cancel()
			code, stopped = <-ended, true
			if took := time.Since(begin); took > inTime {
				t.Errorf("it took %s to stop", took)
			}
			if code != exitDone {
				t.Errorf("it ended with %d: %s", code, stderr.String())
			}
		}
		return code
	}
	t.Cleanup(func() { d.stop() })
	deadline := time.After(inTime)
	for {
		text, err := os.ReadFile(ready)
		if err == nil {
			if err := json.Unmarshal(text, &d.announcement); err != nil {
				t.Fatal(err)
			}
			return d
		}
		select {
		case code = <-ended:
			stopped = true
			t.Fatalf("it ended with %d: %s", code, stderr.String())
		case <-deadline:
			t.Fatal("it is not ready in time")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// line waits for a line that contains the text.
func (d running) line(t *testing.T, text string) string {
	t.Helper()
	deadline := time.After(inTime)
	for {
		select {
		case line, ok := <-d.lines:
			if !ok {
				t.Fatalf("it ended without %s", text)
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-deadline:
			t.Fatalf("no %s in time", text)
		}
	}
}

// call returns the status and the body, and checks them against the contract.
func call(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := (&http.Client{Transport: apitest.Transport(t, &http.Transport{DisableKeepAlives: true})}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// mint runs `carillon token`.
func mint(t *testing.T, d running, flags ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"token", "--url", d.URL}, flags...), func(string) string { return "" }, &out, &errs); code != exitDone {
		t.Fatalf("token ended with %d: %s", code, errs.String())
	}
	return strings.TrimSpace(out.String())
}

func TestDevTicksFromTheStart(t *testing.T) {
	t.Parallel()
	d := start(t, "--ephemeral")
	d.line(t, `"msg":"tick"`)
	for _, page := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml", "/docs", "/console"} {
		if status, _ := call(t, http.MethodGet, d.URL+page, "", ""); status != http.StatusOK {
			t.Errorf("%s: got %d", page, status)
		}
	}
	if status, _ := call(t, http.MethodGet, d.URL+"/v1/schedules", "", ""); status != http.StatusUnauthorized {
		t.Errorf("got %d without a token", status)
	}
	if status, _ := call(t, http.MethodGet, d.URL+"/v1/nothing", "", ""); status != http.StatusNotFound {
		t.Errorf("got %d of a path that does not exist", status)
	}
	if status, body := call(t, http.MethodGet, d.URL+"/v1/platform/tenants/demo", d.PlatformToken, ""); status != http.StatusOK {
		t.Errorf("got %d with the platform's token: %s", status, body)
	}
	if status, body := call(t, http.MethodGet, d.URL+"/v1/schedules?workflow=pulse", d.Token, ""); status != http.StatusOK || !strings.Contains(body, "ana@lisbon") {
		t.Errorf("got %d: %s", status, body)
	}
	d.stop()
	if answer, err := client.Get(d.URL + "/healthz"); err == nil {
		_ = answer.Body.Close()
		t.Error("it answers after it ended")
	}
}

func TestDevTokensAreOfTheirTenant(t *testing.T) {
	t.Parallel()
	d := start(t, "--ephemeral", "--no-demo")
	const path = "/v1/workflows/w/schedules/k"
	acme := mint(t, d, "--tenant", "acme", "--scope", "schedules:write schedules:read", "--ttl", "5m")
	if status, body := call(t, http.MethodPut, d.URL+path, acme, `{"spec": {"cron": "0 8 * * *"}}`); status != http.StatusCreated {
		t.Fatalf("got %d: %s", status, body)
	}
	if status, _ := call(t, http.MethodGet, d.URL+path, d.Token, ""); status != http.StatusNotFound {
		t.Errorf("another tenant got %d", status)
	}
	reader := mint(t, d, "--tenant", "acme", "--scope", "schedules:read")
	if status, _ := call(t, http.MethodPut, d.URL+path, reader, `{"spec": {"cron": "0 9 * * *"}}`); status != http.StatusForbidden {
		t.Errorf("a reader got %d", status)
	}
	if status, body := call(t, http.MethodGet, d.URL+"/v1/platform/tenants", mint(t, d, "--scope", "platform:admin"), ""); status != http.StatusOK {
		t.Errorf("got %d: %s", status, body)
	}
}

func TestDevGivesNoTokenToABrowser(t *testing.T) {
	t.Parallel()
	d := start(t, "--ephemeral", "--no-demo")
	for name, change := range map[string]func(*http.Request){
		"a page":         func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		"a rebound name": func(r *http.Request) { r.Host = "evil.example" },
		"another method": func(r *http.Request) { r.Method = http.MethodGet },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+tokenPath, strings.NewReader(`{"tenant": "demo", "scope": "", "ttl": "5m"}`))
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden || strings.Contains(string(text), "eyJ") {
			t.Errorf("%s: got %d: %s", name, answer.StatusCode, text)
		}
	}
}

func TestDevKeepsItsDataAndToken(t *testing.T) {
	t.Parallel()
	dir := dataFolder(t)
	first := start(t, "--data", dir, "--no-demo")
	if status, body := call(t, http.MethodPut, first.URL+"/v1/workflows/w/schedules/k", first.Token, `{"spec": {"cron": "0 8 * * *"}}`); status != http.StatusCreated {
		t.Fatalf("got %d: %s", status, body)
	}
	first.stop()
	again := start(t, "--data", dir, "--no-demo")
	if again.Token != first.Token || again.PlatformToken != first.PlatformToken {
		t.Error("the tokens differ between runs")
	}
	if status, body := call(t, http.MethodGet, again.URL+"/v1/workflows/w/schedules/k", first.Token, ""); status != http.StatusOK {
		t.Errorf("got %d: %s", status, body)
	}
}

func dataFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "carillon-test-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDevEndsByItself(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"dev", "--ephemeral", "--listen", "127.0.0.1:0", "--no-demo", "--for", "1s"}, func(string) string { return "" }, &out, &errs)
	if code != exitDone {
		t.Fatalf("got %d: %s", code, errs.String())
	}
	for _, want := range []string{"Carillon is ready.", "/docs", "/console", "export CARILLON_TOKEN=eyJ", "curl -X PUT http://127.0.0.1:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %q:\n%s", want, out.String())
		}
	}
}
