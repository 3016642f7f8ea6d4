package carillon

import (
	"context"
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
func (s Schedules) Reschedule(ctx context.Context, workflow, key string, p RescheduleParams) (Schedule, error) {
	p.To = wholeSecond(p.To)
	return postIf[Schedule](ctx, s.c, schedulePath(workflow, key, "reschedule"), p, p.IdempotencyKey, p.IfMatch)
}
