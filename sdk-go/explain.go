package carillon

import (
	"context"
	"time"
)

// Explanation is what a schedule did, or will do, at a moment, and why.
type Explanation struct {
	At       time.Time   `json:"at"`
	Outcome  string      `json:"outcome"`        // "fired", "paused", "dst_gap" and so on
	Detail   string      `json:"detail"`         // for a person; times are in the schedule's zone
	Steps    []Step      `json:"steps"`          // the way of the tick, in its order
	Tick     *TickRecord `json:"tick,omitempty"` // the tick of the outcome, if there is one
	Previous *time.Time  `json:"previous"`       // nominal time of the tick before
	Next     *time.Time  `json:"next"`           // nominal time of the tick after
}

// Step is a stage on the way of a tick. A tick that does not come ends at the stage that decides this.
type Step struct {
	At      time.Time `json:"at"`
	What    string    `json:"what"` // "version", "timing", "schedule", "handed_out", "attempt" or "tick"
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail"`         // for a person
	Link    string    `json:"link,omitempty"` // the route that shows more
}

// Explain returns why the schedule fired at an instant, or did not.
func (s Schedules) Explain(ctx context.Context, workflow, key string, at time.Time) (Explanation, error) {
	return s.explain(ctx, workflow, key, at.UTC().Format(time.RFC3339))
}

// ExplainLocal is Explain for a wall time in the schedule's zone, such as 2026-03-29T08:00.
func (s Schedules) ExplainLocal(ctx context.Context, workflow, key, at string) (Explanation, error) {
	return s.explain(ctx, workflow, key, at)
}

func (s Schedules) explain(ctx context.Context, workflow, key, at string) (Explanation, error) {
	q := query{}
	q.text("at", at)
	return get[Explanation](ctx, s.c, schedulePath(workflow, key, "explain"), q)
}
