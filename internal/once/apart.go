package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// storeTimeout bounds how long Apart takes to store the value, or to delete the claim, after the work has ended.
const storeTimeout = 5 * time.Second

// Apart is Do for work that must run outside a transaction, such as a request to an endpoint. It claims the key before the work, and
// stores the value after it. A claim older than longest expires: its process has crashed.
func Apart[T any](ctx context.Context, db postgres.DB, tenantID int32, r Request, longest time.Duration, work func() (T, error)) (v T, replayed bool, err error) {
	if r.key == "" {
		v, err = work()
		return v, false, err
	}
	answer, found, err := r.claim(ctx, db, tenantID, longest)
	if err != nil {
		return v, false, err
	}
	if found {
		v, err = read[T](answer)
		return v, err == nil, err
	}
	v, err = work()
	// The work is done, so its value is stored even if the client has disconnected.
	storeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err == nil {
		answer, err = web.Marshal(v)
	}
	if err != nil {
		return v, false, errors.Join(err, r.release(storeCtx, db, tenantID))
	}
	_, err = db.Exec(storeCtx, `
		UPDATE idempotency
		SET status = $6, answer = $7
		WHERE tenant_id = $1 AND route = $2 AND key = $3 AND body_hash = $4 AND status = $5`, tenantID, r.route, r.key, r.fingerprint, claimed, stored, answer)
	if err != nil {
		return v, false, fmt.Errorf("store the value of an idempotency key: %w", err)
	}
	return v, false, nil
}

// claim claims the key for the caller. If another request has stored a value, it returns that value instead.
func (r Request) claim(ctx context.Context, db postgres.DB, tenantID int32, longest time.Duration) (answer []byte, found bool, err error) {
	taken, err := db.Exec(ctx, `
		INSERT INTO idempotency AS i (tenant_id, route, key, body_hash, status, answer, created_at)
		VALUES ($1, $2, $3, $4, $5, '', `+postgres.TxNow+`)
		ON CONFLICT (tenant_id, route, key) DO UPDATE
		SET body_hash = excluded.body_hash, status = excluded.status, answer = excluded.answer, created_at = excluded.created_at
		WHERE i.created_at <= `+postgres.TxNow+` - CASE i.status WHEN $5 THEN $6::interval ELSE $7::interval END`,
		tenantID, r.route, r.key, r.fingerprint, claimed, longest, Kept)
	if err != nil {
		return nil, false, fmt.Errorf("claim an idempotency key: %w", err)
	}
	if taken.RowsAffected() == 1 {
		return nil, false, nil
	}
	var fingerprint []byte
	var status int
	err = db.QueryRow(ctx, `
		SELECT body_hash, status, answer
		FROM idempotency
		WHERE tenant_id = $1 AND route = $2 AND key = $3`, tenantID, r.route, r.key).Scan(&fingerprint, &status, &answer)
	if errors.Is(err, pgx.ErrNoRows) { // the other request released its claim a moment ago
		return nil, false, inFlight()
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for an idempotency key: %w", err)
	}
	if err := r.same(fingerprint); err != nil {
		return nil, false, err
	}
	if status == claimed {
		return nil, false, inFlight()
	}
	return answer, true, nil
}

// release deletes the caller's claim, so that the next request with the key does the work.
func (r Request) release(ctx context.Context, db postgres.DB, tenantID int32) error {
	_, err := db.Exec(ctx, `
		DELETE FROM idempotency
		WHERE tenant_id = $1 AND route = $2 AND key = $3 AND body_hash = $4 AND status = $5`, tenantID, r.route, r.key, r.fingerprint, claimed)
	return err
}
