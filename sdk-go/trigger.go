package carillon

import (
	"context"
	"encoding/json"
	"net/http"
)

// TriggerParams say what payload the tick has, and when it fires: now, at At, or after In.
type TriggerParams struct {
	Payload        any    `json:"payload,omitempty"` // instead of the schedule's; as in Params
	At             string `json:"at,omitempty"`      // an instant, or a wall time in the schedule's zone, at most 366 days ahead
	In             string `json:"in,omitempty"`      // a duration such as "10m"
	IdempotencyKey string `json:"-"`                 // the same within 24 h fires once; empty: a random one for each call
}

// Trigger fires one tick, under the schedule's overlap policy. The timing does not move. A tick for later has the state "scheduled" and
// a DueAt; deleting the schedule cancels it.
func (s Schedules) Trigger(ctx context.Context, workflow, key string, p TriggerParams) (TickRecord, error) {
	payload, err := raw(p.Payload)
	if err != nil {
		return TickRecord{}, err
	}
	p.Payload = nil
	body, err := json.Marshal(p)
	if err != nil {
		return TickRecord{}, err
	}
	r := &call{
		method: http.MethodPost,
		path:   schedulePath(workflow, key, "trigger"),
		body:   with(body, "payload", payload),
		header: idempotent(p.IdempotencyKey),
	}
	return read[TickRecord](ctx, s.c, r)
}
