package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// EndpointParams is what an endpoint is to be. To change endpoints, a token needs the scope endpoints:write.
type EndpointParams struct {
	URL     string            `json:"url"`
	Batch   int               `json:"batch,omitempty"`   // ticks a request may hold, 1 to 500; zero is 1
	Headers map[string]string `json:"headers,omitempty"` // sent with each tick; "…" keeps the stored value
	Events  []string          `json:"events,omitempty"`  // sent there too, signed like ticks; such as "tick.failed"
	State   string            `json:"state,omitempty"`   // "enabled", "held" or "disabled"; empty: as it is, and enabled if it is new

	IfMatch time.Time `json:"-"` // if not zero, the UpdatedAt that must be the stored one
}

// Endpoint is a stored endpoint: where the ticks of workflows are pushed.
type Endpoint struct {
	Name      string            `json:"name"`
	URL       string            `json:"url"`
	Batch     int               `json:"batch"`
	Headers   map[string]string `json:"headers"` // their names; the values are "…"
	Events    []string          `json:"events"`
	State     string            `json:"state"`
	Secret    string            `json:"secret,omitempty"` // for WebhookConfig; only PutEndpoint that made it and RotateSecret have it, keep it
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// PutEndpoint makes an endpoint what p says, whether or not there was one. The answer to its making alone bears its
// Secret, so this call is not tried again when an answer was lost.
func (c *Client) PutEndpoint(ctx context.Context, name string, p EndpointParams) (Endpoint, error) {
	body, err := encode(p)
	if err != nil {
		return Endpoint{}, err
	}
	return read[Endpoint](ctx, c, &call{method: http.MethodPut, path: path("endpoints", name), body: body, header: ifUnchanged(p.IfMatch), once: true})
}

// Endpoint reads an endpoint.
func (c *Client) Endpoint(ctx context.Context, name string) (Endpoint, error) {
	return read[Endpoint](ctx, c, &call{method: http.MethodGet, path: path("endpoints", name)})
}

// Endpoints walks the endpoints. An error comes once and ends the loop.
func (c *Client) Endpoints(ctx context.Context) iter.Seq2[Endpoint, error] {
	return pages[Endpoint](ctx, c, path("endpoints"), url.Values{})
}

// RotateParams are how a secret is rotated.
type RotateParams struct {
	Force bool // also within an hour of the last rotation
}

// RotateSecret gives an endpoint another secret, which is in the answer. Until the next rotation ticks are signed by it and
// by the one before, so that WebhookConfig may have either or both. This call is not tried again when an answer was lost: it
// would throw out the secret that is in use. Within an hour of the last rotation it is refused with ErrConflict, unless p has
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

// EndpointTrial is what came of a test tick.
type EndpointTrial struct {
	WebhookID string  `json:"webhook_id"`
	Status    *int    `json:"status"` // of the endpoint's answer; nil where none came
	TookMS    int64   `json:"took_ms"`
	Error     *string `json:"error"` // why a tick would have failed; nil where it would have succeeded
}

// TestEndpoint has one signed test tick be sent to an endpoint in any state, and tells within some 15 s what came of it. A
// [WebhookHandler] answers it without running its function.
func (c *Client) TestEndpoint(ctx context.Context, name string) (EndpointTrial, error) {
	return read[EndpointTrial](ctx, c, &call{method: http.MethodPost, path: path("endpoints", name, "test"), timeout: trialWait, once: true})
}

const trialWait = 30 * time.Second

// DeleteEndpoint deletes an endpoint. One that a workflow names is ErrConflict.
func (c *Client) DeleteEndpoint(ctx context.Context, name string, p ...RemoveParams) error {
	return c.remove(ctx, removal(path("endpoints", name), p))
}

// RemoveParams say which state of an endpoint or a workflow is deleted.
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
