package carillon

import (
	"context"
	"maps"
	"net/http"
	"time"
)

// RescheduleParams move one coming tick: the tick of the nominal time At fires at To instead.
type RescheduleParams struct {
	At time.Time `json:"at"`
	To time.Time `json:"to"` // between the ticks before and after

	IdempotencyKey string `json:"-"` // empty: a random one for each call
	IfMatch        int64  `json:"-"` // if not zero, the version that must be the stored one
}

// Reschedule moves one coming tick. Its nominal time is then To.
func (c *Client) Reschedule(ctx context.Context, workflow, key string, p RescheduleParams) (Schedule, error) {
	body, err := encode(p)
	if err != nil {
		return Schedule{}, err
	}
	r := &call{method: http.MethodPost, path: schedulePath(workflow, key, "reschedule"), body: body, header: idempotent(p.IdempotencyKey)}
	maps.Copy(r.header, ifMatch(p.IfMatch))
	return read[Schedule](ctx, c, r)
}
