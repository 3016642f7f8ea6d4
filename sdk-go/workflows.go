package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// WorkflowParams define a workflow. The first schedule of an unknown workflow registers it, pulled by workers.
type WorkflowParams struct {
	Endpoint   string   `json:"endpoint,omitempty"`    // the endpoint that its ticks are pushed to; empty: pulled by workers
	Version    string   `json:"version,omitempty"`     // handed to workers as WorkflowVersion
	MaxRunning int      `json:"max_running,omitempty"` // how many of its ticks may run at once; zero is no limit
	State      string   `json:"state,omitempty"`       // "active" or "held"; empty: unchanged
	Defaults   Defaults `json:"defaults,omitzero"`

	FallbackTimezone string `json:"fallback_timezone,omitempty"` // the IANA zone of subjects without a profile; empty: that of the tenant

	IfMatch time.Time `json:"-"` // if not zero, the UpdatedAt that must be the stored one
}

// Defaults are what the schedules of a workflow inherit.
type Defaults struct {
	Policy   Policy   `json:"policy,omitzero"`
	Delivery Delivery `json:"delivery,omitzero"`
}

// Workflow is a stored workflow.
type Workflow struct {
	Name       string    `json:"name"`
	Endpoint   string    `json:"endpoint"`
	Version    string    `json:"version"`
	MaxRunning int       `json:"max_running"`
	State      string    `json:"state"` // "active" or "held": nothing is handed out
	Defaults   Defaults  `json:"defaults"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`

	FallbackTimezone string `json:"fallback_timezone"`
}

// PutWorkflow creates or replaces a workflow.
func (c *Client) PutWorkflow(ctx context.Context, workflow string, p WorkflowParams) (Workflow, error) {
	body, err := encode(p)
	if err != nil {
		return Workflow{}, err
	}
	return read[Workflow](ctx, c, &call{method: http.MethodPut, path: path("workflows", workflow), body: body, header: ifUnchanged(p.IfMatch)})
}

// Workflow returns a workflow.
func (c *Client) Workflow(ctx context.Context, workflow string) (Workflow, error) {
	return read[Workflow](ctx, c, &call{method: http.MethodGet, path: path("workflows", workflow)})
}

// Workflows iterates over the workflows. An error comes once and ends the loop.
func (c *Client) Workflows(ctx context.Context) iter.Seq2[Workflow, error] {
	return pages[Workflow](ctx, c, path("workflows"), url.Values{})
}

// DeleteWorkflow deletes a workflow. The server skips the ticks of its schedules until the workflow exists again.
func (c *Client) DeleteWorkflow(ctx context.Context, workflow string, p ...RemoveParams) error {
	return c.remove(ctx, removal(path("workflows", workflow), p))
}

// HoldWorkflow stops a workflow: no tick of it is handed out until ReleaseWorkflow. Its ticks wait, running ticks and retries go on, and no
// schedule changes. It needs the scope tenant:admin.
func (c *Client) HoldWorkflow(ctx context.Context, workflow string) (Workflow, error) {
	return read[Workflow](ctx, c, &call{method: http.MethodPost, path: path("workflows", workflow, "hold")})
}

// ReleaseWorkflow ends a hold. What waited is handed out by the policies of the schedules. It needs the scope tenant:admin.
func (c *Client) ReleaseWorkflow(ctx context.Context, workflow string) (Workflow, error) {
	return read[Workflow](ctx, c, &call{method: http.MethodPost, path: path("workflows", workflow, "release")})
}
