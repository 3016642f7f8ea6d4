package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// jobsOfLane is how many jobs of the lane of small chunks a process takes at once. Most find their runs opened. The others wait for a
// slot of the lane.
const jobsOfLane = 16

// jobs makes River's client: one that works where this process dispatches, else one that only inserts.
func (d *Dispatch) jobs() (*river.Client[pgx.Tx], error) {
	config := &river.Config{
		Logger:                      slog.New(quiet{d.Log.Handler()}),
		FetchCooldown:               10 * time.Millisecond,
		FetchPollInterval:           time.Second, // a notification wakes it, of River's or of ours: this is for one that is lost
		CompletedJobRetentionPeriod: 5 * time.Minute,
		JobTimeout:                  time.Minute,
		RescueStuckJobsAfter:        2 * time.Minute,
		ReindexerIndexNames:         []string{"river_job_kind", "river_job_prioritized_fetching_index", "river_job_state_and_finalized_at_index"},
		ReindexerSchedule:           river.PeriodicInterval(17 * time.Hour),
	}
	if d.Dispatches {
		config.Workers = river.NewWorkers()
		river.AddWorker(config.Workers, &openWorker{dispatch: d})
		river.AddWorker(config.Workers, &operateWorker{dispatch: d})
		river.AddWorker(config.Workers, &retainWorker{dispatch: d})
		config.PeriodicJobs = []*river.PeriodicJob{retaining()}
		config.Queues = map[string]river.QueueConfig{
			smallLane: {MaxWorkers: jobsOfLane}, largeLane: {MaxWorkers: openers[largeLane]}, catchUpLane: {MaxWorkers: openers[catchUpLane]},
			workLane: {MaxWorkers: 2, FetchPollInterval: 2 * time.Second}, // nothing in it is due to the second
		}
	}
	return river.NewClient(silentDriver{riverpgxv5.New(d.Pool)}, config)
}

// silentDriver has River notify nobody of new jobs in the transaction that makes them: PostgreSQL commits those one after another,
// each until it is flushed. We notify River's clients of the jobs that they are to look for.
type silentDriver struct{ riverdriver.Driver[pgx.Tx] }

func (silentDriver) SupportsListenNotify() bool { return false }

// quiet drops what River says below a warning.
type quiet struct{ slog.Handler }

func (quiet) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

// insertJobs makes a job for each run.
func (d *Dispatch) insertJobs(ctx context.Context, tx pgx.Tx, runs []openRun) error {
	jobs := make([]river.InsertManyParams, len(runs))
	for i, r := range runs {
		jobs[i] = river.InsertManyParams{Args: r.openArgs, InsertOpts: &river.InsertOpts{Queue: r.lane, Priority: r.priority}}
	}
	if _, err := d.river.InsertManyFastTx(ctx, tx, jobs); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}
