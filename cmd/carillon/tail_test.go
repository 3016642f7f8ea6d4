package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/events"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web/webtest"
	"github.com/carillonhq/carillon/tenants"
)

// tail is what a client has read of a live tail.
type tail struct {
	leave func()        // closes the connection
	over  chan struct{} // closed at the end of the stream

	mu      sync.Mutex
	lines   []history.TailTick
	sums    history.TailSecond
	seconds int
	gaps    int
	last    string // id
	err     error  // at the end of the stream: nil if the server ended it as a whole
}

// openTail opens a live tail, and reads it until the test ends.
func openTail(t *testing.T, url, token, query, last string) *tail {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/ticks/tail"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		t.Fatalf("got %d", resp.StatusCode)
	}
	f := &tail{over: make(chan struct{})}
	f.leave = func() { cancel(); <-f.over }
	t.Cleanup(f.leave)
	go func() {
		defer close(f.over)
		defer resp.Body.Close()
		f.read(resp.Body)
	}()
	return f
}

// read reads events until the stream ends.
func (f *tail) read(body io.Reader) {
	for e, err := range events.Read(body) {
		f.mu.Lock()
		if err != nil {
			f.err = err
		} else {
			f.err = f.take(e)
		}
		f.mu.Unlock()
	}
}

func (f *tail) take(e events.Event) error {
	f.last = e.ID
	switch e.Name {
	case "tick":
		f.lines = append(f.lines, history.TailTick{})
		return json.Unmarshal([]byte(e.Data), &f.lines[len(f.lines)-1])
	case "second":
		var s history.TailSecond
		f.seconds++
		err := json.Unmarshal([]byte(e.Data), &s)
		f.sums.Fired, f.sums.Ended, f.sums.Unshown = f.sums.Fired+s.Fired, f.sums.Ended+s.Ended, f.sums.Unshown+s.Unshown
		return err
	case "gap":
		f.gaps++
		return nil
	}
	return fmt.Errorf("there is an event %q", e.Name)
}

// until waits until a condition of the tail holds.
func (f *tail) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		f.mu.Lock()
		held := holds()
		f.mu.Unlock()
		if held {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// hasOne reports whether one of these ticks has a line. The caller holds the lock.
func (f *tail) hasOne(ids ...string) bool {
	return slices.ContainsFunc(f.lines, func(line history.TailTick) bool { return slices.Contains(ids, line.TickID) })
}

// endsWithin waits for the end of the stream, which the server must have ended as a whole.
func (f *tail) endsWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	select {
	case <-f.over:
		if f.err != nil {
			t.Errorf("the stream ended with %v", f.err)
		}
	case <-time.After(limit):
		t.Fatalf("the stream goes on after %v", limit)
	}
}

