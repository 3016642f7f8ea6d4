package dispatch

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// operateArgs are the arguments of the River job that has a turn at an operation: its number, and nothing else.
type operateArgs struct {
	Operation int64 `json:"operation"`
}

func (operateArgs) Kind() string { return "operate" }

type operateWorker struct {
	river.WorkerDefaults[operateArgs]
	dispatch *Dispatch
}

// Work has one turn. What fails is looked after by whoever looks for operations, not by River.
func (w *operateWorker) Work(ctx context.Context, job *river.Job[operateArgs]) error {
	if err := w.dispatch.Operations.Run(ctx, job.Args.Operation); err != nil && ctx.Err() == nil {
		w.dispatch.Log.Error("an operation does not go on", "error", err)
	}
	return nil
}

// QueueOperation has a process that dispatches run an operation, once tx is committed. One that waits for its turn
// already is not queued twice; a job that some process works on, or has died with, does not count.
func (d *Dispatch) QueueOperation(ctx context.Context, tx pgx.Tx, id int64) error {
	var queued bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM river_job
			WHERE state = 'available' AND queue = $1 AND kind = $2 AND args @> jsonb_build_object('operation', $3::bigint))`,
		workLane, operateArgs{}.Kind(), id).Scan(&queued)
	if err != nil || queued {
		return err
	}
	_, err = d.river.InsertTx(ctx, tx, operateArgs{id}, &river.InsertOpts{Queue: workLane, MaxAttempts: 1})
	return err
}

// lookForOperations finds, every second, the operations that nobody runs.
func (d *Dispatch) lookForOperations(ctx context.Context) {
	d.every(ctx, takeEvery, "look for operations", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		some, err := d.finds(ctx, `SELECT FROM operation WHERE ended_at IS NULL AND look_at <= (SELECT clock_timestamp())`)
		if err != nil || !some {
			return err
		}
		return d.Operations.Look(ctx)
	})
}
