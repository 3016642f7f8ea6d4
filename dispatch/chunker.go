package dispatch

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Chunker writes chunks of due ticks with the jobs that open them. The sweep of a process and the changes of schedules share one, as it
// counts what each tenant was given.
type Chunker struct {
	quotas   Quotas
	purse    *purse
	pressure pressure
	insert   func(ctx context.Context, tx pgx.Tx, runs []openRun) error
}

// NewChunker returns a Chunker. insert makes the jobs that open runs of chunks.
func NewChunker(pool *pgxpool.Pool, quotas Quotas, insert func(ctx context.Context, tx pgx.Tx, runs []openRun) error) *Chunker {
	return &Chunker{quotas: quotas, purse: newPurse(pool), insert: insert}
}

// insertChunks writes chunks with the jobs that open them.
func (c *Chunker) insertChunks(ctx context.Context, tx pgx.Tx, cs *chunks) (runs []openRun, err error) {
	made, err := cs.insert(ctx, tx)
	if err != nil || len(made) == 0 {
		return nil, err
	}
	runs = c.openRuns(made)
	return runs, c.insert(ctx, tx, runs)
}

// openRuns groups the chunks of one sweep into runs. Neighbours of one lane and priority share a run while they are small.
func (c *Chunker) openRuns(made []newChunk) (runs []openRun) {
	for i := range made {
		one := &made[i]
		first := priority(c.pressure.add(one.tenant))
		if n := len(runs); n > 0 && one.kind == firstTries {
			last := &runs[n-1]
			if last.lane == one.lane && last.priority == first && last.chunks < chunksOfAJob && last.ticks+one.count <= ticksOfAJob {
				last.Through, last.chunks, last.ticks = one.id, last.chunks+1, last.ticks+one.count
				continue
			}
		}
		run := openRun{openArgs: openArgs{Chunk: one.id}, lane: one.lane, priority: first, chunks: 1, ticks: one.count}
		if one.kind != firstTries {
			run.ticks = ticksOfAJob // nothing joins it
		}
		runs = append(runs, run)
	}
	return runs
}
