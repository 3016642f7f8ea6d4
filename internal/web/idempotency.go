package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
)

// IdempotencyKept is how long the answer to a request with an Idempotency-Key is kept.
const IdempotencyKept = 24 * time.Hour

// IdempotencyKey is the request's Idempotency-Key, or "" where it bears none. One that is not 1 to 255 printable ASCII
// characters, or is there twice, is 400.
func IdempotencyKey(c echo.Context) (string, error) {
	sent := c.Request().Header["Idempotency-Key"]
	if len(sent) == 0 {
		return "", nil
	}
	key := sent[0]
	bad := len(sent) > 1 || key == "" || len(key) > 255
	for i := range len(key) {
		bad = bad || key[i] < 0x20 || key[i] > 0x7e
	}
	if bad {
		return "", fault.Malformed("invalid_idempotency_key", "Idempotency-Key must be 1 to 255 printable ASCII characters")
	}
	return key, nil
}

// Route names what a request is for: its method and its path as it was sent. Idempotency keys are kept by it, so that
// the same key on another schedule's trigger is another request.
func Route(c echo.Context) string {
	r := c.Request()
	return r.Method + " " + r.URL.EscapedPath()
}

// Idempotent runs a request at most once per tenant, route and key in 24 hours, and answers a second one as the first
// was answered. It is called inside the transaction that run works in: the answer is stored with what it tells of. An
// error of run is returned as it is, and nothing is stored, as the transaction is given up with it. Another body is
// 422 `idempotency_key_reused`; a request with the same key that has not ended is 409 `idempotency_in_flight`.
func Idempotent(ctx context.Context, tx pgx.Tx, tenantID int32, route, key string, bodyHash []byte,
	run func() (status int, body []byte, err error),
) (status int, body []byte, replayed bool, err error) {
	var free bool
	lock := fmt.Sprintf("idempotency %d %s %s", tenantID, route, key)
	// Held until the transaction ends: who gets it sees what the one before has committed.
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`, lock).Scan(&free); err != nil {
		return 0, nil, false, fmt.Errorf("lock an idempotency key: %w", err)
	}
	if !free {
		return 0, nil, false, inFlight()
	}
	var hash []byte
	err = tx.QueryRow(ctx, `
		SELECT body_hash, status, answer
		FROM idempotency
		WHERE tenant_id = $1 AND route = $2 AND key = $3 AND created_at > `+postgres.TxNow+` - $4::interval`,
		tenantID, route, key, IdempotencyKept).Scan(&hash, &status, &body)
	if err == nil {
		if !bytes.Equal(hash, bodyHash) {
			return 0, nil, false, fault.New(422, "idempotency_key_reused", "this Idempotency-Key came before with another body")
		}
		return status, body, true, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, false, fmt.Errorf("look for an idempotency key: %w", err)
	}
	if status, body, err = run(); err != nil {
		return 0, nil, false, err
	}
	if body == nil {
		body = []byte{} // an answer without a body is kept as an empty one, not as null
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, `+postgres.TxNow+`)
		ON CONFLICT (tenant_id, route, key) DO UPDATE
		SET body_hash = excluded.body_hash, status = excluded.status, answer = excluded.answer, created_at = `+postgres.TxNow,
		tenantID, route, key, bodyHash, status, body)
	if err != nil {
		return 0, nil, false, fmt.Errorf("keep an idempotency key: %w", err)
	}
	return status, body, false, nil
}
