package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// EndpointParams define an endpoint. A change of an endpoint needs a token with the scope endpoints:write.
type EndpointParams struct {
	URL     string            `json:"url"`
	Batch   int               `json:"batch,omitempty"`   // most ticks in a request, 1 to 500; zero is 1
	Headers map[string]string `json:"headers,omitempty"` // sent with each tick; "…" keeps the stored value
	Events  []string          `json:"events,omitempty"`  // event types that are sent there too, signed like ticks, such as "tick.failed"
	State   string            `json:"state,omitempty"`   // "enabled", "held" or "disabled"; empty: unchanged, or enabled if it is new

	IfMatch time.Time `json:"-"` // if not zero, the UpdatedAt that must be the stored one
}

// Endpoint is a stored endpoint: a URL to which Carillon pushes the ticks of workflows.
type Endpoint struct {
	Name      string            `json:"name"`
	URL       string            `json:"url"`
	Batch     int               `json:"batch"`
	Headers   map[string]string `json:"headers"` // names of the headers; every value is "…"
	Events    []string          `json:"events"`
	State     string            `json:"state"`
	Secret    string            `json:"secret,omitempty"` // for WebhookConfig; only the PutEndpoint that creates it and RotateSecret return it: store it
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// PutEndpoint creates or replaces an endpoint. Only the answer that creates it has its Secret, so PutEndpoint does not
// retry when an answer is lost.
func (c *Client) PutEndpoint(ctx context.Context, name string, p EndpointParams) (Endpoint, error) {
	body, err := encode(p)
	if err != nil {
		return Endpoint{}, err
	}
	return read[Endpoint](ctx, c, &call{method: http.MethodPut, path: path("endpoints", name), body: body, header: ifUnchanged(p.IfMatch), once: true})
}

// Endpoint returns an endpoint.
func (c *Client) Endpoint(ctx context.Context, name string) (Endpoint, error) {
	return read[Endpoint](ctx, c, &call{method: http.MethodGet, path: path("endpoints", name)})
}

// Endpoints iterates over the endpoints. An error comes once and ends the loop.
func (c *Client) Endpoints(ctx context.Context) iter.Seq2[Endpoint, error] {
	return pages[Endpoint](ctx, c, path("endpoints"), url.Values{})
}

// RotateParams are the options of RotateSecret.
type RotateParams struct {
	Force bool // also within an hour of the last rotation
}

// RotateSecret creates a new secret for an endpoint and returns it. Until the next rotation Carillon signs ticks with it and
// with the previous one, so WebhookConfig may hold either or both. RotateSecret does not retry when an answer is lost: a
// second rotation would end the secret in use. Within an hour of the last rotation it returns ErrConflict, unless p sets
// Force.
func (c *Client) RotateSecret(ctx context.Context, name string, p ...RotateParams) (Endpoint, error) {
	query := url.Values{}
	for _, one := range p {
		if one.Force {
			query.Set("force", "true")
		}
	}
	return read[Endpoint](ctx, c, &call{method: http.MethodPost, path: path("endpoints", name, "secrets"), query: query, once: true})
}

// EndpointTrial is the result of a test tick.
type EndpointTrial struct {
	WebhookID string  `json:"webhook_id"`
	Status    *int    `json:"status"` // HTTP status of the endpoint's answer; nil without an answer
	TookMS    int64   `json:"took_ms"`
	Error     *string `json:"error"` // why a tick would have failed; nil where it would have succeeded
}

// TestEndpoint sends one signed test tick to an endpoint in any state and returns the result within about 15 s. A
// [WebhookHandler] answers it without a call of its function.
func (c *Client) TestEndpoint(ctx context.Context, name string) (EndpointTrial, error) {
	return read[EndpointTrial](ctx, c, &call{method: http.MethodPost, path: path("endpoints", name, "test"), timeout: trialWait, once: true})
}

const trialWait = 30 * time.Second

// DeleteEndpoint deletes an endpoint. It returns ErrConflict if a workflow names the endpoint.
func (c *Client) DeleteEndpoint(ctx context.Context, name string, p ...RemoveParams) error {
	return c.remove(ctx, removal(path("endpoints", name), p))
}

// RemoveParams are the conditions of the deletion of an endpoint or a workflow.
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
