package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
)

// claimed is the status of an answer that is not there yet.
const claimed = 0

// settleTime is how long it may take to keep an answer, or to give up the claim, once the work has ended.
const settleTime = 5 * time.Second

// RunApart is Run for work that no transaction may be open for, such as a request to somebody else: the key is claimed
// before, and the answer kept after it. A claim that is older than longest, whose process must be gone, counts no more.
func (o Once) RunApart(ctx context.Context, db postgres.DB, tenantID int32, longest time.Duration, run func() (status int, answer any, err error)) (r Reply, err error) {
	if o.key != "" {
		if r, err = o.claim(ctx, db, tenantID, longest); err != nil || r.Replayed {
			return r, err
		}
	}
	status, answer, err := run()
	var body []byte
	if err == nil {
		body, err = Marshal(answer)
	}
	r = Reply{Status: status, Body: body}
	if o.key == "" {
		return r, err
	}
	// Who asked may be gone: what has happened is kept all the same.
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err != nil {
		_, undoErr := db.Exec(settle, `
			DELETE FROM idempotency
			WHERE tenant_id = $1 AND route = $2 AND key = $3 AND body_hash = $4 AND status = $5`, tenantID, o.route, o.key, o.hash, claimed)
		return Reply{}, errors.Join(err, undoErr)
	}
	_, err = db.Exec(settle, `
		UPDATE idempotency
		SET status = $6, answer = $7
		WHERE tenant_id = $1 AND route = $2 AND key = $3 AND body_hash = $4 AND status = $5`, tenantID, o.route, o.key, o.hash, claimed, r.Status, r.Body)
	if err != nil {
		return r, fmt.Errorf("keep an idempotency key: %w", err)
	}
	return r, nil
}

// claim has the key be the caller's, unless it was another's: then the reply is what was answered, and Replayed.
func (o Once) claim(ctx context.Context, db postgres.DB, tenantID int32, longest time.Duration) (r Reply, err error) {
	taken, err := db.Exec(ctx, `
		INSERT INTO idempotency AS i (tenant_id, route, key, body_hash, status, answer, created_at)
		VALUES ($1, $2, $3, $4, $5, '', `+postgres.TxNow+`)
		ON CONFLICT (tenant_id, route, key) DO UPDATE
		SET body_hash = excluded.body_hash, status = excluded.status, answer = excluded.answer, created_at = excluded.created_at
		WHERE i.created_at <= `+postgres.TxNow+` - CASE i.status WHEN $5 THEN $6::interval ELSE $7::interval END`,
		tenantID, o.route, o.key, o.hash, claimed, longest, IdempotencyKept)
	if err != nil {
		return r, fmt.Errorf("claim an idempotency key: %w", err)
	}
	if taken.RowsAffected() == 1 {
		return r, nil
	}
	var hash []byte
	err = db.QueryRow(ctx, `
		SELECT body_hash, status, answer
		FROM idempotency
		WHERE tenant_id = $1 AND route = $2 AND key = $3`, tenantID, o.route, o.key).Scan(&hash, &r.Status, &r.Body)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // given up just now
		return r, inFlight()
	case err != nil:
		return r, fmt.Errorf("look for an idempotency key: %w", err)
	case !bytes.Equal(hash, o.hash):
		return r, fault.New(422, "idempotency_key_reused", "this Idempotency-Key came before with another body")
	case r.Status == claimed:
		return r, inFlight()
	}
	r.Replayed = true
	return r, nil
}

func inFlight() error {
	f := fault.Conflict("idempotency_in_flight", "a request with this Idempotency-Key is being worked on")
	f.RetryAfter = time.Second
	return f
}
