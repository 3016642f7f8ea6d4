package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// KeptFor is how long an operation is shown after its end, and how long its pause can be undone.
const KeptFor = 7 * 24 * time.Hour

const (
	silentFor    = 3 * time.Second  // after so long without a step the runner counts as dead
	sliceOf      = 2 * time.Second  // one turn of a runner; then other operations run
	stepTimeout  = 30 * time.Second // bounds one step, which should take a second
	mostFailures = 12               // steps in a row that may fail for an internal reason
	longestAgain = time.Minute      // between two such failures
	mostLooked   = 100
	newerWait    = time.Minute // before the next step of an operation whose data a newer program wrote
)

// lock locks an operation for a step until tx ends. It reports false if another step holds the lock.
func lock(ctx context.Context, tx pgx.Tx, id int64) (free bool, err error) {
	err = tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1, $2)`, postgres.StepLocks, int32(id)).Scan(&free)
	if err != nil {
		return false, fmt.Errorf("lock operation: %w", err)
	}
	return free, nil
}

// Run runs an operation step by step. It stops when nothing is left, the operation is cancelled or waits, or another process runs it. After its
// turn of 2 s the operation is queued again behind others. An error is internal: Look queues the operation again later.
func (o *Operations) Run(ctx context.Context, id int64) error {
	for turn := time.Now(); ; {
		var more bool
		err := postgres.Retry(ctx, func() (err error) {
			more, err = o.step(ctx, id)
			return err
		})
		if fault.IsNewerVersion(err) {
			return o.putOff(ctx, id)
		}
		if err != nil && ctx.Err() == nil {
			return errors.Join(err, o.stumble(ctx, id))
		}
		if err != nil || !more {
			return err
		}
		if o.Queue != nil && time.Since(turn) > sliceOf {
			return pgx.BeginFunc(ctx, o.Engine, func(tx pgx.Tx) error { return o.Queue(ctx, tx, id) })
		}
	}
}

// step runs one step in a transaction of its own. more reports that the next one may follow at once.
func (o *Operations) step(ctx context.Context, id int64) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var refused *fault.Error
	err = pgx.BeginFunc(ctx, o.Engine, func(tx pgx.Tx) error {
		free, err := lock(ctx, tx, id)
		if err != nil || !free {
			return err
		}
		op, err := o.runnable(ctx, tx, id)
		if err != nil || op == nil {
			return err
		}
		step, known := o.steps[op.Kind]
		if !known {
			return nil
		}
		done, err := step(postgres.ForTenant(ctx, int32(op.Tenant)), tx, op)
		if f, ok := fault.Refusal(err); ok { // any other error is internal, and the step is tried again
			refused = f
			return err
		}
		if err != nil {
			return fmt.Errorf("operation %d (%s): %w", op.ID, op.Kind, err)
		}
		more = !done && !op.WaitUntil.After(op.Now)
		if err := op.save(ctx, tx, done); err != nil || !done {
			return err
		}
		return o.ended(ctx, tx, op.Tenant, op.ID, op.Kind, Succeeded)
	})
	if refused == nil {
		return more && err == nil, err
	}
	return false, o.end(ctx, "fail operation", `
		UPDATE operation
		SET state = 'failed', error = CASE WHEN NOT cancel THEN $2 END, cursor = NULL, ended_at = `+postgres.Now+`, started_at = COALESCE(started_at, `+postgres.Now+`)
		WHERE id = $1 AND ended_at IS NULL
		RETURNING tenant_id, kind, state, true`, id, refused.Error())
}

// end runs a statement that may end an operation, and notes the event if it has. The statement returns the tenant, the kind and the state,
// and whether the operation has ended. what names the statement in an error.
func (o *Operations) end(ctx context.Context, what, sql string, id int64, args ...any) error {
	err := pgx.BeginFunc(ctx, o.Engine, func(tx pgx.Tx) error {
		var tenant tenants.ID
		var kind, state string
		var ended bool
		err := tx.QueryRow(ctx, sql, append([]any{id}, args...)...).Scan(&tenant, &kind, &state, &ended)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !ended {
			return nil
		}
		if err != nil {
			return err
		}
		return o.ended(ctx, tx, tenant, id, kind, state)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ended notes the end of an operation for the tenant, in the transaction that ends it.
func (o *Operations) ended(ctx context.Context, tx pgx.Tx, tenant tenants.ID, id int64, kind, state string) error {
	shown := o.IDs.Operation(id)
	return tenants.Happened(ctx, tx, tenant, tenants.Happening{
		Event: tenants.OperationEnded, Cause: shown, Data: map[string]string{"operation_id": shown, "kind": kind, "state": state},
	})
}

// runnable reads an operation whose next step is due. It ends an operation that a client has cancelled.
func (o *Operations) runnable(ctx context.Context, tx pgx.Tx, id int64) (*Operation, error) {
	op := &Operation{ID: id}
	var tenant int32
	var cancel bool
	err := tx.QueryRow(ctx, `
		SELECT tenant_id, kind, started_by, params, cursor, done, total, counts, cancel, created_at, `+postgres.Now+`
		FROM operation
		WHERE id = $1 AND ended_at IS NULL AND (due_at <= `+postgres.Now+` OR cancel)`, id).
		Scan(&tenant, &op.Kind, &op.By, &op.Params, &op.Cursor, &op.Done, &op.Total, &op.Counts, &cancel, &op.Begun, &op.Now)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read operation: %w", err)
	}
	op.Tenant, op.Begun, op.Now = tenants.ID(tenant), op.Begun.UTC(), op.Now.UTC()
	if !cancel {
		return op, nil
	}
	if _, err := tx.Exec(ctx, `UPDATE operation SET state = 'cancelled', cursor = NULL, ended_at = `+postgres.Now+` WHERE tenant_id = $1 AND id = $2`, tenant, id); err != nil {
		return nil, fmt.Errorf("cancel operation: %w", err)
	}
	return nil, o.ended(ctx, tx, op.Tenant, id, op.Kind, Cancelled)
}

// save writes the progress of a step in its transaction. The cursor can have a key, so it is kept only for a next step.
func (op *Operation) save(ctx context.Context, tx pgx.Tx, done bool) error {
	state := Running
	if done {
		state = Succeeded
	}
	var result []byte
	if op.Result != nil {
		var err error
		if result, err = json.Marshal(op.Result); err != nil {
			return fmt.Errorf("result of operation %d: %w", op.ID, err)
		}
	}
	counts := op.Counts
	if counts == nil {
		counts = map[string]int64{}
	}
	wait := op.WaitUntil
	if wait.Before(op.Now) {
		wait = op.Now
	}
	_, err := tx.Exec(ctx, `
		UPDATE operation
		SET state = $2, cursor = CASE WHEN NOT $11 AND NOT cancel THEN $3::json END, done = $4, total = $5, counts = $6, result = COALESCE($7, result), failures = 0,
			started_at = COALESCE(started_at, $8), stepped_at = `+postgres.Now+`,
			due_at = $9, look_at = CASE WHEN cancel THEN `+postgres.Now+` WHEN $9 > $8 THEN $9 ELSE `+postgres.Now+` + $10::interval END,
			ended_at = CASE WHEN $11 THEN `+postgres.Now+` END
		WHERE tenant_id = $12 AND id = $1`,
		op.ID, state, op.Cursor, op.Done, op.Total, counts, result, op.Now, wait, silentFor, done, op.Tenant)
	if err != nil {
		return fmt.Errorf("save operation %d: %w", op.ID, err)
	}
	return nil
}

// putOff delays the next step of an operation that only a newer program can read.
func (o *Operations) putOff(ctx context.Context, id int64) error {
	_, err := o.Engine.Exec(ctx, `
		UPDATE operation
		SET due_at = `+postgres.Now+` + $2::interval, look_at = `+postgres.Now+` + $2::interval
		WHERE id = $1 AND ended_at IS NULL`, id, newerWait)
	if err != nil {
		return fmt.Errorf("put off operation: %w", err)
	}
	return nil
}

// stumble notes that a step failed for an internal reason, and delays the next one: longer each time, and after mostFailures it ends the
// operation as failed.
func (o *Operations) stumble(ctx context.Context, id int64) error {
	return o.end(ctx, "put off operation", `
		UPDATE operation
		SET failures = failures + 1,
			due_at = `+postgres.Now+` + least($2::interval, interval '0.5 s' * 2 ^ failures),
			look_at = `+postgres.Now+` + least($2::interval, interval '0.5 s' * 2 ^ failures),
			state = CASE WHEN failures + 1 >= $3 THEN 'failed' ELSE state END,
			cursor = CASE WHEN failures + 1 < $3 THEN cursor END,
			error = CASE WHEN failures + 1 >= $3 THEN 'the service could not go on with it: what is done stays' END,
			ended_at = CASE WHEN failures + 1 >= $3 THEN `+postgres.Now+` END
		WHERE id = $1 AND ended_at IS NULL
		RETURNING tenant_id, kind, state, ended_at IS NOT NULL`, id, longestAgain, mostFailures)
}

// Look queues operations that are due but had no step lately: their process may be dead, or they waited. Any number of processes call it
// about once a second.
func (o *Operations) Look(ctx context.Context) error {
	if o.Queue == nil {
		return nil
	}
	return pgx.BeginFunc(ctx, o.Engine, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			UPDATE operation
			SET look_at = `+postgres.Now+` + $1::interval
			WHERE id IN (
				SELECT id
				FROM operation
				WHERE ended_at IS NULL AND look_at <= (SELECT `+postgres.Now+`)
				ORDER BY look_at
				LIMIT $2
				FOR UPDATE SKIP LOCKED)
			RETURNING id`, silentFor, mostLooked) // CollectRows reports the error
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return fmt.Errorf("look for operations: %w", err)
		}
		if len(ids) == 0 {
			return nil
		}
		return o.Queue(ctx, tx, ids...)
	})
}

// Clear deletes operations that ended a week ago, at most limit of them, and returns how many. It is for one goroutine at a time.
func (o *Operations) Clear(ctx context.Context, limit int) (int64, error) {
	n, err := o.old.Some(ctx, o.Engine, limit)
	if err != nil {
		return 0, fmt.Errorf("clear operations: %w", err)
	}
	return n, nil
}
