package carillon

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"time"
)

// Revision is one version of a schedule: its definition, the subject that made it, and the change of the next tick. Policy and Delivery have
// only the schedule's own values, not inherited ones.
type Revision struct {
	Version  int64           `json:"version"`
	Status   string          `json:"status"`
	Subject  string          `json:"subject"`
	Spec     Spec            `json:"spec"`
	Policy   Policy          `json:"policy"`
	Delivery Delivery        `json:"delivery"`
	Payload  json.RawMessage `json:"payload"`

	PayloadKept *bool `json:"payload_kept,omitempty"` // false: the payload is no longer stored

	Labels     map[string]string `json:"labels"`
	Note       string            `json:"note"`
	StatusNote string            `json:"status_note,omitempty"` // why it was paused

	ChangedAt  time.Time  `json:"changed_at"`
	ChangedBy  string     `json:"changed_by"`
	NextBefore *time.Time `json:"next_before"` // nominal; nil if there was none
	NextAfter  *time.Time `json:"next_after"`  // nominal; nil if there was none

	DeletedAt *time.Time `json:"deleted_at,omitempty"` // of the last version of a deleted schedule
	DeletedBy string     `json:"deleted_by,omitempty"`
}

// Revisions iterates over the versions of a schedule, newest first. An error comes once and ends the loop. The versions of a deleted schedule
// are kept.
func (s Schedules) Revisions(ctx context.Context, workflow, key string) iter.Seq2[Revision, error] {
	return pages[Revision](ctx, s.c, schedulePath(workflow, key, "revisions"), url.Values{})
}
