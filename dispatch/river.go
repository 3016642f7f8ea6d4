package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/open"
	"github.com/carillonhq/carillon/dispatch/upkeep"
)

// jobsOfLane is how many jobs of the lane of small chunks a process takes at once. Most find their runs opened. The others wait for a
// slot of the lane.
const jobsOfLane = 16

// jobs returns the River client that works on jobs.
func (d *Dispatch) jobs() (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, d.Opener.Worker())
	river.AddWorker(workers, &operateWorker{dispatch: d})
	river.AddWorker(workers, d.Keeper.Worker())
	return river.NewClient(silentDriver{riverpgxv5.New(d.config.Pool)}, &river.Config{
		Logger:                      slog.New(quiet{d.config.Log.Handler()}),
		FetchCooldown:               10 * time.Millisecond,
		FetchPollInterval:           time.Second, // a notification of River's or ours wakes it earlier; the poll is for a lost one
		CompletedJobRetentionPeriod: 5 * time.Minute,
		JobTimeout:                  time.Minute,
		RescueStuckJobsAfter:        2 * time.Minute,
		ReindexerIndexNames:         []string{"river_job_kind", "river_job_prioritized_fetching_index", "river_job_state_and_finalized_at_index"},
		ReindexerSchedule:           river.PeriodicInterval(17 * time.Hour),
		Workers:                     workers,
		PeriodicJobs:                []*river.PeriodicJob{upkeep.Retaining()},
		Queues: map[string]river.QueueConfig{
			chunk.SmallLane: {MaxWorkers: jobsOfLane}, chunk.LargeLane: {MaxWorkers: open.RunsAtOnce[chunk.LargeLane]}, chunk.CatchUpLane: {MaxWorkers: open.RunsAtOnce[chunk.CatchUpLane]},
			chunk.WorkLane: {MaxWorkers: 2, FetchPollInterval: 2 * time.Second}, // none of these jobs must begin within a second
		},
	})
}

const (
	startLimit = 15 * time.Second // how long River may take to reach the database when a process starts
	startAgain = 200 * time.Millisecond
)

// startJobs starts River, which works until run ends. River makes its first connection while the loops make theirs, and on a busy machine
// that one may exceed the limit of a connection. So startJobs tries again for some seconds, unless ctx ends.
func (d *Dispatch) startJobs(ctx, run context.Context) error {
	for began := time.Now(); ; {
		err := d.river.Start(run)
		if err == nil {
			return nil
		}
		if time.Since(began) > startLimit || ctx.Err() != nil {
			return fmt.Errorf("start jobs: %w", err)
		}
		d.config.Log.Warn("cannot start jobs yet", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(startAgain):
		}
	}
}

// silentDriver keeps River from sending a notification in the transaction that inserts jobs, because PostgreSQL commits transactions
// with notifications one after another, each until it is flushed. Package cluster notifies River's clients of jobs to look for.
type silentDriver struct{ riverdriver.Driver[pgx.Tx] }

func (silentDriver) SupportsListenNotify() bool { return false }

// quiet drops what River says below a warning.
type quiet struct{ slog.Handler }

func (quiet) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// Jobs makes River's jobs. It works on none of them.
type Jobs struct{ client *river.Client[pgx.Tx] }

// NewJobs returns Jobs in a database.
func NewJobs(pool *pgxpool.Pool, log *slog.Logger) (*Jobs, error) {
	client, err := river.NewClient(silentDriver{riverpgxv5.New(pool)}, &river.Config{Logger: slog.New(quiet{log.Handler()})})
	if err != nil {
		return nil, fmt.Errorf("set up jobs: %w", err)
	}
	return &Jobs{client}, nil
}

// Open inserts, for each run of chunks, the job that opens it.
func (j *Jobs) Open(ctx context.Context, tx pgx.Tx, runs []chunk.Run) error {
	jobs := make([]river.InsertManyParams, len(runs))
	for i, r := range runs {
		jobs[i] = river.InsertManyParams{Args: r.JobArgs, InsertOpts: &river.InsertOpts{Queue: r.Lane, Priority: r.Priority}}
	}
	if _, err := j.client.InsertManyFastTx(ctx, tx, jobs); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}

// QueueOperation inserts the jobs that run operations, and announces them when tx is committed. It skips an operation that already has a
// job in the queue. A job that a process runs, or ran when it died, does not count.
func (j *Jobs) QueueOperation(ctx context.Context, tx pgx.Tx, ids ...int64) error {
	rows, _ := tx.Query(ctx, `
		SELECT n.id
		FROM unnest($1::bigint[]) AS n (id)
		WHERE NOT EXISTS (
			SELECT FROM river_job
			WHERE kind = '`+operateArgs{}.Kind()+`' AND state = 'available' AND (args ->> 'operation')::bigint = n.id)`, ids) // CollectRows reports the error
	missing, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(missing) == 0 {
		return err
	}
	jobs := make([]river.InsertManyParams, len(missing))
	for i, id := range missing {
		jobs[i] = river.InsertManyParams{Args: operateArgs{id}, InsertOpts: &river.InsertOpts{Queue: chunk.WorkLane, MaxAttempts: 1}}
	}
	if _, err = j.client.InsertManyTx(ctx, tx, jobs); err != nil {
		return err
	}
	return cluster.AnnounceLane(ctx, tx, chunk.WorkLane)
}
