package sweep

import (
	"context"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/rate"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Chunker writes chunks of due ticks with the jobs that open them. The sweep of a process and the changes of schedules share one, because
// it counts the ticks of each tenant.
type Chunker struct {
	quotas   record.Quotas
	limiter  *limiter
	debts    rate.Debts // of workflows
	pressure pressure
	insert   func(ctx context.Context, tx pgx.Tx, runs []chunk.Run) error
	traces   *trace.Tracer
}

// NewChunker returns a Chunker. insert inserts the jobs that open runs of chunks. traces may be nil.
func NewChunker(pool *pgxpool.Pool, quotas record.Quotas, insert func(ctx context.Context, tx pgx.Tx, runs []chunk.Run) error, traces *trace.Tracer) *Chunker {
	return &Chunker{quotas: quotas, limiter: newLimiter(pool), insert: insert, traces: traces}
}

// insertChunks writes chunks with the jobs that open them.
func (c *Chunker) insertChunks(ctx context.Context, tx pgx.Tx, cs *chunk.Batch) (runs []chunk.Run, err error) {
	cs.Traces = c.traces
	made, err := cs.Insert(ctx, tx)
	if err != nil || len(made) == 0 {
		return nil, err
	}
	runs = c.openRuns(made)
	return runs, c.insert(ctx, tx, runs)
}

// openRuns groups the chunks of one sweep into runs. Neighbours of one lane and priority share a run while they are small.
func (c *Chunker) openRuns(made []chunk.Draft) (runs []chunk.Run) {
	for i := range made {
		one := &made[i]
		first := priority(c.pressure.add(one.Tenant))
		if n := len(runs); n > 0 && one.Kind == chunk.FirstTries {
			last := &runs[n-1]
			if last.Lane == one.Lane && last.Priority == first && last.Chunks < chunk.ChunksOfAJob && last.Ticks+one.Count <= chunk.TicksOfAJob {
				last.Through, last.Chunks, last.Ticks = one.ID, last.Chunks+1, last.Ticks+one.Count
				continue
			}
		}
		run := chunk.Run{JobArgs: chunk.JobArgs{Chunk: one.ID}, Lane: one.Lane, Priority: first, Chunks: 1, Ticks: one.Count}
		if one.Kind != chunk.FirstTries {
			run.Ticks = chunk.TicksOfAJob // so that no other chunk joins the run
		}
		runs = append(runs, run)
	}
	return runs
}
