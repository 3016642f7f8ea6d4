package control

import (
	"context"
	"log/slog"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is what a Control needs. All fields are required.
type Config struct {
	Pool       *pgxpool.Pool
	API        postgres.DB
	IDs        ident.Codec
	Quotas     record.Quotas
	Operations *operations.Operations
	Horizon    *cluster.Horizon
	Messages   *message.Messages
	Unopened   *chunk.Unopened
	Sweep      *sweep.Sweeper
	Finish     *finish.Finisher
	Lease      *lease.Leases
	History    *history.Reader
	// MayStore refuses bytes of payloads that the tenant's quota has no room for.
	MayStore func(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error
	Log      *slog.Logger
}

// Control carries out requests of tenants: triggers, cancellations, replays, backfills and halts. It is safe for concurrent use.
type Control struct {
	pool       *pgxpool.Pool
	api        postgres.DB
	ids        ident.Codec
	quotas     record.Quotas
	operations *operations.Operations
	horizon    *cluster.Horizon
	messages   *message.Messages
	unopened   *chunk.Unopened
	sweep      *sweep.Sweeper
	finish     *finish.Finisher
	lease      *lease.Leases
	history    *history.Reader
	mayStore   func(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error
	log        *slog.Logger
}

// New returns a Control.
func New(c Config) *Control {
	return &Control{
		pool: c.Pool, api: c.API, ids: c.IDs, quotas: c.Quotas, operations: c.Operations, horizon: c.Horizon, messages: c.Messages, unopened: c.Unopened,
		sweep: c.Sweep, finish: c.Finish, lease: c.Lease, history: c.History, mayStore: c.MayStore, log: c.Log,
	}
}

// Run wakes parked ticks whose wait has ended, until ctx ends.
func (c *Control) Run(ctx context.Context) { c.wakeParked(ctx) }
