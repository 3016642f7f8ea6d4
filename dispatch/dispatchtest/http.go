package dispatchtest

import (
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const ExplainPath = "/v1/workflows/w/schedules/k/explain"

// Site is a Carillon that serves HTTP on loopback. Each answer is checked against the OpenAPI document.
type Site struct {
	*Carillon
	URL    string
	Client *http.Client
	minter tenants.Minter
}

// Open serves the routes of a process, and more routes, until the test ends.
func (h *Carillon) Open(d *Process, more ...func(g *echo.Group)) *Site {
	h.T.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		h.T.Fatal(err)
	}
	s := &Site{Carillon: h, minter: tenants.NewIssuer(private, "test")}
	if _, err := tenants.Ensure(h.T.Context(), h.Pool, "rival", tenants.Wide()); err != nil {
		h.T.Fatal(err)
	}
	verifier := tenants.NewVerifier(tenants.VerifierOptions{
		Issuer: "test", Keys: []tenants.Key{s.minter.Key()}, Tenants: tenants.NewDirectory(h.Pool),
	})
	router := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	group := router.Group("", tenants.Authenticate(verifier))
	dispatch.Routes(group, d.Dispatch)
	for _, add := range more {
		add(group)
	}
	server := httptest.NewServer(router)
	base := http.DefaultTransport.(*http.Transport).Clone()
	h.T.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	s.URL, s.Client = server.URL, &http.Client{Transport: apitest.Transport(h.T, base)}
	return s
}

// Caller makes requests with one token.
type Caller struct {
	*Site
	Token string
}

func (s *Site) As(tenant string, scopes ...string) Caller {
	s.T.Helper()
	token, err := s.minter.Mint(tenants.Claims{Subject: "ann", Tenant: tenant, Scopes: scopes, TTL: time.Hour}, time.Now())
	if err != nil {
		s.T.Fatal(err)
	}
	return Caller{s, token}
}

// Limited is a caller who may use some workflows only.
func (s *Site) Limited(workflows []string, scopes ...string) Caller {
	s.T.Helper()
	token, err := s.minter.Mint(tenants.Claims{Subject: "lim", Tenant: "acme", Scopes: scopes, Workflows: workflows, TTL: time.Hour}, time.Now())
	if err != nil {
		s.T.Fatal(err)
	}
	return Caller{s, token}
}

func (s *Site) Operator() Caller { return s.As("acme", tenants.TenantAdmin) }

// Answer is the answer to a request. Code and Errors are set if the request was refused.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Code   string
	Errors []struct{ Pointer, Code string }
}

// Do sends a request; headers are names and values in turn.
func (c Caller) Do(method, path, body string, headers ...string) Answer {
	c.T.Helper()
	req, err := http.NewRequestWithContext(c.T.Context(), method, c.URL+path, strings.NewReader(body))
	if err != nil {
		c.T.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Client.Do(req)
	if err != nil {
		c.T.Fatal(err)
	}
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode, Header: resp.Header}
	if a.Body, err = io.ReadAll(resp.Body); err != nil {
		c.T.Fatal(err)
	}
	if a.Status >= 400 {
		if err := json.Unmarshal(a.Body, &a); err != nil {
			c.T.Fatalf("%v in %s", err, a.Body)
		}
	}
	return a
}

// Get reads the answer to a request that must be answered with that status.
func Get[T any](c Caller, status int, method, path, body string, headers ...string) (v T) {
	c.T.Helper()
	a := c.Do(method, path, body, headers...)
	if a.Status != status {
		c.T.Fatalf("%s %s %s: got %d %s, want %d", method, path, body, a.Status, a.Body, status)
	}
	if err := json.Unmarshal(a.Body, &v); err != nil {
		c.T.Fatalf("%v in %s", err, a.Body)
	}
	return v
}

// Refused checks that a request is refused with that status and code, and that the errors name these fields.
func (c Caller) Refused(status int, code, pointers string, method, path, body string, headers ...string) {
	c.T.Helper()
	a := c.Do(method, path, body, headers...)
	var named []string
	for _, e := range a.Errors {
		named = append(named, e.Pointer)
	}
	if a.Status != status || a.Code != code || strings.Join(named, " ") != pointers {
		c.T.Errorf("%s %s %s: got %d %s %q, want %d %s %q: %s", method, path, body, a.Status, a.Code, named, status, code, pointers, a.Body)
	}
}

// Rarely is a schedule that does not fire by itself during a test.
func Rarely(overlap string) schedules.Params {
	return schedules.Params{
		Spec: calendar.Spec{Cron: []string{"0 0 1 1 *"}}, Policy: &policy.Policy{Overlap: overlap}, Payload: web.Raw(`{"of": "schedule"}`),
	}
}

type Page struct {
	Items      []history.Tick `json:"items"`
	NextCursor *string        `json:"next_cursor"`
}

const (
	Trigger = "/v1/workflows/w/schedules/k/trigger"
)

// LeaseAll leases that many ticks of workflow w.
func (c Caller) LeaseAll(n int) (all []Handed) {
	c.T.Helper()
	for len(all) < n {
		got := Get[struct{ Ticks []Handed }](c, 200, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "max": 1000, "wait": "1m"}`).Ticks
		if len(got) == 0 {
			c.T.Fatalf("got %d ticks, want %d", len(all), n)
		}
		all = append(all, got...)
	}
	return all
}

// Fired triggers and leases n ticks.
func (c Caller) Fired(n int) []Handed {
	c.T.Helper()
	c.Put("w", "k", Rarely("allow_all"))
	for range n {
		Get[history.Tick](c, 202, "POST", Trigger, "")
	}
	return c.LeaseAll(n)
}

// Anyone makes requests without a token.
func (s *Site) Anyone() Caller { return Caller{Site: s} }
