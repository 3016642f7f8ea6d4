// Package once makes a change at most once for each Idempotency-Key of a tenant.
//
// It stores the value of a change in table idempotency: in the transaction of the change (Do), or after work that must run outside a
// transaction (Apart). A repeated request gets the stored value for 24 hours.
//
// The value is stored as JSON, so a T must stay equal through web.Marshal and json.Unmarshal. It is not encrypted, so it must hold no
// secret. The caller chooses the HTTP status of an answer; the table stores none.
//
// Do holds an advisory lock on the key until the transaction ends. A crash during Do leaves nothing. A crash during Apart leaves a
// claim, which expires.
package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// Kept is how long a value is stored.
const Kept = 24 * time.Hour

// Request names a request: its route, its Idempotency-Key, and a hash of its query and body. The zero value has no key, so Do and
// Apart always make its change.
type Request struct {
	route, key  string
	fingerprint []byte
}

// The values of column status.
const (
	claimed = 0 // the work has not stored its value yet
	stored  = 1
)

// Do runs a change in its transaction and stores the value it returns, or returns the value that an earlier request with the same key
// stored. A change that fails stores nothing, because its transaction is rolled back. Do returns a fault 422
// `idempotency_key_reused` if the earlier request had another body, and 409 `idempotency_in_flight` if it has not ended.
func Do[T any](ctx context.Context, tx pgx.Tx, tenantID int32, r Request, change func() (T, error)) (v T, replayed bool, err error) {
	if r.key == "" {
		v, err = change()
		return v, false, err
	}
	if err := r.lock(ctx, tx, tenantID); err != nil {
		return v, false, err
	}
	answer, found, err := r.find(ctx, tx, tenantID)
	if err != nil {
		return v, false, err
	}
	if found {
		v, err = read[T](answer)
		return v, err == nil, err
	}
	if v, err = change(); err != nil {
		return v, false, err
	}
	return v, false, r.store(ctx, tx, tenantID, v)
}

// lock takes the key's advisory lock until the transaction ends. The next request with the key then sees what this one committed.
func (r Request) lock(ctx context.Context, tx pgx.Tx, tenantID int32) error {
	var free bool
	name := fmt.Sprintf("idempotency %d %s %s", tenantID, r.route, r.key)
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`, name).Scan(&free); err != nil {
		return fmt.Errorf("lock an idempotency key: %w", err)
	}
	if !free {
		return inFlight()
	}
	return nil
}

// find returns the stored value of the request's key, if there is one.
func (r Request) find(ctx context.Context, tx pgx.Tx, tenantID int32) (answer []byte, found bool, err error) {
	var fingerprint []byte
	err = tx.QueryRow(ctx, `
		SELECT body_hash, answer
		FROM idempotency
		WHERE tenant_id = $1 AND route = $2 AND key = $3 AND created_at > `+postgres.TxNow+` - $4::interval`,
		tenantID, r.route, r.key, Kept).Scan(&fingerprint, &answer)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for an idempotency key: %w", err)
	}
	return answer, true, r.same(fingerprint)
}

func (r Request) store(ctx context.Context, tx pgx.Tx, tenantID int32, v any) error {
	answer, err := web.Marshal(v)
	if err != nil {
		return fmt.Errorf("store the value of an idempotency key: %w", err)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, `+postgres.TxNow+`)
		ON CONFLICT (tenant_id, route, key) DO UPDATE
		SET body_hash = excluded.body_hash, status = excluded.status, answer = excluded.answer, created_at = excluded.created_at`,
		tenantID, r.route, r.key, r.fingerprint, stored, answer)
	if err != nil {
		return fmt.Errorf("store the value of an idempotency key: %w", err)
	}
	return nil
}

// same returns a fault if the stored request with the same key had another query or body.
func (r Request) same(fingerprint []byte) error {
	if !bytes.Equal(fingerprint, r.fingerprint) {
		return fault.New(422, "idempotency_key_reused", "this Idempotency-Key was used before with another body")
	}
	return nil
}

func read[T any](answer []byte) (v T, err error) {
	if err := json.Unmarshal(answer, &v); err != nil {
		return v, fmt.Errorf("read the value of an idempotency key: %w", err)
	}
	return v, nil
}

func inFlight() error {
	f := fault.Conflict("idempotency_in_flight", "a request with this Idempotency-Key is in progress")
	f.RetryAfter = time.Second
	return f
}
