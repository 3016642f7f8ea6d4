package carillon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Event tells an endpoint that something happened, once or several times. Type is one of the types in the endpoint's
// Events, such as "tick.failed"; the OpenAPI document defines Data for each type.
type Event struct {
	ID        string          `json:"id"` // the same on every attempt
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"` // when it happened last
	FirstAt   time.Time       `json:"first_at"`  // when the first of the counted occurrences happened
	Count     int64           `json:"count"`     // occurrences since the last event of this cause
	Cause     string          `json:"cause"`     // what caused it, such as a workflow
	Data      json.RawMessage `json:"data"`      // of the last occurrence
}

// eventOf reads an event; ok is false if the body is no event.
func eventOf(body []byte) (e Event, ok bool) {
	err := json.Unmarshal(body, &e)
	return e, err == nil && e.Type != "" && e.ID != ""
}

// event calls the handler's OnEvent with one event.
func (h *Webhook) event(ctx context.Context, e Event) (err error) {
	if h.config.OnEvent == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			h.config.Log.WarnContext(ctx, "an event was not taken", "event", e.Type, "id", e.ID, "error", err)
		}
	}()
	return h.config.OnEvent(ctx, e)
}
