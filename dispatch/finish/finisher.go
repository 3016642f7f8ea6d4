package finish

import (
	"context"
	"log/slog"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/tail"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is what a Finisher needs. Pause may be nil.
type Config struct {
	Pool    *pgxpool.Pool
	Horizon *cluster.Horizon
	Timings *cohorts.Timings
	Tail    *tail.Tail    // told of ends
	Traces  *trace.Tracer // may be nil
	Log     *slog.Logger
	// Pause pauses a schedule whose ticks failed too often. If it is nil, no schedule is paused.
	Pause func(ctx context.Context, tenant tenants.ID, schedule int64, note string) error
}

// Finisher ends attempts of ticks, and writes every consequence of an end. It is safe for concurrent use.
type Finisher struct {
	Tail   *tail.Tail    // for those that hand ticks out
	Traces *trace.Tracer // likewise; nil: no spans are made

	pool    *pgxpool.Pool
	timings *cohorts.Timings
	log     *slog.Logger
	pause   func(ctx context.Context, tenant tenants.ID, schedule int64, note string) error
	limits  *limits
	floors  *limitFloors
	failing chan failingSchedule
	lost    lostSlots
}

// New returns a Finisher.
func New(c Config) *Finisher {
	return &Finisher{Tail: c.Tail, pool: c.Pool, timings: c.Timings, Traces: c.Traces, log: c.Log, pause: c.Pause, limits: newLimits(), floors: newLimitFloors(c.Horizon), failing: make(chan failingSchedule, 256)}
}

// Watch reads which tenants limit their workflows, until ctx ends.
func (f *Finisher) Watch(ctx context.Context) { f.watchLimits(ctx) }

// Run pauses schedules whose ticks failed too often, until ctx ends.
func (f *Finisher) Run(ctx context.Context) {
	if f.pause != nil {
		f.pauseFailing(ctx)
	}
}
