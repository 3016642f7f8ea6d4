package carillon

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// DeadFilter selects dead letters, which are ticks whose attempts are used up; the zero value selects all.
type DeadFilter struct {
	Workflow string     `json:"workflow,omitempty"`
	Endpoint string     `json:"endpoint,omitempty"` // those of workflows that push to it now
	Key      string     `json:"key,omitempty"`
	From     *time.Time `json:"from,omitempty"` // nominal, included
	To       *time.Time `json:"to,omitempty"`   // nominal, not included
}

func (f DeadFilter) query() query {
	q := query{}
	q.text("workflow", f.Workflow)
	q.text("endpoint", f.Endpoint)
	q.text("key", f.Key)
	if f.From != nil {
		q.time("from", *f.From)
	}
	if f.To != nil {
		q.time("to", *f.To)
	}
	return q
}

// DeadLetters iterates over dead letters, newest nominal time first. An error comes once and ends the loop.
func (a Admin) DeadLetters(ctx context.Context, f DeadFilter) iter.Seq2[TickRecord, error] {
	return pages[TickRecord](ctx, a.c, path("admin", "dead-letters"), url.Values(f.query()))
}

// DeadGroups are the latest dead letters, grouped by workflow and error.
type DeadGroups struct {
	Items     []DeadGroup `json:"items"`     // up to 200, the largest first
	Truncated bool        `json:"truncated"` // there are more dead letters than were counted, or more groups
}

// DeadGroup is a group of dead letters with one workflow and one error.
type DeadGroup struct {
	Workflow     string    `json:"workflow"`
	Endpoint     string    `json:"endpoint"` // of the workflow now; empty: workers pull
	Error        string    `json:"error"`    // the first line, with * for longer numbers and ids
	Count        int64     `json:"count"`
	FirstAt      time.Time `json:"first_at"` // the earliest nominal time
	LastAt       time.Time `json:"last_at"`
	SampleTickID string    `json:"sample_tick_id"` // one of the latest
}

// DeadLetterGroups groups the latest 10,000 dead letters of a filter by workflow and error.
func (a Admin) DeadLetterGroups(ctx context.Context, f DeadFilter) (DeadGroups, error) {
	return get[DeadGroups](ctx, a.c, path("admin", "dead-letters", "groups"), f.query())
}

// DeadReplayParams select the dead letters to deliver again. A nil Filter selects all.
type DeadReplayParams struct {
	Filter *DeadFilter `json:"filter,omitempty"`
	DryRun bool        `json:"dry_run,omitempty"` // set by ReplayDeadLetters and PreviewReplay

	IdempotencyKey string `json:"-"` // the same within 24 h acts once; empty: a random one for each call
}

// DeadReplayPreview is what a replay would deliver.
type DeadReplayPreview struct {
	Matched int64        `json:"matched"`
	Sample  []TickRecord `json:"sample"` // the latest of them
}

// ReplayDeadLetters begins an operation that delivers dead letters again, newest first.
func (a Admin) ReplayDeadLetters(ctx context.Context, p DeadReplayParams) (Operation, error) {
	p.DryRun = false
	return post[Operation](ctx, a.c, path("admin", "dead-letters", "replay"), p, p.IdempotencyKey)
}

// PreviewReplay returns what ReplayDeadLetters would deliver, and delivers nothing.
func (a Admin) PreviewReplay(ctx context.Context, p DeadReplayParams) (DeadReplayPreview, error) {
	p.DryRun = true
	return post[DeadReplayPreview](ctx, a.c, path("admin", "dead-letters", "replay"), p, p.IdempotencyKey)
}
