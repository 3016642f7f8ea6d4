package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// terminalOf runs the client's commands against a server, as the tenant acme.
type terminalOf struct {
	t   *testing.T
	env map[string]string
}

func newTerminal(t *testing.T, url, token string) terminalOf {
	return terminalOf{t, map[string]string{
		"CARILLON_URL": url, "CARILLON_TOKEN": token, "XDG_CONFIG_HOME": t.TempDir(), "CARILLON_NO_KEYCHAIN": "1", "NO_COLOR": "1",
	}}
}

// run runs a command and returns its exit code and what it printed.
func (c terminalOf) run(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), inTime)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, args, func(name string) string { return c.env[name] }, &out, &errs)
	return code, out.String(), errs.String()
}

// must runs a command that must succeed, and returns what it printed on standard output.
func (c terminalOf) must(args ...string) string {
	c.t.Helper()
	code, out, errs := c.run(args...)
	if code != exitDone {
		c.t.Fatalf("carillon %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// sink is a program that gets ticks.
type sink struct {
	*httptest.Server
	mu     sync.Mutex
	got    []received
	answer func(w http.ResponseWriter)
}

type received struct {
	header http.Header
	body   []byte
}

func newSink(t *testing.T, answer func(w http.ResponseWriter)) *sink {
	s := &sink{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.got = append(s.got, received{r.Header.Clone(), body})
		s.mu.Unlock()
		if s.answer != nil {
			s.answer(w)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// of returns the request with the id of a tick.
func (s *sink) of(id string) (received, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.got {
		if r.header.Get("Webhook-Id") == id {
			return r, true
		}
	}
	return received{}, false
}

var secretLine = regexp.MustCompile(`(?m)^secret  (whsec_\S+)`)

// A mirror sends what the endpoint gets, signed with a secret that stays the same, and the endpoint still gets the tick.
func TestListenMirrorsWhatTheEndpointGets(t *testing.T) {
	t.Parallel()
	server := serveHouse(t)
	c := newTerminal(t, server.url, server.mint(t, "acme", "tenant:admin"))
	endpoint, program := newSink(t, nil), newSink(t, nil)
	c.must("endpoint", "put", "mailer", "--url", endpoint.URL)
	c.must("workflow", "put", "digest", "--endpoint", "mailer", "--version", "v7")
	c.must("schedule", "put", "digest/ann", "--every", "1s", "--overlap", "allow_all", "--label", "plan=pro", "--payload", `{"n": 12345678901234567890, "html": "<b>"}`)

	code, out, errs := c.run("listen", "--workflow", "digest", "--forward-to", program.URL+"/ticks", "--headers", "X-Own: 1", "--once", "-o", "json", "--jq", ".[0]")
	if code != exitDone {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	var printed struct {
		TickID string `json:"tick_id"`
		Status int    `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil || printed.Status != 200 {
		t.Fatalf("got %s, %v", out, err)
	}
	copied, ok := program.of(printed.TickID)
	if !ok || copied.header.Get("Carillon-Mirror") != "1" || copied.header.Get("X-Own") != "1" {
		t.Fatalf("got %v", copied.header)
	}
	secret := secretLine.FindStringSubmatch(errs)
	hook, err := standardwebhooks.NewWebhook(secret[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify(copied.body, copied.header); err != nil {
		t.Errorf("the signature: %v", err)
	}
	var original received
	until(t, "the endpoint gets the tick", func() bool { original, ok = endpoint.of(printed.TickID); return ok })
	if got, want := comparable(t, copied.body), comparable(t, original.body); got != want {
		t.Errorf("the copy is\n%s\nand the endpoint got\n%s", got, want)
	}
	if original.header.Get("Carillon-Mirror") != "" {
		t.Error("the endpoint's request is marked as a copy")
	}
	until(t, "the tick succeeds", func() bool {
		return strings.Contains(c.must("tick", "get", printed.TickID, "--columns", "state"), "succeeded")
	})
	if _, _, again := c.run("tick", "sample", "digest/ann", "--to", program.URL); !strings.Contains(again, secret[1]) {
		t.Errorf("another secret: %s", again)
	}
}

// comparable returns a tick without what a copy cannot have: the lease token, and the coming times of the moment of the copy.
func comparable(t *testing.T, body []byte) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for _, name := range []string{"lease_token", "upcoming", "traceparent"} {
		delete(members, name)
	}
	text, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(inTime); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// A worker reports what the program answers, and is refused where another one works.
func TestListenTakesAndReports(t *testing.T) {
	t.Parallel()
	server := serveHouse(t)
	c := newTerminal(t, server.url, server.mint(t, "acme", "tenant:admin"))
	c.must("schedule", "put", "job", "--cron", "0 0 1 1 *", "--overlap", "allow_all", "--payload", "7")
	tick := strings.TrimSpace(c.must("schedule", "trigger", "job", "-o", "name"))

	refusing := newSink(t, func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "mail refused", http.StatusServiceUnavailable)
	})
	line := c.must("listen", "--workflow", "job", "--take", "--once", "--forward-to", refusing.URL, "-o", "json")
	if !strings.Contains(line, `"result": "failed"`) || !strings.Contains(line, tick) {
		t.Errorf("got %s", line)
	}
	if got := c.must("tick", "get", tick, "--jq", ".attempts[0].error"); !strings.Contains(got, "503 Service Unavailable: mail refused") {
		t.Errorf("got %s", got)
	}
	working := newSink(t, nil)
	line = c.must("listen", "--workflow", "job", "--take", "--once", "--forward-to", working.URL, "-o", "json")
	if !strings.Contains(line, `"result": "completed"`) || !strings.Contains(line, tick) {
		t.Errorf("got %s", line)
	}
	if got := c.must("tick", "get", tick, "--jq", ".state"); got != "succeeded\n" {
		t.Errorf("got %s", got)
	}
	if r, ok := working.of(tick); !ok || r.header.Get("Carillon-Mirror") != "" || !bytes.HasSuffix(r.body, []byte(`"payload":7}`)) {
		t.Errorf("got %s", r.body)
	}
	code, _, errs := c.run("listen", "--workflow", "job", "--take", "--forward-to", working.URL)
	if code != 5 || !strings.Contains(errs, "another worker finished a tick of job") {
		t.Errorf("beside a worker: exit %d, %s", code, errs)
	}

	// After 202 the program reports the result itself; the command keeps the lease meanwhile.
	accepting := newSink(t, func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) })
	tick = strings.TrimSpace(c.must("schedule", "trigger", "job", "-o", "name"))
	line = c.must("listen", "--workflow", "job", "--take", "--yes", "--once", "--forward-to", accepting.URL, "-o", "json")
	if !strings.Contains(line, "the program reports the result") {
		t.Errorf("got %s", line)
	}
	r, _ := accepting.of(tick)
	var body struct {
		LeaseToken string `json:"lease_token"`
	}
	if err := json.Unmarshal(r.body, &body); err != nil {
		t.Fatal(err)
	}
	c.must("api", "POST", "/v1/ticks/"+tick+"/complete", "--data", fmt.Sprintf(`{"lease_token": %q}`, body.LeaseToken))
	if got := c.must("tick", "get", tick, "--jq", ".state"); got != "succeeded\n" {
		t.Errorf("got %s", got)
	}
}

// If the connection of a tail breaks, the next one resumes after the last event.
func TestTailResumesAfterTheLastEvent(t *testing.T) {
	t.Parallel()
	server := serveHouse(t)
	resumed := make(chan string, 10)
	var connections atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number := connections.Add(1)
		resumed <- r.Header.Get("Last-Event-ID")
		req, err := http.NewRequestWithContext(r.Context(), r.Method, server.url+r.URL.String(), nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return // the client has left
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		tick := false
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			fmt.Fprintln(w, lines.Text())
			w.(http.Flusher).Flush()
			tick = tick || lines.Text() == "event: tick"
			if tick && lines.Text() == "" && number == 1 {
				return // cut after the first tick
			}
		}
	}))
	defer proxy.Close()
	c := newTerminal(t, server.url, server.mint(t, "acme", "tenant:admin"))
	c.must("schedule", "put", "pulse", "--every", "1s", "--overlap", "allow_all")
	c.env["CARILLON_URL"] = proxy.URL
	ids := strings.Fields(c.must("tick", "tail", "--count", "4", "-o", "ndjson", "--jq", ".tick_id + .kind"))
	if len(ids) != 4 {
		t.Fatalf("got %q", ids)
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			t.Errorf("%s is shown twice", id)
		}
		seen[id] = true
	}
	if first, second := <-resumed, <-resumed; first != "" || second == "" {
		t.Errorf("got the ids %q and %q", first, second)
	}
}
