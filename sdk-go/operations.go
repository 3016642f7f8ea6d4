package carillon

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

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

// Operation returns the state and the progress of an operation.
func (c *Client) Operation(ctx context.Context, id string) (Operation, error) {
	return read[Operation](ctx, c, &call{method: http.MethodGet, path: path("operations", id)})
}
