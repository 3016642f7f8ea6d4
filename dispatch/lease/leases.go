package lease

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Config is what Leases need. All fields are required.
type Config struct {
	Pool     *pgxpool.Pool
	API      postgres.DB
	IDs      ident.Codec
	Quotas   record.Quotas
	Notifier *cluster.Notifier
	Horizon  *cluster.Horizon
	Messages *message.Messages
	Finish   *finish.Finisher
	// MayStore refuses bytes of results that the tenant's quota has no room for.
	MayStore func(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error
	Metrics  *Metrics
	Log      *slog.Logger
}

// Leases gives ticks to workers that poll for them. It is safe for concurrent use.
type Leases struct {
	pool     *pgxpool.Pool
	api      postgres.DB
	ids      ident.Codec
	quotas   record.Quotas
	notifier *cluster.Notifier
	horizon  *cluster.Horizon
	messages *message.Messages
	finish   *finish.Finisher
	mayStore func(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error
	metrics  *Metrics
	log      *slog.Logger

	Ready     *ReadyQueues
	leaseEnds cluster.LowEnd
}

// New returns Leases.
func New(c Config) *Leases {
	return &Leases{
		pool: c.Pool, api: c.API, ids: c.IDs, quotas: c.Quotas, notifier: c.Notifier, horizon: c.Horizon, messages: c.Messages, finish: c.Finish,
		mayStore: c.MayStore, metrics: c.Metrics, log: c.Log, Ready: newReadyQueues(), leaseEnds: newLeaseEnds(),
	}
}

// Watch looks for ready ticks and wakes the long polls of this process that wait for them, and writes which workflows were polled, until
// ctx ends.
func (l *Leases) Watch(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { loop.Every(ctx, l.log, writePollsEvery, "write polls", l.WritePolls) })
	loop.Every(ctx, l.log, pollEvery, "look for ready ticks", l.wakePolls)
	all.Wait()
}

// Run ends leases whose time is over, until ctx ends.
func (l *Leases) Run(ctx context.Context) { l.endLeases(ctx) }
