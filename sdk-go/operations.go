package carillon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// Operations are the long works of the tenant: those under way, and those that ended within a week.
type Operations struct{ c *Client }

// Operation is long work that the server does in steps after the answer to the request that began it.
type Operation struct {
	ID        string           `json:"id"`
	Kind      string           `json:"kind"`
	State     string           `json:"state"` // pending, running, succeeded, failed or cancelled
	Params    json.RawMessage  `json:"params"`
	Done      int64            `json:"done"`
	Total     *int64           `json:"total"` // nil: unknown
	Counts    map[string]int64 `json:"counts"`
	Result    json.RawMessage  `json:"result"`
	Error     *string          `json:"error"`
	CreatedBy string           `json:"created_by"`
	CreatedAt time.Time        `json:"created_at"`
	StartedAt *time.Time       `json:"started_at"`
	EndedAt   *time.Time       `json:"ended_at"` // nil: it has not ended
}

// ErrOperation reports an operation that failed or was cancelled.
var ErrOperation = errors.New("carillon: the operation did not succeed")

// Get returns the state and the progress of an operation.
func (o Operations) Get(ctx context.Context, id string) (Operation, error) {
	return get[Operation](ctx, o.c, path("operations", id), nil)
}

// List iterates over the operations in a state, or over all if it is empty, newest first. An error comes once and ends the loop.
func (o Operations) List(ctx context.Context, state string) iter.Seq2[Operation, error] {
	q := query{}
	q.text("state", state)
	return pages[Operation](ctx, o.c, path("operations"), url.Values(q))
}

// Cancel stops an operation after the step that is under way. What it has done stays done. An operation that has ended stays as it is.
func (o Operations) Cancel(ctx context.Context, id string) (Operation, error) {
	return read[Operation](ctx, o.c, &call{method: http.MethodPost, path: path("operations", id, "cancel")})
}

const (
	firstLook   = 100 * time.Millisecond
	longestLook = 3 * time.Second
)

// Wait waits until an operation has ended and returns it. It calls progress, unless that is nil, with each state that it sees. If the
// operation failed or was cancelled, Wait also returns an error that is [ErrOperation].
func (o Operations) Wait(ctx context.Context, id string, progress func(Operation)) (Operation, error) {
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		op, err := o.Get(ctx, id)
		if err != nil {
			return op, err
		}
		if progress != nil {
			progress(op)
		}
		if op.EndedAt != nil {
			return op, op.failure()
		}
		if !wait(ctx, pause/2+rand.N(pause/2)) {
			return op, context.Cause(ctx)
		}
	}
}

// failure returns why an ended operation did not succeed.
func (op Operation) failure() error {
	switch {
	case op.State == "succeeded":
		return nil
	case op.Error != nil:
		return fmt.Errorf("%w: %s %s: %s", ErrOperation, op.ID, op.State, *op.Error)
	default:
		return fmt.Errorf("%w: %s %s", ErrOperation, op.ID, op.State)
	}
}
