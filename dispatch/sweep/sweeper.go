package sweep

import (
	"context"
	"log/slog"
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
	Pool     *pgxpool.Pool
	Timings  *cohorts.Timings
	Chunker  *Chunker
	Member   *cluster.Member
	Notifier *cluster.Notifier
	Horizon  *cluster.Horizon
	Unopened *chunk.Unopened
	Idle     *Idle
	Rarely   *loop.Rarely                           // of errors that come again and again
	Offer    func(runs []chunk.Run) (left []string) // gives runs to the opener of this process; nil: it opens none
	Metrics  *Metrics
	Log      *slog.Logger
}

// Sweeper makes chunks of the due ticks in the shards of this process.
type Sweeper struct {
	pool     *pgxpool.Pool
	timings  *cohorts.Timings
	chunker  *Chunker
	member   *cluster.Member
	notifier *cluster.Notifier
	horizon  *cluster.Horizon
	unopened *chunk.Unopened
	idle     *Idle
	rarely   *loop.Rarely
	offer    func(runs []chunk.Run) (left []string)
	metrics  *Metrics
	log      *slog.Logger

	fair   *fairness
	floors DueFloors
}

// New returns a Sweeper.
func New(c Config) *Sweeper {
	return &Sweeper{
		pool: c.Pool, timings: c.Timings, chunker: c.Chunker, member: c.Member, notifier: c.Notifier, horizon: c.Horizon,
		unopened: c.Unopened, idle: c.Idle, rarely: c.Rarely, offer: c.Offer, metrics: c.Metrics, log: c.Log,
		fair: &fairness{limiter: c.Chunker.limiter, pressure: &c.Chunker.pressure, queues: queues{horizon: c.Horizon}, pacer: newPacer()},
	}
}

// Watch counts unopened chunks and writes down debts until ctx ends. Each process does so, as changes of schedules hand out ticks too.
func (s *Sweeper) Watch(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { s.measurePressure(ctx) })
	work.Go(func() { loop.Every(ctx, s.log, time.Second, "settle debts", s.SettleDebts) })
	work.Wait()
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
func (s *Sweeper) Wake() { s.notifier.CameDue() }
