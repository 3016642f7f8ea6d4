package upkeep

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

const zonesEvery = 5 * time.Second

// newerZones looks for a newer tz database.
type newerZones struct {
	pool       *pgxpool.Pool
	timings    *cohorts.Timings
	operations *operations.Operations
	log        *slog.Logger
}

// watch puts a newer tz database into force once a process has one, and begins the operation that retimes the affected schedules,
// until ctx ends.
func (z *newerZones) watch(ctx context.Context) {
	loop.Every(ctx, z.log, zonesEvery, "look for newer zones", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := calendars.RefreshZones(ctx, z.pool); err != nil {
			return err
		}
		return calendars.BeginRezoning(ctx, z.pool, z.timings, z.operations)
	})
}
