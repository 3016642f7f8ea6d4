// Package dispatch makes ticks happen. A due tick is swept into a chunk under its shard's lock, opened by a River job,
// which decides what becomes of it and commits its row, and only then sent: pushed to an endpoint, or leased by a
// worker. Handing out is exactly once; delivery is at least once, under the same tick id. Nothing is sent before its
// nominal time by the database's clock.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
)

// Quotas returns the quotas of a tenant, or an error after a second at most: each push asks it.
type Quotas func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)

// Config is what Dispatch stands on.
type Config struct {
	Pool       *pgxpool.Pool // of the engine
	API        postgres.DB   // what the routes of tenants go by: it shows a tenant's rows only
	IDs        ident.Codec
	Timings    *cohorts.Timings
	Quotas     Quotas
	Cursors    *web.Cursor
	LeaseKey   []byte         // of lease tokens; all processes share it
	Keyset     *keyset.Keyset // that endpoints' secrets are sealed with; nil: they are stored in the clear
	Log        *slog.Logger
	Metrics    *Metrics
	Name       string        // of this process, for people
	Sweeps     bool          // sweep shards
	Dispatches bool          // open chunks, push, and look after leases
	PushBytes  int           // that requests to endpoints hold at a time; less than 16 MiB is 16 MiB
	Outbound   web.Outbound  // which addresses endpoints may have
	OnFired    func([]Fired) // told of ticks handed out by this process; may be nil, must not block
	Operations *operations.Operations
	Chunker    *Chunker

	// Settle brings a schedule whose moved ticks have come back to its spec's timing. It may be nil where the process does
	// not dispatch.
	Settle func(ctx context.Context, tenant tenants.ID, workflow, key string) error

	// MayStore refuses bytes of results and payloads that the tenant's quota has no room for. Where it is nil all are stored.
	MayStore func(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error
	// Pause pauses a schedule whose ticks failed too often. It may be nil where the process does not dispatch.
	Pause func(ctx context.Context, tenant tenants.ID, schedule int64, note string) error
	// Uses tells how much a tenant uses of its quotas, by their names. Where it is nil nobody is told of soft limits.
	Uses func(ctx context.Context, tenant tenants.ID) (map[string]tenants.Use, error)
	// Recheck is called when the database does not answer in time: it gives up connections that may lead to a host that has
	// died. Where it is nil the pool is reset.
	Recheck func(ctx context.Context)
	// Erase goes on with the erasures that were not finished. It may be nil.
	Erase func(ctx context.Context) error
}

// Fired is a tick that was handed out.
type Fired struct {
	Tenant        tenants.ID
	Workflow, Key string
	Timestamp     time.Time
	FiredAt       time.Time
}

// Dispatch is the part of one process in the tick's path. New makes it; Start sets it going.
type Dispatch struct {
	Config
	river      *river.Client[pgx.Tx]
	process    *cluster.Member
	hub        *cluster.Notifier
	ready      *readyQueues
	opener     *opener
	sender     *sender
	results    *results
	messages   *message.Messages
	limits     *limits
	purse      *purse
	pressure   *pressure
	swept      swept
	openChunks openChunks
	leaseEnds  cluster.LowEnd
	dueEvents  cluster.LowEnd
	dueNotices cluster.LowEnd
	putOffs    cluster.Seldom // of events of tenants who are not active; only sendEvents uses it
	lines      lines
	otherLooks looks
	horizon    cluster.Horizon
	floors     dueFloors
	rest       rest
	offer      func(runs []chunk.Run) (left []string) // gives runs to the opener of this process; nil: it opens none
	failing    chan failingSchedule
	work       sync.WaitGroup
	stop       context.CancelFunc
	retained   retained
	taskLocks  taskLocks
	watchdog   *watchdog

	// What the tasks of upkeep remember between two runs. The lock of the task guards it.
	delaysAt delaysPlace // of rearmLost
	slotsAt  slotPlace   // of tendSlots
	ratesAt  ratePlace   // of clearRates
	quotasAt tenants.ID  // of lookAtQuotas
	analyzed time.Time   // of fold

	processEnds cluster.Floor // of clearProcesses

	sweepMetrics  *sweepMetrics
	openMetrics   *openMetrics
	pushMetrics   *pushMetrics
	leaseMetrics  *leaseMetrics
	upkeepMetrics *upkeepMetrics

	staleAt    int64 // where openStale goes on; only takeOver uses it
	left       leftChunks
	told       *loop.Rarely
	searched   sync.Map // by the name of a search: the blocks that it has read
	unreadable sync.Map // endpointName: a secret of it cannot be opened, and that was told
}

// New prepares the dispatch of a process: HandOut and the routes work from here on, also in one that neither sweeps
// nor dispatches.
func New(c Config) (*Dispatch, error) {
	if c.API == nil {
		return nil, errors.New("dispatch needs what tenants' routes go by")
	}
	d := &Dispatch{Config: c, hub: cluster.NewNotifier(), ready: newReadyQueues(), messages: message.New(message.Config{IDs: c.IDs, Timings: c.Timings, LeaseKey: c.LeaseKey, Log: c.Log}), limits: newLimits(), told: &loop.Rarely{}, purse: c.Chunker.purse, pressure: &c.Chunker.pressure, failing: make(chan failingSchedule, 256)}
	d.retained.thinned, d.retained.thinning = map[string]string{}, map[string]thinPlace{}
	d.leaseEnds, d.dueEvents, d.dueNotices = newLeaseEnds(), newDueEvents(), newDueNotices()
	d.sweepMetrics, d.openMetrics, d.pushMetrics, d.leaseMetrics, d.upkeepMetrics = c.Metrics.sweep, c.Metrics.open, c.Metrics.push, c.Metrics.lease, c.Metrics.upkeep
	d.process = cluster.NewMember(cluster.Membership{Pool: c.Pool, Log: c.Log, Name: c.Name, Sweeping: c.Sweeps, Dispatches: c.Dispatches, Recheck: c.Recheck})
	d.opener = newOpener(d.openJob)
	if d.Dispatches {
		d.offer = d.opener.offer
	}
	d.sender = newSender(d)
	d.results = newResults(d)
	d.watchdog = newWatchdog(d)
	if !d.Dispatches {
		return d, nil
	}
	client, err := d.jobs()
	if err != nil {
		return nil, fmt.Errorf("set up jobs: %w", err)
	}
	d.river = client
	return d, nil
}

// Start joins the other processes and begins to work. Stop ends it.
func (d *Dispatch) Start(ctx context.Context) error {
	if err := d.ensurePartitions(ctx, time.Now()); err != nil { // until they are there the default ones do
		d.Log.Warn("cannot make the days' partitions yet", "error", err)
	}
	if err := d.process.Register(ctx); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.work.Go(func() { d.hub.Listen(run, d.Pool, d.Log, d.offerTold) })
	d.work.Go(func() { d.sender.abandonLapsed(run) })
	d.work.Go(func() { d.process.Beat(run) })
	d.work.Go(func() { d.hub.Tell(run, d.Pool, d.Log) })
	d.work.Go(func() { loop.Every(run, d.Log, pollEvery, "look for ready ticks", d.wakePolls) })
	d.work.Go(func() { d.watchLimits(run) })
	d.work.Go(func() { d.measurePressure(run) })
	d.work.Go(func() { d.horizon.Measure(run, d.Pool, d.Log, d.rest.pace) })
	d.work.Go(func() { loop.Every(run, d.Log, time.Second, "settle debts", d.settleDebts) })
	d.work.Go(func() { d.upkeep(run) })
	if d.Dispatches {
		d.results.start()
		d.opener.start(run)
		if err := d.river.Start(run); err != nil {
			stop()
			d.opener.close(ctx)
			d.work.Wait()
			return fmt.Errorf("start jobs: %w", err)
		}
		d.work.Go(func() { d.resume(run) })
		d.work.Go(func() { d.takeOver(run) })
		d.work.Go(func() { d.lookForOperations(run) })
		d.work.Go(func() { d.endLeases(run) })
		d.work.Go(func() { d.wakeParked(run) })
		d.work.Go(func() { d.tellPushing(run) })
		d.work.Go(func() { d.sendEvents(run) })
		if d.Pause != nil {
			d.work.Go(func() { d.pauseFailing(run) })
		}
	}
	if d.Sweeps {
		d.work.Go(func() { d.sweep(run) })
		d.work.Go(func() { d.rezone(run) })
	}
	return nil
}

// drainTime is how long requests in flight get to end.
const drainTime = 8 * time.Second

// Stop sends nothing new, gives what is in flight 8 s (less where ctx ends first), leaves the rest to other processes
// at once, and returns when all has ended.
func (d *Dispatch) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	var err error
	if d.Dispatches {
		d.hub.Queued(d.opener.close(ctx))
		err = d.river.Stop(ctx)
		if err != nil {
			err = d.river.StopAndCancel(context.WithoutCancel(ctx))
		}
		d.sender.drain(ctx)
		d.results.close()
	}
	d.stop()
	d.work.Wait()
	leave, cancelLeave := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancelLeave()
	d.process.Leave(leave, d.firstOpen())
	return err
}