// A process that stops ends its tails at once. The client goes on at another process, and gets what fired meanwhile.
func TestATailGoesOnAtAnotherProcess(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"DATABASE_URL": postgrestest.URL(t), "CARILLON_CLEAR_SECRETS": "true", "CARILLON_CONNECTIONS": "12",
		"CARILLON_ISSUER_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
	}
	const drain = 10 * time.Second // in this time a tick is triggered and shown
	first, other := serveOn(t, environment, "--drain", drain.String()), serveOn(t, environment)
	token := func(flags ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"token"}, flags...), func(name string) string { return environment[name] }, &out, io.Discard); code != exitDone {
			t.Fatalf("token ended with %d", code)
		}
		return strings.TrimSpace(out.String())
	}
	if status, body := call(t, http.MethodPut, "http://"+other.Listen+"/v1/platform/tenants/acme", token("--scope", "platform:admin"), `{"name": "acme"}`); status != http.StatusCreated {
		t.Fatalf("got %d: %s", status, body)
	}
	acme := token("--tenant", "acme")
	const path = "/v1/workflows/w/schedules/k"
	if status, body := call(t, http.MethodPut, "http://"+other.Listen+path, acme, `{"spec": {"cron": "0 0 1 1 *"}, "policy": {"overlap": "allow_all"}}`); status != http.StatusCreated {
		t.Fatalf("got %d: %s", status, body)
	}
	trigger := func() (id string) {
		t.Helper()
		status, body := call(t, http.MethodPost, "http://"+other.Listen+path+"/trigger", acme, `{}`)
		var tick history.TailTick
		if err := json.Unmarshal([]byte(body), &tick); status != http.StatusAccepted || err != nil {
			t.Fatalf("got %d: %s", status, body)
		}
		return tick.TickID
	}
	shows := func(f *tail, id string) {
		t.Helper()
		f.until(t, "the tick is shown", func() bool { return f.hasOne(id) })
	}
	f := openTail(t, "http://"+first.Listen, acme, "", "")
	ids, last := []string{}, time.Time{}
	f.until(t, "a tick is shown", func() bool { // the process that fires it may learn of the tail after the tail's client got its first bytes
		if time.Since(last) > time.Second {
			ids, last = append(ids, trigger()), time.Now()
		}
		return f.hasOne(ids...)
	})
	stopped := time.Now()
	first.stop()
	shows(f, trigger()) // while it drains
	f.endsWithin(t, drain+4*time.Second)
	if took := time.Since(stopped); took < drain {
		t.Errorf("the tail ended after %v, before the process had drained", took)
	}
	missed := trigger()
	again := openTail(t, "http://"+other.Listen, acme, "", f.last)
	shows(again, missed)
	shows(again, trigger())
	if again.gaps != 0 {
		t.Errorf("%d gaps", again.gaps)
	}
}

// Tails count as concurrent polls. One more than the quota allows is refused until another one ends.
func TestTailsAreConcurrentPolls(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	s.expect(t, client, s.mint(t, "", tenants.PlatformAdmin), "PUT", "/v1/platform/tenants/small", `{"quotas": {"concurrent_polls": 4}}`, 201, "")
	token := s.mint(t, "small", tenants.SchedulesRead, tenants.TicksWork)
	var all []*tail
	for range 4 {
		all = append(all, openTail(t, s.url, token, "", ""))
	}
	refused := func(method, path, body string) {
		t.Helper()
		doc := s.expect(t, client, token, method, path, body, 429, "rate_limited")
		if doc["quota"] != "concurrent_polls" || doc["limit"] != 4.0 {
			t.Errorf("%s %s: got %v", method, path, doc)
		}
	}
	refused("GET", "/v1/ticks/tail", "")
	refused("POST", "/v1/ticks/lease", `{"workflows": ["w"], "worker": "a"}`)
	s.expect(t, client, token, "GET", "/v1/workflows", "", 200, "") // other requests go on
	all[0].leave()
	for deadline := time.Now().Add(inTime); ; <-time.After(300 * time.Millisecond) { // four polls a second are allowed
		got, _ := s.send(t, client, token, "POST", "/v1/ticks/lease", "application/json", `{"workflows": ["w"], "worker": "a"}`)
		if got == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %d after a tail has ended", got)
		}
	}
}

// A deleted API key ends its tails within 5 s in every process, and no other tail.
func TestADeletedAPIKeyEndsItsTails(t *testing.T) {
	t.Parallel()
	var o options
	s := serveAs(t, func(p *options) { o = *p })
	o.keys, o.minter, o.databaseURL = []tenants.Key{s.minter.Key()}, &s.minter, s.pool.Config().ConnString()
	other, err := wire(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.close)
	second := httptest.NewServer(other.router)
	t.Cleanup(second.Close)
	client, admin := checked(t), s.mint(t, "acme", tenants.TenantAdmin)
	made := s.expect(t, client, admin, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:read"]}`, 201, "")
	var ending, staying []*tail
	for _, url := range []string{s.url, second.URL} {
		ending = append(ending, openTail(t, url, fmt.Sprint(made["key"]), "", ""))
		staying = append(staying, openTail(t, url, admin, "", ""))
	}
	for _, f := range ending {
		f.until(t, "it is open", func() bool { return f.seconds > 0 })
	}
	s.expect(t, client, admin, "DELETE", "/v1/admin/api-keys/"+fmt.Sprint(made["id"]), "", 204, "")
	deadline := time.Now().Add(inForce)
	for _, f := range ending {
		f.endsWithin(t, time.Until(deadline))
	}
	for _, f := range staying {
		before := f.counted()
		f.until(t, "the other tail goes on", func() bool { return f.seconds > before })
	}
}

// counted returns how many seconds were counted.
func (f *tail) counted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seconds
}

