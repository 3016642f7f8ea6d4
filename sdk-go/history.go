package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// TickFilter selects ticks of a history; the zero value selects all.
type TickFilter struct {
	State    string
	From     time.Time // nominal, included
	To       time.Time // nominal, not included
	PageSize int       // ticks per request, up to 1,000; zero is the server's default
}

func (f TickFilter) query() query {
	q := query{}
	q.text("state", f.State)
	q.time("from", f.From)
	q.time("to", f.To)
	q.number("limit", f.PageSize)
	return q
}

// TickScope selects ticks of the whole tenant. A tick must match every member that is set.
type TickScope struct {
	Workflow   string
	Key        string
	ScheduleID string
	Subject    string // of the schedule when the tick fired
	Operation  string // the id of the backfill, or of the action, that made them
	Cause      string // as in Tick
}

func (s TickScope) add(q query) {
	q.text("workflow", s.Workflow)
	q.text("key", s.Key)
	q.text("schedule_id", s.ScheduleID)
	q.text("subject", s.Subject)
	q.text("operation", s.Operation)
	q.text("cause", s.Cause)
}

// Ticks iterates over the history of one schedule, newest first. An error comes once and ends the loop.
func (s Schedules) Ticks(ctx context.Context, workflow, key string, filter TickFilter) iter.Seq2[TickRecord, error] {
	return pages[TickRecord](ctx, s.c, schedulePath(workflow, key, "ticks"), url.Values(filter.query()))
}

// List iterates over the ticks of the tenant that scope and filter select, newest nominal time first, those of deleted schedules too. An
// error comes once and ends the loop.
func (t Ticks) List(ctx context.Context, scope TickScope, filter TickFilter) iter.Seq2[TickRecord, error] {
	q := filter.query()
	scope.add(q)
	return pages[TickRecord](ctx, t.c, path("ticks"), url.Values(q))
}

// Get returns one tick with its payload and its attempts.
func (t Ticks) Get(ctx context.Context, id string) (TickRecord, error) {
	return get[TickRecord](ctx, t.c, path("ticks", id), nil)
}

// Cancel cancels a tick that has not ended: one for later, one that waits, or one that runs. The worker of a running tick is told by
// its next heartbeat. A tick that has ended is an error with the code tick_ended.
func (t Ticks) Cancel(ctx context.Context, id string) (TickRecord, error) {
	return read[TickRecord](ctx, t.c, &call{method: http.MethodPost, path: path("ticks", id, "cancel")})
}

// ReplayParams are the options of Replay.
type ReplayParams struct {
	IdempotencyKey string // the same within 24 h acts once; empty: a random one for each call
}

// Replay delivers a failed tick again, with the same id and payload and as many attempts as its schedule allows. A tick that has not failed
// is an error with the code tick_not_failed.
func (t Ticks) Replay(ctx context.Context, id string, p ReplayParams) (TickRecord, error) {
	return post[TickRecord](ctx, t.c, path("ticks", id, "replay"), nil, p.IdempotencyKey)
}
