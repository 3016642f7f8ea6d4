package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/events"
	"github.com/carillonhq/carillon/dispatch/expect"
	"github.com/carillonhq/carillon/dispatch/explain"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/open"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/dispatch/tail"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Config has the dependencies of a Dispatch.
type Config struct {
	Pool       *pgxpool.Pool // of the engine
	API        postgres.DB   // the pool of tenants' routes, which shows only the rows of one tenant
	IDs        ident.Codec
	Timings    *cohorts.Timings
	Quotas     record.Quotas
	Cursors    *web.Cursor
	LeaseKey   []byte         // signs lease tokens; all processes share it
	Keyset     *keyset.Keyset // seals the secrets of endpoints; nil: they are stored in the clear
	Log        *slog.Logger
	Metrics    *Metrics
	Traces     *trace.Tracer      // makes spans; may be nil
	Name       string             // of this process, for people
	Version    string             // of its program, likewise
	Serves     bool               // it serves the API
	Sweeps     bool               // it sweeps shards
	Dispatches bool               // it opens chunks, pushes ticks, and ends leases
	PushBytes  int                // limits the bytes that requests to endpoints hold at a time; less than 16 MiB counts as 16 MiB
	Outbound   web.Outbound       // which addresses endpoints may have
	OnFired    func([]open.Fired) // is called with the ticks that this process hands out; may be nil, must not block
	Operations *operations.Operations
	Chunker    *sweep.Chunker

	// Settle restores the timing of a schedule's spec after the last of its moved ticks has passed. It may be nil if the process
	// does not dispatch.
	Settle func(ctx context.Context, tenant tenants.ID, workflow, key string) error

	// MayStore refuses bytes of results and payloads that the tenant's quota has no room for. If it is nil, all are stored.
	MayStore func(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error
	// Pause pauses a schedule whose ticks failed too often. It may be nil where the process does not dispatch.
	Pause func(ctx context.Context, tenant tenants.ID, schedule int64, note string) error
	// Uses returns how much a tenant uses of its quotas, by their names. If it is nil, there are no events of soft limits.
	Uses func(ctx context.Context, tenant tenants.ID) (map[string]tenants.Use, error)
	// Recheck is called when the database does not answer in time: it drops connections that may lead to a host that has died.
	// If it is nil, the pool is reset.
	Recheck func(ctx context.Context)
	// Erase continues erasures of keys that no request has finished. It may be nil.
	Erase func(ctx context.Context) error
}

// Dispatch is what one process does for ticks, from the sweep to the end of their delivery. New makes it, and Start starts its loops.
type Dispatch struct {
	config    Config
	Sweeper   *sweep.Sweeper
	Backlog   *sweep.Backlog
	Opener    *open.Opener
	Pusher    *push.Pusher
	Leases    *lease.Leases
	Polls     *lease.PollWatch
	Expiry    *lease.Expiry
	Finisher  *finish.Finisher
	Events    *events.Events
	Control   *control.Control
	Backfills *control.Backfills
	Replays   *control.Replays
	Waker     *control.Waker
	Reader    *history.Reader
	Explainer *explain.Explainer
	Keeper    *upkeep.Keeper
	Messages  *message.Messages

	cluster.View
	unopened *chunk.Unopened
	idle     *sweep.Idle
	river    *river.Client[pgx.Tx] // nil where the process does not dispatch
	work     sync.WaitGroup
	stop     context.CancelFunc
}

// New prepares the dispatch of a process. After it the routes work, even in a process that neither sweeps nor dispatches. Each package's
// part is made after the parts that it uses.
func New(c Config) (*Dispatch, error) {
	if c.API == nil {
		return nil, errors.New("Config.API is required: the pool of tenants' routes")
	}
	d := &Dispatch{
		config: c, unopened: new(chunk.Unopened), idle: new(sweep.Idle), stop: func() {},
		Messages: message.New(message.Config{IDs: c.IDs, Timings: c.Timings, LeaseKey: c.LeaseKey, Log: c.Log}),
		View: cluster.View{
			Member:   cluster.NewMember(cluster.Membership{Pool: c.Pool, Log: c.Log, Name: c.Name, Version: c.Version, Serving: c.Serves, Sweeping: c.Sweeps, Dispatches: c.Dispatches, Recheck: c.Recheck}),
			Notifier: cluster.NewNotifier(), Horizon: new(cluster.Horizon),
		},
	}
	log := loop.Log{Logger: c.Log, Rarely: new(loop.Rarely)}
	live := tail.New(c.Pool, c.Log)
	d.Reader = history.New(history.Config{API: c.API, IDs: c.IDs, Cursors: c.Cursors, Quotas: c.Quotas, Timings: c.Timings, Tail: live})
	d.Explainer = explain.New(explain.Config{API: c.API, Timings: c.Timings, History: d.Reader})
	d.Finisher = finish.New(finish.Config{Pool: c.Pool, Horizon: d.Horizon, Timings: c.Timings, Tail: live, Traces: c.Traces, Log: c.Log, Pause: c.Pause})
	d.Pusher = push.New(push.Config{
		Pool: c.Pool, API: c.API, Quotas: c.Quotas, Cursors: c.Cursors, Keyset: c.Keyset, Outbound: c.Outbound, PushBytes: c.PushBytes,
		Member: d.Member, Messages: d.Messages, Finish: d.Finisher, Metrics: c.Metrics.push, Log: log,
	})
	d.Leases = lease.New(lease.Config{
		API: c.API, IDs: c.IDs, Quotas: c.Quotas, Notifier: d.Notifier, Horizon: d.Horizon, Messages: d.Messages, Finish: d.Finisher,
		MayStore: c.mayStore, Metrics: c.Metrics.lease,
	})
	d.Polls = lease.NewPollWatch(c.Pool, d.Leases, c.Log)
	d.Expiry = lease.NewExpiry(c.Pool, d.Horizon, d.Finisher, c.Log)
	d.Opener = open.New(open.Config{
		Pool: c.Pool, Timings: c.Timings, Cluster: d.View, Unopened: d.unopened, Finish: d.Finisher,
		Push: d.Pusher, Dispatches: c.Dispatches, OnFired: c.OnFired, Metrics: c.Metrics.open, Log: log,
	})
	swept := sweep.Config{
		Pool: c.Pool, Timings: c.Timings, Chunker: c.Chunker, Cluster: d.View, Idle: d.idle, Offer: d.offer(), Metrics: c.Metrics.sweep, Log: log,
	}
	d.Sweeper, d.Backlog = sweep.New(swept), sweep.NewBacklog(swept, d.unopened)
	asked := control.Config{
		Pool: c.Pool, API: c.API, IDs: c.IDs, Quotas: c.Quotas, Operations: c.Operations, Horizon: d.Horizon, Messages: d.Messages, Unopened: d.unopened,
		Sweep: d.Sweeper, Finish: d.Finisher, Lease: d.Leases, History: d.Reader, MayStore: c.mayStore,
	}
	d.Control, d.Backfills, d.Replays = control.New(asked), control.NewBackfills(asked), control.NewReplays(asked)
	d.Waker = control.NewWaker(c.Pool, d.Sweeper, c.Log)
	d.Events = events.New(events.Config{Pool: c.Pool, IDs: c.IDs, Horizon: d.Horizon, Push: d.Pusher, Uses: c.Uses, Log: c.Log})
	d.Keeper = upkeep.New(upkeep.Config{
		Pool: c.Pool, IDs: c.IDs, Timings: c.Timings, Quotas: c.Quotas, Operations: c.Operations, Sweeps: c.Sweeps, Dispatches: c.Dispatches, Horizon: d.Horizon,
		Unopened: d.unopened, Idle: d.idle, Sweep: d.Sweeper, Finish: d.Finisher, Push: d.Pusher, Events: d.Events, Expect: expect.New(c.Pool, c.Metrics.expect), Control: d.Control, Rarely: log.Rarely,
		Settle: c.Settle, Uses: c.Uses, Erase: c.Erase, Metrics: c.Metrics.upkeep, Log: c.Log,
	})
	if !c.Dispatches {
		return d, nil
	}
	client, err := d.jobs()
	if err != nil {
		return nil, fmt.Errorf("set up jobs: %w", err)
	}
	d.river = client
	return d, nil
}

// offer returns the function that gives swept runs to the opener of this process; nil if the process opens none.
func (d *Dispatch) offer() func(runs []chunk.Run) (left []string) {
	if !d.config.Dispatches {
		return nil
	}
	return d.Opener.Offer
}

// mayStore refuses bytes that the tenant's quota has no room for.
func (c *Config) mayStore(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error {
	if c.MayStore == nil || bytes == 0 {
		return nil
	}
	return c.MayStore(ctx, db, tenant, bytes)
}

// RegisterSteps registers the operations of dispatch. It is called once, before any operation runs.
func (d *Dispatch) RegisterSteps() {
	d.Backfills.RegisterSteps()
	d.Replays.RegisterSteps()
}

// Start joins the other processes and begins to work. Stop ends it.
func (d *Dispatch) Start(ctx context.Context) error {
	if err := d.Keeper.EnsurePartitions(ctx, time.Now()); err != nil { // until they exist, rows go into the default partitions
		d.config.Log.Warn("cannot create the partitions of the next days yet", "error", err)
	}
	if err := d.Member.Register(ctx); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.startAll(run,
		func(ctx context.Context) {
			d.Notifier.Listen(ctx, d.config.Pool, d.config.Log, d.Opener.OfferNotified, map[string]func(string){tail.WatchChannel: d.Finisher.Tail.Watch})
		},
		d.Finisher.Tail.Run,
		d.Pusher.Watch, d.Member.Beat,
		func(ctx context.Context) { d.Notifier.Tell(ctx, d.config.Pool, d.config.Log) },
		d.Polls.Run, d.Finisher.Watch, d.Sweeper.Watch, d.Backlog.Run,
		func(ctx context.Context) { d.Horizon.Measure(ctx, d.config.Pool, d.config.Log, d.idle.Pace) },
		d.Keeper.Run)
	if d.config.Dispatches {
		d.Pusher.Start()
		d.Opener.Start(run)
		if err := d.startJobs(ctx, run); err != nil {
			stop()
			d.Opener.Close(ctx)
			d.work.Wait()
			return err
		}
		d.startAll(run, d.Opener.Run, d.lookForOperations, d.Expiry.Run, d.Waker.Run, d.Pusher.Run, d.Events.Run, d.Finisher.Run)
	}
	if d.config.Sweeps {
		d.startAll(run, d.Sweeper.Run)
	}
	return nil
}

// startAll runs loops until ctx ends.
func (d *Dispatch) startAll(ctx context.Context, loops ...func(ctx context.Context)) {
	for _, run := range loops {
		d.work.Go(func() { run(ctx) })
	}
}

// drainTime is how long Stop waits for requests in flight.
const drainTime = 8 * time.Second

// Stop sends nothing new. It waits for requests in flight up to drainTime, or until ctx ends, and leaves the rest to other processes. It
// returns when all loops of this process have ended.
func (d *Dispatch) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	var err error
	if d.config.Dispatches {
		d.Notifier.Queued(d.Opener.Close(ctx))
		err = d.river.Stop(ctx)
		if err != nil {
			err = d.river.StopAndCancel(context.WithoutCancel(ctx))
		}
		d.Pusher.Close(ctx)
	}
	d.stop()
	d.work.Wait()
	leave, cancelLeave := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancelLeave()
	d.Member.Leave(leave, d.Opener.FirstOpen())
	return err
}

// Kill ends the process like a crash: what it held stays as it is, and no other process is notified. Tests use it.
func (d *Dispatch) Kill() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	d.Pusher.Close(gone)
	d.stop()
	d.Opener.Close(context.Background())
	if d.river != nil {
		_ = d.river.StopAndCancel(context.Background())
	}
	d.work.Wait()
}

// Unopened returns the number from which chunks may be unopened, and the numbers of unopened chunks below it.
func (d *Dispatch) Unopened() (floor int64, stuck []int64) { return d.unopened.From(d.Horizon) }