// narrow is a listener whose connections buffer little, so that a client that does not read blocks its handler soon.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// openSlowTail opens a live tail whose body the caller reads, by a connection that buffers little.
func openSlowTail(t *testing.T, address, token string) *tailBody {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		DialContext:    func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		ReadBufferSize: 1 << 10,
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/v1/ticks/tail", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got %d", resp.StatusCode)
	}
	return &tailBody{resp.Body, conn}
}

// slowReader reads at most 5 KB a second while little is true: more slowly than the server sends, and often enough that the server does not
// close the connection.
type slowReader struct {
	io.Reader
	little *atomic.Bool
}

func (r slowReader) Read(p []byte) (int, error) {
	if r.little.Load() {
		<-time.After(100 * time.Millisecond)
		p = p[:min(len(p), 512)]
	}
	return r.Reader.Read(p)
}

type tailBody struct {
	io.ReadCloser
	conn net.Conn
}

// A client that reads slowly, or not at all, delays no other client. The server counts the ticks that it did not show to the slow client. It
// closes the connection of a client that never reads.
func TestASlowReaderOfATail(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	address := webtest.ServeBy(t, s.router, func(l net.Listener) net.Listener { return narrow{l} })
	admin := s.mint(t, "acme", tenants.TenantAdmin)
	var lines strings.Builder
	long := strings.Repeat("x", 200) // so that the buffers of a connection hold the lines of two seconds at most
	for n := range 150 {             // as many lines a second
		fmt.Fprintf(&lines, `{"workflow": "herd", "key": "k%d%s", "spec": {"intervals": [{"every": "1s"}]}}`+"\n", n, long)
	}
	slow, never := openSlowTail(t, address, admin), openSlowTail(t, address, admin)
	late, little := &tail{over: make(chan struct{})}, &atomic.Bool{}
	little.Store(true)
	go func() {
		defer close(late.over)
		late.read(slowReader{slow, little})
	}()
	quick := openTail(t, "http://"+address, admin, "", "")
	if status, answer := s.send(t, client, admin, "POST", "/v1/schedules/bulk?results=errors", "application/x-ndjson", lines.String()); status != 200 || !strings.Contains(string(answer), `"inserted":150`) {
		t.Fatalf("got %d %s", status, answer)
	}
	quick.until(t, "ticks are shown", func() bool { return len(quick.lines) > 0 })
	begin := quick.counted()
	quick.until(t, "five more seconds are counted", func() bool { return quick.seconds >= begin+5 && len(quick.lines) >= 250 })
	s.expect(t, client, admin, "POST", "/v1/workflows/herd/hold", "", 200, "")

	little.Store(false)
	same := func() bool {
		quick.mu.Lock()
		defer quick.mu.Unlock()
		return late.sums.Fired == quick.sums.Fired && late.sums.Ended == quick.sums.Ended
	}
	late.until(t, "it has caught up", same)
	late.until(t, "all is shown or counted", func() bool { return len(late.lines)+late.sums.Unshown == late.sums.Fired+late.sums.Ended })
	quick.mu.Lock()
	if n, others := len(late.lines), len(quick.lines); n >= others || quick.sums.Fired+quick.sums.Ended < 300 {
		t.Errorf("the slow client got %d lines and the other one %d, of %+v: it was not slow", n, others, quick.sums)
	}
	quick.mu.Unlock()
	_ = slow.conn.Close()
	<-late.over
	quick.leave()
	for deadline := time.Now().Add(inTime); ; <-time.After(100 * time.Millisecond) {
		var listening int
		if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN carillon_tail'`).Scan(&listening); err != nil {
			t.Fatal(err)
		}
		if listening == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the client that never reads is not cut")
		}
	}
	_ = never.conn.Close()
}
