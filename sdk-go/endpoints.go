package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Endpoints are the URLs to which the tenant's ticks are pushed.
type Endpoints struct{ c *Client }

// EndpointParams define an endpoint. A change of an endpoint needs a token with the scope endpoints:write.
type EndpointParams struct {
	URL     string            `json:"url"`
	Batch   int               `json:"batch,omitempty"`   // most ticks in a request, 1 to 500; zero is 1
	Headers map[string]string `json:"headers,omitempty"` // sent with each tick; "…" keeps the stored value
	Rate    *Rate             `json:"rate,omitempty"`    // how many ticks a second are sent to it; nil is no limit
	Events  []string          `json:"events,omitempty"`  // event types that are sent there too, signed like ticks, such as "tick.failed"
	State   string            `json:"state,omitempty"`   // "enabled", "held" or "disabled"; empty: unchanged, or enabled if it is new

	IfMatch time.Time `json:"-"` // if not zero, the UpdatedAt that must be the stored one
}

// Endpoint is a stored endpoint: a URL to which Carillon pushes the ticks of workflows.
type Endpoint struct {
	Name      string            `json:"name"`
	URL       string            `json:"url"`
	Batch     int               `json:"batch"`
	Headers   map[string]string `json:"headers"`        // names of the headers; every value is "…"
	Rate      *Rate             `json:"rate,omitempty"` // nil: no limit
	Events    []string          `json:"events"`
	State     string            `json:"state"`
	Secret    string            `json:"secret,omitempty"` // for WebhookConfig; only the Put that creates it and RotateSecret return it: store it
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// Put creates or replaces an endpoint. Only the answer that creates it has its Secret, so Put does not
// retry when an answer is lost.
func (e Endpoints) Put(ctx context.Context, name string, p EndpointParams) (Endpoint, error) {
	return send[Endpoint](ctx, e.c, &call{method: http.MethodPut, path: path("endpoints", name), header: ifUnchanged(p.IfMatch), once: true}, p)
}

// Patch changes parts of an existing endpoint. Its secrets stay.
func (e Endpoints) Patch(ctx context.Context, name string, p MergePatch) (Endpoint, error) {
	return patch[Endpoint](ctx, e.c, path("endpoints", name), p.Merge, ifUnchanged(p.IfMatch))
}

// Get returns an endpoint.
func (e Endpoints) Get(ctx context.Context, name string) (Endpoint, error) {
	return get[Endpoint](ctx, e.c, path("endpoints", name), nil)
}

// List iterates over the endpoints. An error comes once and ends the loop.
func (e Endpoints) List(ctx context.Context) iter.Seq2[Endpoint, error] {
	return pages[Endpoint](ctx, e.c, path("endpoints"), url.Values{})
}

// RotateParams are the options of RotateSecret.
type RotateParams struct {
	Force bool // also within an hour of the last rotation
}

// RotateSecret creates a new secret for an endpoint and returns it. Until the next rotation Carillon signs ticks with it and
// with the previous one, so WebhookConfig may hold either or both. RotateSecret does not retry when an answer is lost: a
// second rotation would end the secret in use. Within an hour of the last rotation it returns ErrConflict, unless p sets
// Force.
func (e Endpoints) RotateSecret(ctx context.Context, name string, p ...RotateParams) (Endpoint, error) {
	query := url.Values{}
	for _, one := range p {
		if one.Force {
			query.Set("force", "true")
		}
	}
	return read[Endpoint](ctx, e.c, &call{method: http.MethodPost, path: path("endpoints", name, "secrets"), query: query, once: true})
}

// EndpointTrial is the result of a test tick.
type EndpointTrial struct {
	WebhookID string  `json:"webhook_id"`
	Status    *int    `json:"status"` // HTTP status of the endpoint's answer; nil without an answer
	TookMS    int64   `json:"took_ms"`
	Error     *string `json:"error"` // why a tick would have failed; nil where it would have succeeded
}

// Test sends one signed test tick to an endpoint in any state and returns the result within about 15 s. A
// [Webhook] answers it without a call of a function.
func (e Endpoints) Test(ctx context.Context, name string) (EndpointTrial, error) {
	return read[EndpointTrial](ctx, e.c, &call{method: http.MethodPost, path: path("endpoints", name, "test"), timeout: trialWait, once: true})
}

const trialWait = 30 * time.Second

// Delete deletes an endpoint. It returns ErrConflict if a workflow names the endpoint.
func (e Endpoints) Delete(ctx context.Context, name string, p ...RemoveParams) error {
	return e.c.remove(ctx, removal(path("endpoints", name), p))
}

// RemoveParams are the conditions of the deletion of an endpoint, a workflow, a calendar or a tenant.
type RemoveParams struct {
	IfMatch time.Time // if not zero, the UpdatedAt that must be the stored one
}

func removal(path string, p []RemoveParams) *call {
	r := &call{method: http.MethodDelete, path: path}
	for _, one := range p {
		r.header = ifUnchanged(one.IfMatch)
	}
	return r
}

// EndpointHealth is how an endpoint has answered lately, over all processes of the server.
type EndpointHealth struct {
	State     string            `json:"state"`                // as in Endpoint
	Breaker   string            `json:"breaker"`              // "closed"; "open": ticks wait, since requests failed; "half_open": the next request decides
	OpenUntil *time.Time        `json:"open_until,omitempty"` // nil unless the breaker is open
	Queued    int64             `json:"queued"`               // ticks that wait for a request
	InFlight  int64             `json:"in_flight"`            // requests
	Minutes   []HealthMinute    `json:"minutes"`              // of the last quarter of an hour with requests, earliest first
	Last      []AnsweredRequest `json:"last"`                 // up to 20, newest first
}

// HealthMinute counts the requests of one minute. The times are upper bounds.
type HealthMinute struct {
	At        time.Time `json:"at"`
	Succeeded int64     `json:"succeeded"`
	Failed    int64     `json:"failed"`
	P50MS     int64     `json:"p50_ms"`
	P99MS     int64     `json:"p99_ms"`
}

// AnsweredRequest is one request to an endpoint.
type AnsweredRequest struct {
	At     time.Time `json:"at"`
	TickID string    `json:"tick_id"` // the tick, or the first tick of the batch
	Status *int      `json:"status"`  // of HTTP; nil without an answer
	TookMS int64     `json:"took_ms"`
	Error  string    `json:"error,omitempty"`
}

// Health returns how an endpoint has answered lately. It needs the scope tenant:read.
func (e Endpoints) Health(ctx context.Context, name string) (EndpointHealth, error) {
	return get[EndpointHealth](ctx, e.c, path("endpoints", name, "health"), nil)
}
