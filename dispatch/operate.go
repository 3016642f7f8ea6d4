package dispatch

import (
	"context"

	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/dispatch/open"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
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
	if err := w.dispatch.config.Operations.Run(ctx, job.Args.Operation); err != nil && ctx.Err() == nil {
		w.dispatch.config.Log.Error("an operation does not go on", "error", err)
	}
	return nil
}

// lookForOperations finds, every second, the operations that nobody runs.
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
