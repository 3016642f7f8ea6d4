package lease

import (
	"context"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Config is what Leases need. All fields are required.
type Config struct {
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
}

// Leases gives ticks to workers that poll for them. It is safe for concurrent use.
type Leases struct {
	api      postgres.DB
	ids      ident.Codec
	quotas   record.Quotas
	notifier *cluster.Notifier
	horizon  *cluster.Horizon
	messages *message.Messages
	finish   *finish.Finisher
	mayStore func(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error
	metrics  *Metrics
	Ready    *ReadyQueues
}

// New returns Leases.
func New(c Config) *Leases {
	return &Leases{
		api: c.API, ids: c.IDs, quotas: c.Quotas, notifier: c.Notifier, horizon: c.Horizon, messages: c.Messages, finish: c.Finish,
		mayStore: c.MayStore, metrics: c.Metrics, Ready: newReadyQueues(),
	}
}

// FirstReady returns the number from which a queue of a workflow may have ready ticks.
func (ls *Leases) FirstReady(tenant tenants.ID, workflow string, q ReadyQueue) int64 {
	return ls.Ready.Of(tenant, workflow, ls.horizon).From(q)
}
