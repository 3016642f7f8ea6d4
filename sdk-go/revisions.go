package carillon

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"time"
)

// Revision is one version of a schedule as it was put, who made it, and what that did to its next tick. Policy and
// Delivery hold what was the schedule's own.
type Revision struct {
	Version  int64           `json:"version"`
	Status   string          `json:"status"`
	Spec     Spec            `json:"spec"`
	Policy   Policy          `json:"policy"`
	Delivery Delivery        `json:"delivery"`
	Payload  json.RawMessage `json:"payload"`

	PayloadKept *bool `json:"payload_kept,omitempty"` // false: there was a payload, which is not kept any more

	Labels     map[string]string `json:"labels"`
	Note       string            `json:"note"`
	StatusNote string            `json:"status_note,omitempty"` // why it was paused

	ChangedAt  time.Time  `json:"changed_at"`
	ChangedBy  string     `json:"changed_by"`
	NextBefore *time.Time `json:"next_before"` // nominal; nil when none was to come
	NextAfter  *time.Time `json:"next_after"`  // nominal; nil when none was to come

	DeletedAt *time.Time `json:"deleted_at,omitempty"` // of the last version of one that is gone
	DeletedBy string     `json:"deleted_by,omitempty"`
}

// Revisions walks the versions of a schedule, newest first, asking for pages as the loop goes on. An error comes once
// and ends it. Those of a schedule that was deleted are kept.
func (c *Client) Revisions(ctx context.Context, workflow, key string) iter.Seq2[Revision, error] {
	return pages[Revision](ctx, c, schedulePath(workflow, key, "revisions"), url.Values{})
}
