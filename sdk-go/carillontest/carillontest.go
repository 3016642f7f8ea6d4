// Package carillontest is a Carillon in memory for tests: schedules, leases and pushes, without a database.
//
// Its clock moves only by [Server.Advance]. When Advance returns, all ticks that are due by then have fired. Only leases and long polls use the
// real clock, or the fake one of a testing/synctest bubble. The package supports cron with five numeric fields, aligned and fixed-rate
// intervals, and single times. It treats each overlap policy as allow_all, and refuses all other specs.
package carillontest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// Token is the bearer token that a [Server] accepts. It answers other tokens with 401.
const Token = "carillontest"

// Server is a Carillon in memory. It is an [http.Handler]; the methods are safe for use by several goroutines.
type Server struct {
	mu        sync.Mutex
	now       time.Time
	schedules map[name]*schedule
	ticks     map[string]*tick
	retries   []*tick // failed, and due again later
	ready     map[string][]*tick
	leased    map[string]*tick
	expires   time.Time // no lease ends before this time
	pushes    map[string]push
	triggered map[string]*tick // by idempotency key
	changed   chan struct{}    // closed when a tick becomes ready
	made      int

	listener *httptest.Server
}

type name struct{ workflow, key string }

// New returns a server whose clock stands at midnight UTC of Monday, 2026-01-05.
func New() *Server {
	return &Server{
		now:       time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC),
		schedules: map[name]*schedule{},
		ticks:     map[string]*tick{},
		ready:     map[string][]*tick{},
		leased:    map[string]*tick{},
		pushes:    map[string]push{},
		triggered: map[string]*tick{},
		changed:   make(chan struct{}),
	}
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

// ServeHTTP answers as the API does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", "carillontest")
	status, body := s.serve(r)
	if p, ok := body.(problem); ok {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		json.NewEncoder(w).Encode(p)
		return
	}
	if held, ok := body.(carillon.Schedule); ok {
		w.Header().Set("ETag", tag(held.Version))
	}
	if body == nil {
		w.WriteHeader(status)
		return
	}
	var content bytes.Buffer
	e := json.NewEncoder(&content)
	e.SetEscapeHTML(false)
	media, parts := "application/json", []any{body}
	if many, ok := body.(lines); ok {
		media, parts = "application/x-ndjson", many
	}
	for _, part := range parts {
		if err := e.Encode(part); err != nil {
			panic(err) // every answer is JSON
		}
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	w.Write(content.Bytes())
}

// serve authenticates a request and passes it to the route of its path.
func (s *Server) serve(r *http.Request) (int, any) {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		return refuse(http.StatusUnauthorized, "unauthorized", "the token is not carillontest.Token")
	}
	segments, err := decodedPath(r)
	if err != nil {
		return refuse(http.StatusBadRequest, "malformed_path", "the path is not percent-encoded")
	}
	if len(segments) >= 4 && segments[0] == "workflows" && segments[2] == "schedules" {
		route := r.Method + " " + strings.Join(segments[4:], "/")
		if status, refused := unsupported(r, route); refused != nil {
			return status, refused
		}
		if handle := s.scheduleRoute(route); handle != nil {
			return handle(r, name{segments[1], segments[3]})
		}
	}
	if status, refused := unsupported(r, ""); refused != nil {
		return status, refused
	}
	switch {
	case len(segments) == 1 && segments[0] == "schedules" && r.Method == http.MethodGet:
		return s.list(r)
	case len(segments) == 2 && segments[0] == "schedules" && r.Method == http.MethodPost:
		return s.serveSchedules(r, segments[1])
	case len(segments) >= 2 && segments[0] == "ticks":
		return s.serveTick(r, segments[1], strings.Join(segments[2:], "/"))
	}
	return unknownRoute()
}

// decodedPath returns the path's segments below /v1. Each is decoded by itself, so that a key can have a slash.
func decodedPath(r *http.Request) ([]string, error) {
	segments := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/v1/"), "/")
	for i, segment := range segments {
		decoded, err := url.PathUnescape(segment)
		if err != nil {
			return nil, err
		}
		segments[i] = decoded
	}
	return segments, nil
}

// scheduleRoute returns the handler of a route, which is the method and the rest of the path after a schedule's name, or nil.
func (s *Server) scheduleRoute(route string) func(*http.Request, name) (int, any) {
	switch route {
	case "PUT ":
		return s.put
	case "GET ":
		return s.get
	case "PATCH ":
		return s.patch
	case "DELETE ":
		return s.remove
	case "POST pause":
		return s.pause
	case "POST resume":
		return s.resume
	case "POST trigger":
		return s.trigger
	case "GET upcoming":
		return s.upcoming
	case "GET ticks":
		return s.history
	}
	return nil
}

// serveSchedules serves an action on many schedules.
func (s *Server) serveSchedules(r *http.Request, action string) (int, any) {
	switch action {
	case "bulk":
		return s.bulk(r)
	case "preview":
		return s.preview(r)
	case "get":
		return s.named(r)
	}
	return unknownRoute()
}

// serveTick serves the paths below /v1/ticks: an id with an action, or an action on many ticks instead of the id.
func (s *Server) serveTick(r *http.Request, id, action string) (int, any) {
	switch r.Method + " " + action {
	case "POST ":
		return s.many(r, id)
	case "GET ":
		return s.one(id)
	case "POST heartbeat":
		return s.heartbeat(r, id)
	case "POST complete":
		return s.complete(r, id)
	case "POST fail":
		return s.fail(r, id)
	}
	return unknownRoute()
}

func unknownRoute() (int, any) {
	return refuse(http.StatusNotFound, "not_found", "carillontest has no such route")
}

// problem is a problem document (RFC 9457).
type problem struct {
	Type     string           `json:"type"`
	Title    string           `json:"title"`
	Status   int              `json:"status"`
	Detail   string           `json:"detail"`
	Instance string           `json:"instance"`
	Code     string           `json:"code"`
	Errors   []carillon.Field `json:"errors,omitempty"`
}

func refuse(status int, code, detail string, fields ...carillon.Field) (int, any) {
	return status, problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail, Instance: "carillontest", Code: code, Errors: fields,
	}
}

// body decodes a request's JSON into into, and refuses unknown fields. An empty body is like {}.
func body(r *http.Request, into any) (int, any) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if r.ContentLength == 0 {
		return 0, nil
	}
	if err := d.Decode(into); err != nil {
		return refuse(http.StatusBadRequest, "malformed_json", err.Error())
	}
	return 0, nil
}
