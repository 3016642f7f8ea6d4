package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Workflows are the workflows of the tenant.
type Workflows struct{ c *Client }

// WorkflowParams define a workflow. The first schedule of an unknown workflow registers it, pulled by workers.
type WorkflowParams struct {
	Endpoint   string   `json:"endpoint,omitempty"`    // the endpoint that its ticks are pushed to; empty: pulled by workers
	Version    string   `json:"version,omitempty"`     // handed to workers as WorkflowVersion
	MaxRunning int      `json:"max_running,omitempty"` // how many of its ticks may run at once; zero is no limit
	Rate       *Rate    `json:"rate,omitempty"`        // how many of its ticks are handed out a second; nil is no limit
	Expect     *Expect  `json:"expect,omitempty"`      // what is expected of its ticks; nil: nothing
	State      string   `json:"state,omitempty"`       // "active" or "held"; empty: unchanged
	Defaults   Defaults `json:"defaults,omitzero"`

	FallbackTimezone string `json:"fallback_timezone,omitempty"` // the IANA zone of subjects without a profile; empty: that of the tenant

	IfMatch  time.Time `json:"-"` // if not zero, the UpdatedAt that must be the stored one
	IfAbsent bool      `json:"-"` // demands that no workflow of the name is stored; otherwise the error is ErrPrecondition
}

// Rate limits how many ticks a second go out, over all processes of the server.
type Rate struct {
	PerSecond int    `json:"per_second"`     // 1 to 100,000
	Ramp      string `json:"ramp,omitempty"` // a duration, such as "5m": after a pause of more than a minute the rate rises evenly from a tenth, over this time
}

// Expect is what a tenant expects of the ticks of a workflow. The server sends the event workflow.late when ticks are later than that, and
// workflow.silent when ticks become due and none succeeds.
type Expect struct {
	HandedOutWithin string `json:"handed_out_within,omitempty"` // a duration, from the nominal time of a tick until it is handed out
	EndedWithin     string `json:"ended_within,omitempty"`      // a duration, from the nominal time of a tick until it ends
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
	Rate       *Rate     `json:"rate,omitempty"`   // nil: no limit
	Expect     *Expect   `json:"expect,omitempty"` // nil: nothing is expected
	State      string    `json:"state"`            // "active" or "held": nothing is handed out
	Defaults   Defaults  `json:"defaults"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`

	FallbackTimezone string `json:"fallback_timezone"`
}

// MergePatch is a merge patch (RFC 7396) of the params of a workflow, an endpoint or a tenant, such as a map[string]any or a json.RawMessage:
// absent members stay unchanged, and null restores the default.
type MergePatch struct {
	Merge   any
	IfMatch time.Time // if not zero, the UpdatedAt that must be the stored one
}

// Put creates or replaces a workflow.
func (w Workflows) Put(ctx context.Context, workflow string, p WorkflowParams) (Workflow, error) {
	condition := ifUnchanged(p.IfMatch)
	if p.IfAbsent {
		condition = map[string]string{"If-None-Match": "*"}
	}
	return change[Workflow](ctx, w.c, http.MethodPut, path("workflows", workflow), p, condition)
}

// Patch changes parts of an existing workflow.
func (w Workflows) Patch(ctx context.Context, workflow string, p MergePatch) (Workflow, error) {
	return patch[Workflow](ctx, w.c, path("workflows", workflow), p.Merge, ifUnchanged(p.IfMatch))
}

// Get returns a workflow.
func (w Workflows) Get(ctx context.Context, workflow string) (Workflow, error) {
	return get[Workflow](ctx, w.c, path("workflows", workflow), nil)
}

// List iterates over the workflows. An error comes once and ends the loop.
func (w Workflows) List(ctx context.Context) iter.Seq2[Workflow, error] {
	return pages[Workflow](ctx, w.c, path("workflows"), url.Values{})
}

// Delete deletes a workflow. The server skips the ticks of its schedules until the workflow exists again.
func (w Workflows) Delete(ctx context.Context, workflow string, p ...RemoveParams) error {
	return w.c.remove(ctx, removal(path("workflows", workflow), p))
}

// Hold stops a workflow: no tick of it is handed out until Release. Its ticks wait, running ticks and retries go on, and no
// schedule changes. It needs the scope tenant:admin.
func (w Workflows) Hold(ctx context.Context, workflow string) (Workflow, error) {
	return read[Workflow](ctx, w.c, &call{method: http.MethodPost, path: path("workflows", workflow, "hold")})
}

// Release ends a hold. Ticks that waited are handed out by the policies of the schedules. It needs the scope tenant:admin.
func (w Workflows) Release(ctx context.Context, workflow string) (Workflow, error) {
	return read[Workflow](ctx, w.c, &call{method: http.MethodPost, path: path("workflows", workflow, "release")})
}
