package upkeep

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/schedules/calendars"
)

const zonesEvery = 5 * time.Second

// rezone puts a newer tz database into force once a process has one, and begins the operation that retimes the affected schedules,
// until ctx ends.
func (k *Keeper) rezone(ctx context.Context) {
	loop.Every(ctx, k.log, zonesEvery, "look for newer zones", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := calendars.RefreshZones(ctx, k.pool); err != nil {
			return err
		}
		return calendars.BeginRezoning(ctx, k.pool, k.timings, k.operations)
	})
}
