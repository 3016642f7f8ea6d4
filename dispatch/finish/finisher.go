package finish

import (
	"context"
	"log/slog"

	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is what a Finisher works with.
type Config struct {
	Pool    *pgxpool.Pool
	Timings *cohorts.Timings
	Log     *slog.Logger
	// Pause pauses a schedule whose ticks failed too often. Where it is nil none is paused.
	Pause func(ctx context.Context, tenant tenants.ID, schedule int64, note string) error
}

// Finisher ends attempts of ticks, and does what follows from an end.
type Finisher struct {
	pool    *pgxpool.Pool
	timings *cohorts.Timings
	log     *slog.Logger
	pause   func(ctx context.Context, tenant tenants.ID, schedule int64, note string) error
	limits  *limits
	failing chan failingSchedule
	slotsAt slotPlace // where tendSlots goes on; the lock of its task guards it
}

// New returns a Finisher.
func New(c Config) *Finisher {
	return &Finisher{pool: c.Pool, timings: c.Timings, log: c.Log, pause: c.Pause, limits: newLimits(), failing: make(chan failingSchedule, 256)}
}

// Watch looks which tenants limit their workflows until ctx ends.
func (f *Finisher) Watch(ctx context.Context) { f.watchLimits(ctx) }

// Run pauses schedules whose ticks failed too often until ctx ends.
func (f *Finisher) Run(ctx context.Context) {
	if f.pause != nil {
		f.pauseFailing(ctx)
	}
}
