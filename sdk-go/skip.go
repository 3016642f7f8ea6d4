package carillon

import (
	"context"
	"maps"
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
func (c *Client) Skip(ctx context.Context, workflow, key string, p SkipParams) (Schedule, error) {
	body, err := encode(p)
	if err != nil {
		return Schedule{}, err
	}
	r := &call{method: http.MethodPost, path: schedulePath(workflow, key, "skip"), body: body, header: idempotent(p.IdempotencyKey)}
	maps.Copy(r.header, ifMatch(p.IfMatch))
	return read[Schedule](ctx, c, r)
}

// Unskip undoes Skip for all ticks that are still to come.
func (c *Client) Unskip(ctx context.Context, workflow, key string) (Schedule, error) {
	return read[Schedule](ctx, c, &call{method: http.MethodDelete, path: schedulePath(workflow, key, "skip")})
}
