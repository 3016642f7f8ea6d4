package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/events"
	"github.com/carillonhq/carillon/dispatch/expect"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Config is what a Keeper needs. The functions may be nil.
type Config struct {
	Pool       *pgxpool.Pool
	IDs        ident.Codec
	Timings    *cohorts.Timings
	Quotas     record.Quotas
	Operations *operations.Operations
	Sweeps     bool
	Dispatches bool
	Horizon    *cluster.Horizon
	Unopened   *chunk.Unopened
	Idle       *sweep.Idle
	Sweep      *sweep.Sweeper
	Finish     *finish.Finisher
	Push       *push.Pusher
	Events     *events.Events
	Expect     *expect.Watcher
	Control    *control.Control
	Rarely     *loop.Rarely // of errors that come again and again
	// Settle restores the timing of the spec of a schedule whose moved ticks have passed.
	Settle func(ctx context.Context, tenant tenants.ID, workflow, key string) error
	// Uses returns how much a tenant uses of its quotas, by their names. If it is nil, there are no events of soft limits.
	Uses func(ctx context.Context, tenant tenants.ID) (map[string]tenants.Use, error)
	// Erase continues erasures of keys that no request has finished.
	Erase   func(ctx context.Context) error
	Metrics *Metrics
	Log     *slog.Logger
}

// Keeper deletes rows that are past their retention, repairs what a crash left, and reports what is stuck.
type Keeper struct {
	log    *slog.Logger
	runner *taskRunner
	tasks  []Task

	days      *dayPartitions
	retention *retention
	eraser    *tenantEraser
	zones     *newerZones // nil if this process does not sweep

	newTasks    func() []Task
	newWatchdog func() *watchdog
}

// New returns a Keeper.
func New(c Config) *Keeper {
	runner, blocks := &taskRunner{pool: c.Pool}, &blockSearch{pool: c.Pool}
	delays := &delayWalk{c.Pool, c.Unopened, c.Horizon}
	days := &dayPartitions{c.Pool, c.Log, blocks, c.Control.GiveUp}
	k := &Keeper{
		log: c.Log, runner: runner, days: days, retention: newRetention(c, runner, days),
		eraser: &tenantEraser{c.Pool, blocks}, newWatchdog: func() *watchdog { return newWatchdog(c, delays) },
	}
	if c.Sweeps {
		k.zones = &newerZones{c.Pool, c.Timings, c.Operations, c.Log}
	}
	k.newTasks = func() []Task { return newTasks(c, delays, k.eraser, days) }
	k.tasks = k.newTasks()
	return k
}

// Run runs the tasks of upkeep until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { k.upkeep(ctx) })
	if k.zones != nil {
		work.Go(func() { k.zones.watch(ctx) })
	}
	work.Wait()
}

// EnsurePartitions creates the partitions of the record from yesterday to a week ahead.
func (k *Keeper) EnsurePartitions(ctx context.Context, now time.Time) error {
	return k.days.ensure(ctx, now)
}

// EraseTenant deletes every row of a tenant that is marked for erasure, in bounded transactions, and the tenant last. done is false if
// its time was over first: another call continues.
func (k *Keeper) EraseTenant(ctx context.Context, tenant tenants.ID) (done bool, err error) {
	return k.eraser.erase(ctx, tenant)
}

// FinishTenants continues erasures of tenants that no request has finished.
func (k *Keeper) FinishTenants(ctx context.Context) error { return k.eraser.finish(ctx) }

// Retain deletes what is past its retention at a moment. It serves tests: a River job does it.
func (k *Keeper) Retain(ctx context.Context, now time.Time) error { return k.retention.run(ctx, now) }

// RetainSchedules deletes the ended ticks that their schedules do not keep at a moment, without a limit on its time. It serves tests.
func (k *Keeper) RetainSchedules(ctx context.Context, now time.Time) error {
	k.retention.mu.Lock()
	defer k.retention.mu.Unlock()
	return k.retention.schedules.retain(ctx, ages{}, now)
}

// RetainDays drops and thins the days of the record that are past their retention at a moment. It serves tests.
func (k *Keeper) RetainDays(ctx context.Context, now time.Time) error {
	a, err := k.retention.ages(ctx)
	if err != nil {
		return err
	}
	return errors.Join(k.retention.days.drop(ctx, a, now), k.retention.thinner.thin(ctx, a, now))
}

// RunTask repeats the batches of a task until nothing is left or its time is over. It does nothing if another process runs the task. It
// serves tests.
func (k *Keeper) RunTask(ctx context.Context, t Task) error { return k.runner.run(ctx, t) }

// Batch runs one batch of the task with a name, without the lock of the task, even if this process does not take part. It serves tests.
func (k *Keeper) Batch(ctx context.Context, name string) (more bool, err error) {
	return named(k.tasks, name).Some(ctx)
}

// Fresh returns the task with a name, with a memory of its own: it pauses only after its own runs. It serves tests.
func (k *Keeper) Fresh(name string) Task { return named(k.newTasks(), name) }

func named(tasks []Task, name string) Task {
	return tasks[slices.IndexFunc(tasks, func(t Task) bool { return t.Name == name })]
}

// Watchdog returns a function that looks for what is stuck, with a memory of its own. It serves tests.
func (k *Keeper) Watchdog() func(ctx context.Context, now time.Time) error {
	return k.newWatchdog().look
}
