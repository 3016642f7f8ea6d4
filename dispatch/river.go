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

// jobs makes the client of River that works.
func (d *Dispatch) jobs() (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, d.Opener.Worker())
	river.AddWorker(workers, &operateWorker{dispatch: d})
	river.AddWorker(workers, d.Keeper.Worker())
	return river.NewClient(silentDriver{riverpgxv5.New(d.config.Pool)}, &river.Config{
		Logger:                      slog.New(quiet{d.config.Log.Handler()}),
		FetchCooldown:               10 * time.Millisecond,
		FetchPollInterval:           time.Second, // a notification wakes it, of River's or of ours: this is for one that is lost
		CompletedJobRetentionPeriod: 5 * time.Minute,
		JobTimeout:                  time.Minute,
		RescueStuckJobsAfter:        2 * time.Minute,
		ReindexerIndexNames:         []string{"river_job_kind", "river_job_prioritized_fetching_index", "river_job_state_and_finalized_at_index"},
		ReindexerSchedule:           river.PeriodicInterval(17 * time.Hour),
		Workers:                     workers,
		PeriodicJobs:                []*river.PeriodicJob{upkeep.Retaining()},
		Queues: map[string]river.QueueConfig{
			chunk.SmallLane: {MaxWorkers: jobsOfLane}, chunk.LargeLane: {MaxWorkers: open.RunsAtOnce[chunk.LargeLane]}, chunk.CatchUpLane: {MaxWorkers: open.RunsAtOnce[chunk.CatchUpLane]},
			chunk.WorkLane: {MaxWorkers: 2, FetchPollInterval: 2 * time.Second}, // nothing in it is due to the second
		},
	})
}

// silentDriver has River notify nobody of new jobs in the transaction that makes them: PostgreSQL commits those one after another,
// each until it is flushed. We notify River's clients of the jobs that they are to look for.
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

// Open makes a job for each run of chunks, which opens it.
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

// QueueOperation makes a process that dispatches run operations, once tx is committed. One that waits for its turn already is not
// queued twice; a job that some process works on, or has died with, does not count.
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
