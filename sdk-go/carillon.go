// Package carillon is the client of Carillon: it stores schedules and runs their ticks.
//
// A [Client] has one field for each kind of thing, such as [Client.Schedules], with its calls as methods. A [Worker] leases ticks and
// passes them to functions that are typed by their payload. A [Webhook] does the same for ticks that Carillon pushes. A tick is delivered
// at least once, always with the same [Tick.TickID]: a handler that must not act twice remembers that id.
//
// Every call takes a context and ends with it. The client retries a call that is safe to repeat, a few times, with full
// jitter and no sooner than the server's Retry-After says. A call that the server refuses returns an [*Error]; compare
// it by errors.Is with [ErrNotFound] and the other sentinels.
//
// Package carillontest provides an in-memory server for tests.
package carillon

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Config holds the address of the API and the caller's credential. The zero Config takes both from the environment.
type Config struct {
	// URL of the API, such as "https://carillon.example.com". A path in it is kept. Empty: the environment's CARILLON_URL.
	URL string

	// APIKey is sent unchanged with every request. If it, Token and TokenSource are all absent, the client sends the
	// environment's CARILLON_API_KEY.
	APIKey string

	// Token is sent as a bearer token. TokenSource replaces it: the client calls it for the first token, again before that expires, and when
	// the server refuses it; once for all callers.
	Token       string
	TokenSource func(context.Context) (AccessToken, error)

	// HTTPClient sends the requests; nil is one that keeps enough connections open for a busy [Worker], speaks
	// HTTP/1.1 and follows no redirect. A Timeout of its own would cut long polls: leave it zero.
	HTTPClient *http.Client

	// Propagator sends the trace of a call's context with the request, and continues the trace of a tick in the context of its handler. Nil:
	// requests that a handler makes with its context continue the trace of its tick.
	Propagator Propagator

	// UserAgent precedes the SDK's own in the header.
	UserAgent string

	// Timeout bounds one attempt at a call, long polls aside; zero is 30 s.
	Timeout time.Duration

	// Retries is how often a call is tried again after the first time; zero is 4, negative is never.
	Retries int
}

// Client calls the API: each field has the calls of one kind of thing. It is safe for use by several goroutines; one is enough for a program.
type Client struct {
	Schedules  Schedules
	Workflows  Workflows
	Endpoints  Endpoints
	Ticks      Ticks
	Subjects   Subjects
	Calendars  Calendars
	Operations Operations
	Zones      Zones
	Admin      Admin
	Platform   Platform

	base       string
	credential credential
	http       *http.Client
	userAgent  string
	propagator Propagator
	timeout    time.Duration
	retries    int
}

const userAgent = "carillon-go/0.1"

// New returns a client. It sends no request; an error means that the config is wrong.
func New(c Config) (*Client, error) {
	c.URL = cmp.Or(c.URL, os.Getenv("CARILLON_URL"))
	if c.Token == "" && c.TokenSource == nil {
		c.APIKey = cmp.Or(c.APIKey, os.Getenv("CARILLON_API_KEY"))
	} else if c.APIKey != "" {
		return nil, fmt.Errorf("carillon: Config has an APIKey beside Token or TokenSource")
	}
	if c.URL == "" {
		return nil, fmt.Errorf("carillon: no address: set Config.URL or the environment's CARILLON_URL")
	}
	base, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("carillon: Config.URL: %w", err)
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("carillon: Config.URL: %q is not an http or https address", base.Redacted())
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("carillon: Config.URL: %q has more than a host and a path", base.Redacted())
	}
	if c.Token != "" && c.TokenSource != nil {
		return nil, fmt.Errorf("carillon: Config has both Token and TokenSource")
	}
	client := &Client{
		base:       strings.TrimRight(base.String(), "/"),
		credential: credential{source: c.TokenSource, current: AccessToken{Token: cmp.Or(c.APIKey, c.Token)}},
		http:       c.HTTPClient,
		userAgent:  strings.TrimSpace(c.UserAgent + " " + userAgent),
		propagator: c.Propagator,
		timeout:    c.Timeout,
		retries:    c.Retries,
	}
	if client.http == nil {
		client.http = defaultHTTPClient()
	}
	if client.timeout <= 0 {
		client.timeout = 30 * time.Second
	}
	if client.retries == 0 {
		client.retries = 4
	}
	client.Schedules = Schedules{client}
	client.Workflows = Workflows{client}
	client.Endpoints = Endpoints{client}
	client.Ticks = Ticks{client}
	client.Subjects = Subjects{client}
	client.Calendars = Calendars{client}
	client.Operations = Operations{client}
	client.Zones = Zones{client}
	client.Admin = Admin{client}
	client.Platform = Platform{client}
	return client, nil
}

// Close closes idle connections. The client can still be used.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
}

// defaultHTTPClient keeps more idle connections than net/http, which keeps two per host: with two, a busy worker would
// dial for most of its requests.
func defaultHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConns:        256,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     90 * time.Second,
			Protocols:           protocols,
		},
		// A redirected PUT would arrive as a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
