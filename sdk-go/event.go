package carillon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Event is what an endpoint is told beside ticks: that something happened, once or several times. Type is one of those that
// the endpoint's Events name, such as "tick.failed"; the OpenAPI document says what Data holds for each.
type Event struct {
	ID        string          `json:"id"` // the same whenever it is sent again
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"` // when it happened last
	FirstAt   time.Time       `json:"first_at"`  // when first, of those that it counts
	Count     int64           `json:"count"`     // how often, since the last event of this cause
	Cause     string          `json:"cause"`     // what it comes of, such as a workflow
	Data      json.RawMessage `json:"data"`      // of the last that happened
}

// eventOf reads an event; ok is false of what is something else.
func eventOf(body []byte) (e Event, ok bool) {
	err := json.Unmarshal(body, &e)
	return e, err == nil && e.Type != "" && e.ID != ""
}

// event has the handler told of one event.
func (h *webhook) event(ctx context.Context, e Event) (err error) {
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
