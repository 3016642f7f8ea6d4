package web

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"
)

// Once is a request that is worked on at most once: its Idempotency-Key, and what it asks. One without a key is
// worked on each time.
type Once struct {
	route, key string
	hash       []byte
}

// Reply is an answer that was worked out in a transaction, or stored by an earlier one.
type Reply struct {
	Status   int
	Body     []byte
	Replayed bool
}

// OnceOf reads a request's Idempotency-Key and body.
func OnceOf(c echo.Context) (Once, error) {
	key, err := IdempotencyKey(c)
	if err != nil || key == "" {
		return Once{}, err
	}
	hash, err := Digest(c)
	return Once{Route(c), key, hash}, err
}

// Run runs the request in its transaction, or answers as it was answered before: see Idempotent.
func (o Once) Run(ctx context.Context, tx pgx.Tx, tenantID int32, run func() (status int, answer any, err error)) (r Reply, err error) {
	work := func() (int, []byte, error) {
		status, answer, err := run()
		if err != nil || answer == nil {
			return status, nil, err
		}
		body, err := Marshal(answer)
		return status, body, err
	}
	if o.key == "" {
		r.Status, r.Body, err = work()
		return r, err
	}
	r.Status, r.Body, r.Replayed, err = Idempotent(ctx, tx, tenantID, o.route, o.key, o.hash, work)
	return r, err
}

// Write answers with the reply. One that was given before says so.
func (r Reply) Write(c echo.Context) error {
	if r.Replayed {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	if len(r.Body) == 0 {
		return c.NoContent(r.Status)
	}
	return c.Blob(r.Status, "application/json", r.Body)
}
