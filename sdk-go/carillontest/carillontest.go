// Package carillontest is a Carillon in memory, to test against: schedules, leases and pushes, without a database.
//
// Its clock stands still until [Server.Advance] moves it, and what is due by then has fired when Advance returns; leases
// and long polls alone go by the real clock, or by the fake one of a testing/synctest bubble. It knows five-field cron
// in numbers, aligned and fixed-rate intervals and one-off times, and treats each overlap as allow_all; what else a spec
// may hold it refuses, rather than fire at a wrong time.
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

// Token is the bearer token that a [Server] takes. Any other is 401.
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
	expires   time.Time // no lease ends before
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

// Transport hands requests to the server in the goroutine that makes them.
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

// Now tells the server's time.
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

// serve finds the route. Each segment of the path is decoded by itself, so that a key may hold a slash.
func (s *Server) serve(r *http.Request) (int, any) {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		return refuse(http.StatusUnauthorized, "unauthorized", "the token is not carillontest.Token")
	}
	segments := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/v1/"), "/")
	for i, segment := range segments {
		decoded, err := url.PathUnescape(segment)
		if err != nil {
			return refuse(http.StatusBadRequest, "malformed_path", "the path is not percent-encoded")
		}
		segments[i] = decoded
	}
	if len(segments) >= 4 && segments[0] == "workflows" && segments[2] == "schedules" {
		of, route := name{segments[1], segments[3]}, r.Method+" "+strings.Join(segments[4:], "/")
		if status, refused := unsupported(r, route); refused != nil {
			return status, refused
		}
		switch route {
		case "PUT ":
			return s.put(r, of)
		case "GET ":
			return s.get(r, of)
		case "PATCH ":
			return s.patch(r, of)
		case "DELETE ":
			return s.remove(r, of)
		case "POST pause":
			return s.pause(r, of)
		case "POST resume":
			return s.resume(r, of)
		case "POST trigger":
			return s.trigger(r, of)
		case "GET upcoming":
			return s.upcoming(r, of)
		case "GET ticks":
			return s.history(r, of)
		}
	}
	if status, refused := unsupported(r, ""); refused != nil {
		return status, refused
	}
	if len(segments) == 1 && segments[0] == "schedules" && r.Method == http.MethodGet {
		return s.list(r)
	}
	if len(segments) == 2 && segments[0] == "schedules" && segments[1] == "bulk" && r.Method == http.MethodPost {
		return s.bulk(r)
	}
	if len(segments) == 2 && segments[0] == "schedules" && segments[1] == "preview" && r.Method == http.MethodPost {
		return s.preview(r)
	}
	if len(segments) == 2 && segments[0] == "schedules" && segments[1] == "get" && r.Method == http.MethodPost {
		return s.named(r)
	}
	if len(segments) >= 2 && segments[0] == "ticks" {
		switch r.Method + " " + strings.Join(segments[2:], "/") {
		case "POST ":
			return s.many(r, segments[1])
		case "GET ":
			return s.one(segments[1])
		case "POST heartbeat":
			return s.heartbeat(r, segments[1])
		case "POST complete":
			return s.complete(r, segments[1])
		case "POST fail":
			return s.fail(r, segments[1])
		}
	}
	return refuse(http.StatusNotFound, "not_found", "carillontest has no such route")
}

// problem is RFC 9457's document.
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

// body reads a request's JSON into into; an unknown field is refused. An empty body is like {}.
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
