package carillon

import (
	"context"
	"encoding/json"
	"time"
)

// Sample is a coming tick as a worker or an endpoint would receive it.
type Sample struct {
	Body    json.RawMessage   `json:"body"`    // a Tick; for an endpoint that takes batches, {"ticks": [Tick]}
	Headers map[string]string `json:"headers"` // of the push, without the signature and the values of the endpoint's own; empty if workers pull
}

// Sample returns a coming tick by the present definition of the schedule: the one at a nominal time, or the next one if at is zero. Nothing
// fires.
func (s Schedules) Sample(ctx context.Context, workflow, key string, at time.Time) (Sample, error) {
	q := query{}
	q.time("at", at)
	return get[Sample](ctx, s.c, schedulePath(workflow, key, "sample"), q)
}
