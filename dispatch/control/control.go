package control

import (
	"context"

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

// Config is what Control, Backfills and Replays need. All fields are required.
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
}

// Control carries out requests of tenants: triggers, cancellations and halts. It is safe for concurrent use.
type Control struct {
	pool     *pgxpool.Pool
	api      postgres.DB
	ids      ident.Codec
	quotas   record.Quotas
	messages *message.Messages
	sweep    *sweep.Sweeper
	finish   *finish.Finisher
	lease    *lease.Leases
	history  *history.Reader
	mayStore func(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error
}

// New returns a Control.
func New(c Config) *Control {
	return &Control{
		pool: c.Pool, api: c.API, ids: c.IDs, quotas: c.Quotas, messages: c.Messages, sweep: c.Sweep, finish: c.Finish, lease: c.Lease,
		history: c.History, mayStore: c.MayStore,
	}
}
