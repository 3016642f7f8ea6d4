package carillon

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// LeaseParams select the ticks to lease. A [Worker] leases, extends and reports ticks by itself.
type LeaseParams struct {
	Workflows []string
	Queues    []string      // empty: every queue
	Max       int           // 1 to 1,000
	Wait      time.Duration // how long to wait for a first tick
	Lease     time.Duration // 10 s to 10 min
	Worker    string        // the worker's name, for people to read
}

// Lease leases ready ticks. It waits up to p.Wait for the first. A tick belongs to the caller until its lease ends; finish it or send a
// heartbeat before that. Lease does not retry: ticks of a lost answer can be leased again when their lease ends.
func (t Ticks) Lease(ctx context.Context, p LeaseParams) ([]Tick[json.RawMessage], error) {
	body, err := encode(struct {
		Workflows []string `json:"workflows"`
		Queues    []string `json:"queues,omitempty"`
		Max       int      `json:"max"`
		Wait      string   `json:"wait"`
		Lease     string   `json:"lease"`
		Worker    string   `json:"worker"`
	}{p.Workflows, p.Queues, p.Max, seconds(p.Wait), seconds(p.Lease), p.Worker})
	if err != nil {
		return nil, err
	}
	r := &call{method: http.MethodPost, path: path("ticks", "lease"), body: body, timeout: p.Wait + t.c.timeout, single: true}
	answer, err := read[struct {
		Ticks []Tick[json.RawMessage] `json:"ticks"`
	}](ctx, t.c, r)
	return answer.Ticks, err
}

// Heartbeat extends the lease of a tick, and returns its new end. ErrConflict tells the caller to stop: the tick was cancelled (code
// "cancelled"), or its lease is lost.
func (t Ticks) Heartbeat(ctx context.Context, tickID, leaseToken string, lease time.Duration) (until time.Time, err error) {
	body, err := encode(heartbeat{LeaseToken: leaseToken, Lease: seconds(lease)})
	if err != nil {
		return until, err
	}
	answer, err := read[struct {
		LeaseUntil time.Time `json:"lease_until"`
	}](ctx, t.c, &call{method: http.MethodPost, path: path("ticks", tickID, "heartbeat"), body: body})
	return answer.LeaseUntil, err
}

// Complete ends a tick as succeeded and stores a result with it (nil for none). It also ends a tick that a webhook answered with
// [Later]. It returns ErrConflict if the lease is lost or the tick has already ended.
func (t Ticks) Complete(ctx context.Context, tickID, leaseToken string, result any) error {
	kept, err := raw(result)
	if err != nil {
		return err
	}
	body, err := encode(heartbeat{LeaseToken: leaseToken})
	if err != nil {
		return err
	}
	_, err = t.c.do(ctx, &call{method: http.MethodPost, path: path("ticks", tickID, "complete"), body: with(body, "result", kept)})
	return err
}

// Fail ends an attempt of a tick as failed. Another attempt follows, unless failure is [Permanent] or no attempt is left. A failure that is
// [RetryAfter] sets the wait.
func (t Ticks) Fail(ctx context.Context, tickID, leaseToken string, failure error) error {
	retry, after := retryOf(failure)
	p := struct {
		LeaseToken string `json:"lease_token"`
		Error      string `json:"error"`
		Retry      bool   `json:"retry"`
		RetryAfter string `json:"retry_after,omitempty"`
	}{leaseToken, errorText(failure), retry, ""}
	if retry && after > 0 {
		p.RetryAfter = seconds(after)
	}
	body, err := encode(p)
	if err != nil {
		return err
	}
	_, err = t.c.do(ctx, &call{method: http.MethodPost, path: path("ticks", tickID, "fail"), body: body})
	return err
}

// heartbeat is one heartbeat, alone or in a batch.
type heartbeat struct {
	TickID     string `json:"tick_id,omitempty"`
	LeaseToken string `json:"lease_token"`
	Lease      string `json:"lease,omitempty"`
}

// finish is one outcome in a batch.
type finish struct {
	TickID     string          `json:"tick_id"`
	LeaseToken string          `json:"lease_token"`
	Outcome    string          `json:"outcome"` // "complete" or "fail"
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
	Retry      *bool           `json:"retry,omitempty"`
	RetryAfter string          `json:"retry_after,omitempty"`
}

// verdict is the answer to one tick of a batch.
type verdict struct {
	TickID string `json:"tick_id"`
	Status int    `json:"status"`
	Code   string `json:"code"`
}

// batch sends up to 1,000 heartbeats or outcomes at once.
func batch[T any](ctx context.Context, c *Client, route string, ticks []T) ([]verdict, error) {
	body, err := encode(struct {
		Ticks []T `json:"ticks"`
	}{ticks})
	if err != nil {
		return nil, err
	}
	answer, err := read[struct {
		Results []verdict `json:"results"`
	}](ctx, c, &call{method: http.MethodPost, path: path("ticks", route), body: body})
	return answer.Results, err
}
