// Package once makes a change at most once for each Idempotency-Key of a tenant.
//
// It stores the value that a change returned in table idempotency, in the transaction of the change (Do) or around work that no
// transaction may be open for (Apart). A request that comes again gets the stored value for 24 hours. The value is stored as JSON, so
// a T must be the same after web.Marshal and json.Unmarshal; it is stored in the clear, so it must hold no secret. The caller
// decides how a value is answered: the table knows no status.
//
// Do locks the key until the transaction ends (an advisory lock). A crash leaves nothing of Do, and a claim of Apart until it lapses.
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

// Kept is how long the value of a request with an Idempotency-Key is stored.
const Kept = 24 * time.Hour

// Request names a request: the route it was sent to, its Idempotency-Key, and a hash of what it asks. The zero value has no key, and
// each of its changes is made.
type Request struct {
	route, key  string
	fingerprint []byte
}

// What column status says of a row.
const (
	claimed = 0 // the value is not there yet
	stored  = 1
)

// Do runs a change in its transaction and stores the value it returns, or returns the value that an earlier request with the same key
// stored. A change that fails stores nothing, because its transaction is rolled back. It returns a fault 422 `idempotency_key_reused`
// if the earlier request asked something else, and 409 `idempotency_in_flight` if it has not ended.
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

// lock keeps other requests with the same key out until the transaction ends. The next one sees what this one committed.
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

// same returns a fault if the stored request with the same key asked something else.
func (r Request) same(fingerprint []byte) error {
	if !bytes.Equal(fingerprint, r.fingerprint) {
		return fault.New(422, "idempotency_key_reused", "this Idempotency-Key came before with another body")
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
	f := fault.Conflict("idempotency_in_flight", "a request with this Idempotency-Key is being worked on")
	f.RetryAfter = time.Second
	return f
}
