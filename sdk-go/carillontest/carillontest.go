// Package carillontest is a Carillon in memory for tests, with a clock that the test moves.
//
// Its calendar is the server's own code. It accepts each spec that the server accepts, and computes the same ticks, also on the days on
// which clocks change. A small model of the server's rules decides what becomes of each tick: overlap, missed, lateness, pauses, skips,
// retries. Package servertest/agreement compares the model with the real server. If the package does not support a feature, it refuses the
// request with the code not_in_carillontest and the name of the feature.
//
//	srv := carillontest.Start(t)
//	client := srv.Client()
//	srv.Handle("daily-digest", func(ctx context.Context, tick carillon.Tick[json.RawMessage]) error { … })
//	client.Schedules.Put(ctx, "daily-digest", "user_123", carillon.Params{…})
//	srv.Advance("2026-11-01T12:00:00Z") // every tick that is due by then fires, at its time
//
// Ticks go to the handler of [Server.Handle], to a webhook ([Server.Push]), or to workers, which [Server.Work] runs. Ticks without any of
// them wait for a lease.
//
// Schedules, ticks and retries follow the server's clock, which only the test moves. Leases and long polls use the real clock, or the
// fake one of a testing/synctest bubble. H and jitter depend on the number of the tenant, which is 1 here, as on a new `carillon dev`.
package carillontest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// Token is the bearer token that a [Server] accepts. It answers other tokens with 401.
const Token = "carillontest"

// Server is a Carillon in memory. It is an [http.Handler]; the methods are safe for use by several goroutines.
type Server struct {
	tb     testing.TB // nil: the server was made by New
	moving sync.Mutex // held while the clock moves

	mu        sync.Mutex
	now       time.Time
	made      int // schedules so far; their ids have these numbers
	schedules map[name]*schedule
	order     []*tick // all ticks; the number of a tick is its place, from 1 on
	agenda    agenda
	workflows map[string]*workflow
	subjects  map[string]*subject
	calendars map[string]*days
	fallback  string // the tenant's fallback_timezone
	answers   map[string]*kept

	ready   map[string][]*tick // by workflow, in the order in which they may be leased
	leased  map[*tick]bool
	expires time.Time // no lease ends before this time
	outbox  []*tick   // wait for a handler or a webhook of this process
	targets map[string]target
	takes   map[string]time.Duration
	changed chan struct{} // closed when something changes that a long poll or the clock waits for
	polled  map[poll]bool // what the workers of Work have asked for
	workers int

	listener *httptest.Server
}

type name struct{ workflow, key string }

// New returns a server whose clock stands at midnight UTC of Monday, 2026-01-05. Tests call [Start].
func New() *Server {
	return &Server{
		now:       time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC),
		schedules: map[name]*schedule{},
		workflows: map[string]*workflow{},
		subjects:  map[string]*subject{},
		calendars: map[string]*days{},
		answers:   map[string]*kept{},
		ready:     map[string][]*tick{},
		leased:    map[*tick]bool{},
		targets:   map[string]target{},
		takes:     map[string]time.Duration{},
		changed:   make(chan struct{}),
		polled:    map[poll]bool{},
	}
}

// Start returns a server for a test, which ends with the test. Its clock stands at midnight UTC of Monday, 2026-01-05. Advance it to where
// the test begins before the test stores schedules. A wrong call of its methods fails the test.
func Start(t testing.TB) *Server {
	s := New()
	s.tb = t
	t.Cleanup(s.Close)
	return s
}

// fail reports a wrong call of the test.
func (s *Server) fail(format string, args ...any) {
	text := "carillontest: " + fmt.Sprintf(format, args...)
	if s.tb == nil {
		panic(text)
	}
	s.tb.Helper()
	s.tb.Fatal(text)
}

// Listen serves on a free port of the loopback interface, until Close, and returns the address.
func (s *Server) Listen() (url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		s.listener = httptest.NewServer(s)
	}
	return s.listener.URL
}

// Close stops listening.
func (s *Server) Close() {
	s.mu.Lock()
	listener := s.listener
	s.listener = nil
	s.mu.Unlock()
	if listener != nil {
		listener.Close()
	}
}

// Client returns a client that reaches the server without a network, so that it also works in a synctest bubble.
func (s *Server) Client() *carillon.Client {
	c, err := carillon.New(carillon.Config{
		URL:        "http://carillon.test",
		Token:      Token,
		HTTPClient: &http.Client{Transport: s.Transport()},
	})
	if err != nil {
		panic(err)
	}
	return c
}

// Transport returns a transport that runs the server in the goroutine of the request.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ http.Handler }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	t.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// Now returns the server's time.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// announce tells long polls and the clock that something changed. The caller holds the lock.
func (s *Server) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
