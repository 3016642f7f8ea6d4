package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/carillonhq/carillon/schedules"
)

// Look looks once for due shards.
func (d *Dispatch) Look(ctx context.Context) (due []int16, err error) {
	if err := d.rejoin(ctx); err != nil {
		return nil, err
	}
	found := make(chan int16, schedules.Shards)
	_, err = d.look(ctx, newShardSet(), found)
	close(found)
	for shard := range found {
		due = append(due, shard)
	}
	return due, err
}

// MeasureHorizon looks once which transactions are open.
func (d *Dispatch) MeasureHorizon(ctx context.Context) error { return d.horizon.read(ctx, d) }

// Watch looks once for what is stuck, and for broken promises.
func (d *Dispatch) Watch(ctx context.Context) error {
	return errors.Join(d.watchdog.look(ctx, time.Now()), d.scan(ctx))
}

// EndLeases ends once the leases that are due.
func (d *Dispatch) EndLeases(ctx context.Context) error { return d.endDueLeases(ctx) }

// LeasedTicks counts the ticks that the workers of tenant $1 hold.
const LeasedTicks = leasedTicks
