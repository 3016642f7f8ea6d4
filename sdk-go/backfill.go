package carillon

import (
	"context"
	"time"
)

// BackfillParams name the span of a backfill: nominal times from From on and before To.
type BackfillParams struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Overlap string    `json:"overlap,omitempty"` // "buffer_all" (default): one after another; "allow_all": all at once
	DryRun  bool      `json:"dry_run,omitempty"` // set by Backfill and PreviewBackfill

	IdempotencyKey string `json:"-"` // the same within 24 h acts once; empty: a random one for each call
}

// BackfillPlan is what a backfill would do.
type BackfillPlan struct {
	Count    int        `json:"count"`    // nominal times in the span
	Existing int64      `json:"existing"` // those of them that have a tick already, and get no second one
	First    *time.Time `json:"first"`    // nil: there are none
	Last     *time.Time `json:"last"`
}

// Backfill begins an operation that makes a tick for each nominal time of a past span, oldest first. Find its ticks with [Ticks.List] by the
// operation's id.
func (s Schedules) Backfill(ctx context.Context, workflow, key string, p BackfillParams) (Operation, error) {
	p.DryRun = false
	return backfill[Operation](ctx, s.c, workflow, key, p)
}

// PreviewBackfill returns what Backfill would do, and makes nothing.
func (s Schedules) PreviewBackfill(ctx context.Context, workflow, key string, p BackfillParams) (BackfillPlan, error) {
	p.DryRun = true
	return backfill[BackfillPlan](ctx, s.c, workflow, key, p)
}

func backfill[T any](ctx context.Context, c *Client, workflow, key string, p BackfillParams) (T, error) {
	p.From, p.To = wholeSecond(p.From), wholeSecond(p.To)
	return post[T](ctx, c, schedulePath(workflow, key, "backfill"), p, p.IdempotencyKey)
}
