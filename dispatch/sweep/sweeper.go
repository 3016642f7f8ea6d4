package sweep

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Config has the dependencies of a Sweeper.
type Config struct {
	Pool    *pgxpool.Pool
	Timings *cohorts.Timings
	Chunker *Chunker
	Cluster cluster.View
	Idle    *Idle
	Offer   func(runs []chunk.Run) (left []string) // gives runs to the opener of this process; nil: it opens none
	Metrics *Metrics
	Log     loop.Log
}

// Sweeper makes chunks of the due ticks in the shards of this process.
type Sweeper struct {
	pool    *pgxpool.Pool
	timings *cohorts.Timings
	chunker *Chunker
	cluster cluster.View
	idle    *Idle
	offer   func(runs []chunk.Run) (left []string)
	metrics *Metrics
	log     loop.Log

	fair   *fairness
	floors DueFloors
}

// New returns a Sweeper.
func New(c Config) *Sweeper {
	return &Sweeper{
		pool: c.Pool, timings: c.Timings, chunker: c.Chunker, cluster: c.Cluster, idle: c.Idle, offer: c.Offer, metrics: c.Metrics, log: c.Log,
		fair: &fairness{limiter: c.Chunker.limiter, pressure: &c.Chunker.pressure, queues: queues{horizon: c.Cluster.Horizon}, pacer: newPacer()},
	}
}

// Watch writes down debts until ctx ends. Each process does so, because changes of schedules hand out ticks too.
func (s *Sweeper) Watch(ctx context.Context) {
	loop.Every(ctx, s.log.Logger, time.Second, "settle debts", s.SettleDebts)
}

// Run sweeps the shards of this process, and hands out the ticks of workflows with a rate, until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { s.keepRates(ctx) })
	s.sweep(ctx)
	work.Wait()
}

// Charge charges a tenant and a workflow for ticks that were handed out without tokens.
func (s *Sweeper) Charge(tenant tenants.ID, workflow string, n int) {
	s.fair.limiter.charge(tenant, n)
	s.ChargeWorkflow(tenant, workflow, n)
}

// ChargeWorkflow charges only the workflow, if it has a rate.
func (s *Sweeper) ChargeWorkflow(tenant tenants.ID, workflow string, n int) {
	s.chunker.debts.Add(tenant, workflow, n)
}

// Reset forgets the tokens of a tenant, as its quota has changed.
func (s *Sweeper) Reset(tenant tenants.ID) { s.fair.limiter.reset(tenant) }

// Wake makes the sweep of this process look for due shards at once.
func (s *Sweeper) Wake() { s.cluster.Notifier.CameDue() }
