package schedules

import (
	"context"
	"log/slog"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// HandOut makes ticks of schedules in the caller's transaction, which holds the shard's lock: ticks that were due
// but not swept when a change came, and those that a client asks for.
type HandOut func(ctx context.Context, tx pgx.Tx, due []cohorts.Due) error

// Config has the dependencies of Schedules. All members are required.
type Config struct {
	Pool      postgres.DB // it shows only the rows of the tenant that a context names
	IDs       ident.Codec
	Timings   *cohorts.Timings
	Forecasts *forecast.Forecasts
	HandOut   HandOut
	Quotas    func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	Cursors   *web.Cursor
	Log       *slog.Logger

	Operations *operations.Operations
}

// Schedules reads and changes schedules. It is safe for concurrent use.
type Schedules struct {
	Config
	puts groups
}

// New returns Schedules over a pool whose database is migrated, and registers its kinds of operations.
func New(c Config) *Schedules {
	s := &Schedules{Config: c, puts: groups{callers: map[caller]*queue{}}}
	if c.Operations != nil {
		c.Operations.Register(defaultsKind, s.inheritStep)
		c.Operations.Register(retimeSubjectKind, s.retimeSubjectStep)
		c.Operations.Register(fallbackKind, s.fallBackStep)
	}
	return s
}
