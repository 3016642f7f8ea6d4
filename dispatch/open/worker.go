package open

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/riverqueue/river"
)

// Worker returns the River worker of the jobs that open chunks.
func (o *Opener) Worker() river.Worker[chunk.JobArgs] { return &worker{opener: o} }

type worker struct {
	river.WorkerDefaults[chunk.JobArgs]
	opener *Opener
}

// openLimit bounds the opening of a run of chunks, because a hanging one occupies a worker of its lane.
const openLimit = 15 * time.Second

func (w *worker) Timeout(*river.Job[chunk.JobArgs]) time.Duration { return openLimit }

// Work opens the run of a job, unless the runner of this process does so or has done so. A later attempt of the job does not rely on
// what the runner remembers.
func (w *worker) Work(ctx context.Context, job *river.Job[chunk.JobArgs]) error {
	defer w.opener.runner.fetched(job.Queue)()
	err := errNotOffered
	if job.Attempt <= 1 {
		err = w.opener.runner.await(ctx, job.Args.Chunk)
	}
	if errors.Is(err, errNotOffered) {
		var free func()
		if free, err = w.opener.runner.slot(ctx, job.Queue); err != nil {
			return err
		}
		defer free()
		err = w.opener.openJob(ctx, job.Args, time.Since(job.ScheduledAt) > jobLate)
	}
	if later, ok := errors.AsType[*notYet](err); ok {
		w.opener.tellLeft(job.Args.Chunk, later)
		return river.JobSnooze(later.wait)
	}
	return err
}

// openJob opens a run. If the run is late, it also opens the chunks that wait behind it.
func (o *Opener) openJob(ctx context.Context, run chunk.JobArgs, late bool) error {
	through := run.Through
	if late {
		further, err := o.Reach(ctx, run.Chunk)
		if err != nil {
			return err
		}
		through = max(through, further)
	}
	return o.OpenRun(ctx, run.Chunk, through)
}

// tellLeft logs that a chunk is left to a later try.
func (o *Opener) tellLeft(chunk int64, why *notYet) {
	if o.log.Due(why.why, time.Now()) {
		o.log.Warn("a chunk is left to a later try", "chunk", chunk, "wait", why.wait, "reason", why.why)
	}
}

// jobLate is the delay from which a job also opens the chunks that wait behind its own. So a backlog of small chunks shrinks faster the
// longer it is; the jobs of the other chunks then find little to do.
const jobLate = time.Second

// Reach returns the number of the last chunk that a late job may open together with the chunk first: both are first tries of one shard and
// lane. It returns 0 for later tries, which are opened one by one, and in the large lane, where priorities decide the order.
func (o *Opener) Reach(ctx context.Context, first int64) (last int64, err error) {
	err = o.pool.QueryRow(ctx, ReachOfJob, first, first+ChunksLookedAt, chunk.LargeLane, chunk.TicksOfAJob, chunk.ChunksOfAJob).Scan(&last)
	if err != nil {
		return 0, fmt.Errorf("look what waits behind chunk %d: %w", first, err)
	}
	return last, nil
}

// ChunksLookedAt is how many chunk numbers Reach considers, for a backlog of any length. One sweep numbers its chunks consecutively, so
// most neighbors are in the same shard.
const ChunksLookedAt = 8 * chunk.ChunksOfAJob

// ReachOfJob is the query of Reach.
const ReachOfJob = `
		SELECT COALESCE(max(id), 0)
		FROM (
			SELECT c.id, sum(c.ticks) OVER w AS ticks, row_number() OVER w AS n
			FROM chunk c
			WHERE ` + chunk.OfRun + ` AND c.kind = 0 AND (SELECT kind = 0 AND lane <> $3 FROM chunk WHERE id = $1)
			WINDOW w AS (ORDER BY c.id)
		) c
		WHERE ticks <= $4 AND n <= $5`
