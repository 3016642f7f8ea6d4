package schedulestest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/internal/web/webtest"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// Site serves the API of schedules over HTTP, and checks each answer against the OpenAPI document.
type Site struct {
	*Fixture
	Client     *http.Client
	URL        string
	Minter     tenants.Minter
	ClockAhead atomic.Int64 // nanoseconds by which the clock that checks tokens runs ahead
}

// NewSite returns a site on a new fixture.
func NewSite(t *testing.T) *Site {
	t.Helper()
	h := New(t)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &Site{Fixture: h, Minter: tenants.NewIssuer(key, "test")}
	verifier := tenants.NewVerifier(tenants.VerifierOptions{
		Issuer: "test", Keys: []tenants.Key{e.Minter.Key()}, Tenants: tenants.NewDirectory(h.Pool),
		Now: func() time.Time { return time.Now().Add(time.Duration(e.ClockAhead.Load())) },
	})
	router := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	authenticated := router.Group("", tenants.Authenticate(verifier))
	schedules.Routes(authenticated, h.Schedules)
	schedules.ActionRoutes(authenticated, h.Actions)
	bulk.Routes(authenticated, h.InBulk)
	forecast.Routes(authenticated, h.Schedules.Forecasts)
	calendars.Routes(authenticated, h.Calendars)
	subjects.Routes(authenticated, h.Subjects)
	operations.Routes(authenticated, h.Schedules.Operations)
	e.URL = "http://" + webtest.Serve(t, router)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	e.Client = &http.Client{Transport: apitest.Transport(t, base)}
	return e
}

// Token returns a token of a tenant that holds one minute.
func (e *Site) Token(tenant string, scopes ...string) string {
	e.T.Helper()
	token, err := e.Minter.Mint(tenants.Claims{Subject: "ann", Tenant: tenant, Scopes: scopes, TTL: time.Minute}, time.Now())
	if err != nil {
		e.T.Fatal(err)
	}
	return token
}

// Answer is an answer. Doc is its body as JSON.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Doc    map[string]any
}

// Ask sends a request with all scopes of acme. Headers come in pairs. A header with an empty value is not sent.
func (e *Site) Ask(method, path, body string, headers ...string) Answer {
	e.T.Helper()
	r, err := http.NewRequestWithContext(e.T.Context(), method, e.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		e.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.Token("acme", tenants.TenantAdmin))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	resp, err := e.Client.Do(r)
	if err != nil {
		e.T.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		e.T.Fatal(err)
	}
	a := Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(got)}
	if len(got) > 0 {
		d := json.NewDecoder(bytes.NewReader(got))
		d.UseNumber() // payloads have numbers of any size
		if err := d.Decode(&a.Doc); err != nil {
			e.T.Fatalf("%s: %v", got, err)
		}
	}
	return a
}

// Want sends a request. It fails the test unless the answer has the status and, if it is a problem, the code.
func (e *Site) Want(status int, code, method, path, body string, headers ...string) Answer {
	e.T.Helper()
	a := e.Ask(method, path, body, headers...)
	if got, _ := a.Doc["code"].(string); a.Status != status || status >= 400 && got != code {
		e.T.Errorf("%s %s %.200s: got %d %s, want %d %s", method, path, body, a.Status, a.Body, status, code)
	}
	return a
}

// SchedulePath is the path of schedule a of workflow w, and DailyBody a body that puts it.
const (
	SchedulePath = "/v1/workflows/w/schedules/a"
	DailyBody    = `{"spec":{"cron":"0 12 * * *"}}`
)
