package carillon

import (
	"context"
	"net/http"
	"time"
)

// SkipParams name coming ticks to skip: either Count or At.
type SkipParams struct {
	Count int         `json:"count,omitempty"` // the next Count ticks that are not skipped yet, up to 1,000
	At    []time.Time `json:"at,omitempty"`    // ticks at these nominal times

	IdempotencyKey string `json:"-"` // empty: a random one for each call
	IfMatch        int64  `json:"-"` // if not zero, the version that must be the stored one
}

// Skip marks coming ticks: when such a tick comes due, the server records it as skipped.
func (s Schedules) Skip(ctx context.Context, workflow, key string, p SkipParams) (Schedule, error) {
	return postIf[Schedule](ctx, s.c, schedulePath(workflow, key, "skip"), p, p.IdempotencyKey, p.IfMatch)
}

// Unskip undoes Skip for all ticks that are still to come.
func (s Schedules) Unskip(ctx context.Context, workflow, key string) (Schedule, error) {
	return read[Schedule](ctx, s.c, &call{method: http.MethodDelete, path: schedulePath(workflow, key, "skip")})
}
