package open

import (
	"context"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config has the dependencies of an Opener.
type Config struct {
	Pool       *pgxpool.Pool
	Timings    *cohorts.Timings
	Cluster    cluster.View
	Unopened   *chunk.Unopened
	Finish     *finish.Finisher
	Push       *push.Pusher
	Dispatches bool
	OnFired    func([]Fired) // told of ticks handed out by this process; may be nil, must not block
	Metrics    *Metrics
	Log        loop.Log
}

// Opener opens chunks: it decides what becomes of their ticks, commits their rows, and gives them to the push.
type Opener struct {
	pool     *pgxpool.Pool
	timings  *cohorts.Timings
	cluster  cluster.View
	unopened *chunk.Unopened
	finish   *finish.Finisher
	push     *push.Pusher
	log      loop.Log

	runner    *runner
	taking    taking
	observers observers
}

// observers are told of ticks that were handed out.
type observers struct {
	onFired func([]Fired) // may be nil
	metrics *Metrics
}

// New returns an Opener.
func New(c Config) *Opener {
	o := &Opener{
		pool: c.Pool, timings: c.Timings, cluster: c.Cluster, unopened: c.Unopened, finish: c.Finish, push: c.Push, log: c.Log,
		observers: observers{c.OnFired, c.Metrics},
	}
	o.runner = newRunner(o.openJob, c.Dispatches)
	return o
}

// Offer opens runs that this process swept, and returns the lanes of those for which it has no room.
func (o *Opener) Offer(runs []chunk.Run) (left []string) { return o.runner.offer(runs) }

// Start lets the runner take runs until Close.
func (o *Opener) Start(ctx context.Context) { o.runner.start(ctx) }

// Close gives up the runs that wait, and returns their lanes. It waits for those that are being opened, and ends them when ctx ends.
func (o *Opener) Close(ctx context.Context) (left []string) { return o.runner.close(ctx) }

// Run takes over what other processes left, and opens what waits behind full queues, until ctx ends.
func (o *Opener) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { o.resume(ctx) })
	work.Go(func() { o.takeOver(ctx) })
	work.Wait()
}

// Fired is a tick that was handed out.
type Fired struct {
	Tenant        tenants.ID
	Workflow, Key string
	Timestamp     time.Time
	FiredAt       time.Time
}
