package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillonhq/carillon/api/apitest"
	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/tenants"
)

// server is the program that all tests of the package call, built from this checkout.
var server struct {
	program  string
	URL      string `json:"url"`
	Platform string `json:"platform_token"`
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run builds the program, starts `carillon dev` on a database of its own, runs the tests and stops it.
func run(m *testing.M) (code int, err error) {
	folder, err := os.MkdirTemp("", "carillon-servertest-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	server.program = filepath.Join(folder, "carillon")
	build := exec.Command("go", "build", "-trimpath", "-o", server.program, "github.com/carillonhq/carillon/cmd/carillon")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // with the flags of the Dockerfile
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the program: %w\n%s", err, out)
	}
	ready := filepath.Join(folder, "ready.json")
	var log bytes.Buffer
	dev := exec.Command(server.program, "dev", "--ephemeral", "--no-demo", "--listen", "127.0.0.1:0", "--ready-file", ready)
	dev.Env = append(os.Environ(), "PGCONNECT_TIMEOUT=10") // connecting may take long while other tests run
	dev.Stdout, dev.Stderr = &log, &log
	if err := dev.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- dev.Wait() }()
	text, err := served(ready, ended)
	if err != nil {
		_ = dev.Process.Kill() // it may have ended already
		return 0, fmt.Errorf("start carillon dev: %w\n%s", err, log.String())
	}
	if err := json.Unmarshal(text, &server); err != nil {
		return 0, fmt.Errorf("read the ready file: %w", err)
	}
	before := goleak.IgnoreCurrent()
	code = m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := goleak.Find(before); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := dev.Process.Signal(os.Interrupt); err != nil {
		return code, err
	}
	if err := <-ended; err != nil {
		return code, fmt.Errorf("carillon dev: %w\n%s", err, log.String())
	}
	return code, nil
}

// served waits until the server has written its ready file, and returns the file's content.
func served(ready string, ended <-chan error) ([]byte, error) {
	for deadline := time.After(2 * time.Minute); ; {
		if text, err := os.ReadFile(ready); err == nil && json.Valid(text) {
			return text, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("it ended: %v", err)
		case <-deadline:
			return nil, fmt.Errorf("it was not ready within two minutes")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var made atomic.Int32 // tenants of the tests

// newTenant makes a tenant with wide quotas and returns its name.
func newTenant(t *testing.T) string {
	t.Helper()
	tenant := fmt.Sprintf("tenant-%d", made.Add(1))
	body, err := json.Marshal(map[string]any{"name": tenant, "quotas": tenants.Wide()})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/v1/platform/tenants/"+tenant, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+server.Platform)
	req.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Fatalf("make the tenant: %s", answer.Status)
	}
	return tenant
}

// client returns a client of a new tenant. Each of its requests and answers is checked against the OpenAPI document.
func client(t *testing.T) *carillon.Client {
	t.Helper()
	tenant := newTenant(t)
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	c, err := carillon.New(carillon.Config{URL: server.URL, Token: token(t, tenant), HTTPClient: &http.Client{Transport: apitest.Transport(t, base)}, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// token returns a token of a tenant with all its scopes, as the command prints it.
func token(t *testing.T, tenant string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, server.program, "token", "--tenant", tenant, "--url", server.URL).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
