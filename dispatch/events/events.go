package events

import (
	"context"
	"log/slog"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is what Events needs. Uses may be nil.
type Config struct {
	Pool    *pgxpool.Pool
	IDs     ident.Codec
	Horizon *cluster.Horizon
	Push    *push.Pusher
	// Uses returns how much a tenant uses of its quotas, by their names. If it is nil, there are no events of soft limits.
	Uses func(ctx context.Context, tenant tenants.ID) (map[string]tenants.Use, error)
	Log  *slog.Logger
}

// Events sends events to the endpoints of tenants. It is safe for concurrent use.
type Events struct {
	pool    *pgxpool.Pool
	ids     ident.Codec
	horizon *cluster.Horizon
	push    *push.Pusher
	uses    func(ctx context.Context, tenant tenants.ID) (map[string]tenants.Use, error)
	log     *slog.Logger

	dueEvents  cluster.LowEnd
	dueNotices cluster.LowEnd
	putOffs    cluster.Seldom // paces putOffEvents; only sendEvents uses it
	quotasAt   tenants.ID     // where LookAtQuotas continues; the lock of its task guards it
}

// New returns Events.
func New(c Config) *Events {
	return &Events{pool: c.Pool, ids: c.IDs, horizon: c.Horizon, push: c.Push, uses: c.Uses, log: c.Log, dueEvents: newDueEvents(), dueNotices: newDueNotices()}
}

// Run sends due events, until ctx ends.
func (e *Events) Run(ctx context.Context) { e.sendEvents(ctx) }
