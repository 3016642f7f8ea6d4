package upkeep

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/events"
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
	Control    *control.Control
	Rarely     *loop.Rarely // of errors that come again and again
	// Settle returns a schedule whose moved ticks have passed to the timing of its spec.
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
	pool       *pgxpool.Pool
	ids        ident.Codec
	timings    *cohorts.Timings
	quotas     record.Quotas
	operations *operations.Operations
	sweeps     bool
	dispatches bool
	horizon    *cluster.Horizon
	unopened   *chunk.Unopened
	idle       *sweep.Idle
	sweep      *sweep.Sweeper
	finish     *finish.Finisher
	push       *push.Pusher
	events     *events.Events
	control    *control.Control
	rarely     *loop.Rarely
	settle     func(ctx context.Context, tenant tenants.ID, workflow, key string) error
	uses       func(ctx context.Context, tenant tenants.ID) (map[string]tenants.Use, error)
	erase      func(ctx context.Context) error
	metrics    *Metrics
	log        *slog.Logger

	retained  retained
	taskLocks taskLocks
	watchdog  *watchdog
	searched  sync.Map // by the name of a search: the blocks that it has read

	// What the tasks remember between two runs. The lock of the task guards it.
	delaysAt    delaysPlace   // of RearmLost
	ratesAt     ratePlace     // of clearRates
	analyzed    time.Time     // of fold
	processEnds cluster.Floor // of ClearProcesses
}

// New returns a Keeper.
func New(c Config) *Keeper {
	k := &Keeper{
		pool: c.Pool, ids: c.IDs, timings: c.Timings, quotas: c.Quotas, operations: c.Operations, sweeps: c.Sweeps, dispatches: c.Dispatches, horizon: c.Horizon,
		unopened: c.Unopened, idle: c.Idle, sweep: c.Sweep, finish: c.Finish, push: c.Push, events: c.Events, control: c.Control, rarely: c.Rarely,
		settle: c.Settle, uses: c.Uses, erase: c.Erase, metrics: c.Metrics, log: c.Log,
		retained: retained{thinned: map[string]string{}, thinning: map[string]thinPlace{}},
	}
	k.watchdog = newWatchdog(k)
	return k
}

// Run runs the tasks of upkeep until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { k.upkeep(ctx) })
	if k.sweeps {
		work.Go(func() { k.rezone(ctx) })
	}
	work.Wait()
}

// Watch looks once for what is stuck, and sets the metrics.
func (k *Keeper) Watch(ctx context.Context) error { return k.watchdog.look(ctx, time.Now()) }

// Watchdog returns a function that looks for what is stuck, with a memory of its own.
func (k *Keeper) Watchdog() func(ctx context.Context, now time.Time) error {
	return newWatchdog(k).look
}
