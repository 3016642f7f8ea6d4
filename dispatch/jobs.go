package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// Lanes are River queues, each with workers of its own, so that a herd or a catching up leaves the others on time.
const (
	smallLane   = "small"
	largeLane   = "large"
	catchUpLane = "catchup"
	workLane    = "work"
)

// openArgs are the arguments of the River job that opens a chunk: its number, and nothing else.
type openArgs struct {
	Chunk int64 `json:"chunk"`
}

func (openArgs) Kind() string { return "open" }

type openWorker struct {
	river.WorkerDefaults[openArgs]
	dispatch *Dispatch
}

func (w *openWorker) Work(ctx context.Context, job *river.Job[openArgs]) error {
	return w.dispatch.open(ctx, job.Args.Chunk)
}

// jobs makes River's client: one that works where this process dispatches, else one that only inserts.
func (d *Dispatch) jobs() (*river.Client[pgx.Tx], error) {
	config := &river.Config{
		Logger:                      slog.New(quiet{d.Log.Handler()}),
		FetchCooldown:               10 * time.Millisecond,
		FetchPollInterval:           100 * time.Millisecond,
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
			smallLane: {MaxWorkers: 4}, largeLane: {MaxWorkers: 4}, catchUpLane: {MaxWorkers: 2}, workLane: {MaxWorkers: 2},
		}
	}
	return river.NewClient(riverpgxv5.New(d.Pool), config)
}

// quiet drops what River says below a warning.
type quiet struct{ slog.Handler }

func (quiet) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

func openJob(chunk int64, lane string, priority int) river.InsertManyParams {
	return river.InsertManyParams{Args: openArgs{chunk}, InsertOpts: &river.InsertOpts{Queue: lane, Priority: priority}}
}
