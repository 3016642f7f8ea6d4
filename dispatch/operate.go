package dispatch

import (
	"context"

	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/dispatch/open"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
)

// operateArgs are the arguments of the River job that runs an operation for one turn: only its number.
type operateArgs struct {
	Operation int64 `json:"operation"`
}

func (operateArgs) Kind() string { return "operate" }

type operateWorker struct {
	river.WorkerDefaults[operateArgs]
	dispatch *Dispatch
}

// Work runs one turn of an operation. It returns no error, so River does not retry the job: lookForOperations queues the operation again.
func (w *operateWorker) Work(ctx context.Context, job *river.Job[operateArgs]) error {
	if err := w.dispatch.config.Operations.Run(ctx, job.Args.Operation); err != nil && ctx.Err() == nil {
		w.dispatch.config.Log.Error("cannot continue an operation", "error", err)
	}
	return nil
}

// lookForOperations looks every second for operations that no process runs, and queues them.
func (d *Dispatch) lookForOperations(ctx context.Context) {
	loop.Every(ctx, d.config.Log, open.TakeEvery, "look for operations", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
		defer cancel()
		some, err := postgres.Finds(ctx, d.config.Pool, `SELECT FROM operation WHERE ended_at IS NULL AND look_at <= (SELECT `+postgres.Now+`)`)
		if err != nil || !some {
			return err
		}
		return d.config.Operations.Look(ctx)
	})
}
