package dispatch

import (
	"context"
	"errors"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Look looks once for due shards.
func (d *Dispatch) Look(ctx context.Context) (due []int16, err error) {
	if err := d.rejoin(ctx); err != nil {
		return nil, err
	}
	found := make(chan int16, cohorts.Shards)
	_, err = d.Sweeper.Look(ctx, sweep.NewShardSet(), found)
	close(found)
	for shard := range found {
		due = append(due, shard)
	}
	return due, err
}

// MeasureHorizon looks once which transactions are open.
func (d *Dispatch) MeasureHorizon(ctx context.Context) error { return d.horizon.Read(ctx, d.Pool) }

// Watch looks once for what is stuck, and for broken promises.
func (d *Dispatch) Watch(ctx context.Context) error {
	return errors.Join(d.Keeper.Watch(ctx), d.Keeper.Scan(ctx))
}

// EndLeases ends once the leases that are due.
func (d *Dispatch) EndLeases(ctx context.Context) error { return d.Leases.EndDueLeases(ctx) }

// LeasedTicks counts the ticks that the workers of tenant $1 hold.
const LeasedTicks = record.LeasedTicks

// WakePolled looks for ready ticks of a workflow that a poll waits for.
func (d *Dispatch) WakePolled(ctx context.Context, tenant tenants.ID, workflow string) error {
	return d.Leases.WakePollsOf(ctx, cluster.Polled{Tenants: []int32{int32(tenant)}, Workflows: []string{workflow}})
}

// AnyNotice looks whether there is anything to tell tenants.
func (d *Dispatch) AnyNotice(ctx context.Context) (bool, error) { return d.Events.AnyNotice(ctx) }

// ClaimEvents takes due events.
func (d *Dispatch) ClaimEvents(ctx context.Context, n int) (int, error) {
	found, err := d.Events.ClaimEvents(ctx, nil, n)
	return len(found), err
}

// BeatOnce says that this process lives, and learns of others.
func (d *Dispatch) BeatOnce(ctx context.Context) error {
	if err := d.rejoin(ctx); err != nil {
		return err
	}
	return d.member.BeatOnce(ctx)
}

// ClearProcesses deletes the processes that are gone.
func (d *Dispatch) ClearProcesses(ctx context.Context) error { return d.Keeper.ClearProcesses(ctx) }
