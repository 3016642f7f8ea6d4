package carillon

import (
	"context"
	"encoding/json"
	"time"
)

// ActionParams ask for one action on many schedules: those that Filter picks, or those of Keys.
type ActionParams struct {
	Action string          `json:"action"` // "pause", "resume", "delete", "retime", "skip", "patch" or "trigger"
	Filter *ActionFilter   `json:"filter,omitempty"`
	Keys   []string        `json:"keys,omitempty"`  // up to 1,000, each as workflow/key
	Note   string          `json:"note,omitempty"`  // why
	Until  *time.Time      `json:"until,omitempty"` // of "pause"; nil: until they are resumed
	Count  int             `json:"count,omitempty"` // of "skip": how many coming ticks; zero is one
	Patch  json.RawMessage `json:"patch,omitempty"` // of "patch": a merge patch (RFC 7396) of each definition
	DryRun bool            `json:"dry_run,omitempty"`

	IdempotencyKey string `json:"-"` // the same within 24 h acts once; empty: a random one for each call
}

// ActionFilter selects schedules as the filter of a list does. A filter that selects all schedules must set All.
type ActionFilter struct {
	All         bool       `json:"all,omitempty"`
	Workflow    string     `json:"workflow,omitempty"`
	Status      string     `json:"status,omitempty"`
	Key         string     `json:"key,omitempty"`
	KeyPrefix   string     `json:"key_prefix,omitempty"`
	KeyContains string     `json:"key_contains,omitempty"`
	Subject     string     `json:"subject,omitempty"`
	Label       string     `json:"label,omitempty"` // "name:value"
	Timezone    string     `json:"timezone,omitempty"`
	Calendar    string     `json:"calendar,omitempty"` // the spec leaves out the days of this named calendar
	Failing     bool       `json:"failing,omitempty"`  // the last ended tick failed
	DueBefore   *time.Time `json:"due_before,omitempty"`
	Operation   string     `json:"operation,omitempty"` // the schedules that this operation paused and that nobody has resumed or paused since
}

// Act begins an action on many schedules, and returns the operation that performs it. An action "resume" whose filter names the Operation
// of a pause undoes that pause exactly.
func (s Schedules) Act(ctx context.Context, p ActionParams) (Operation, error) {
	p.DryRun = false
	return act[Operation](ctx, s.c, p)
}

// ActionPreview is what an action would do now.
type ActionPreview struct {
	Matched int64             `json:"matched"` // schedules that it picks
	Changed int64             `json:"changed"` // those of them that it would change; of "patch", those that it may change
	Sample  []ScheduleSummary `json:"sample"`  // up to 20 of them
}

// PreviewAct returns what Act would do, and changes nothing.
func (s Schedules) PreviewAct(ctx context.Context, p ActionParams) (ActionPreview, error) {
	p.DryRun = true
	return act[ActionPreview](ctx, s.c, p)
}

func act[T any](ctx context.Context, c *Client, p ActionParams) (T, error) {
	if p.Until != nil {
		p.Until = ptr(wholeSecond(*p.Until))
	}
	return post[T](ctx, c, path("schedules", "actions"), p, p.IdempotencyKey)
}
