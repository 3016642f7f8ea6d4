package dispatch

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules"
)

// HandOut makes chunks of the schedules' due ticks in the caller's transaction, which holds the lock of their shard,
// shared: ticks that the sweep had not come to when a change came. They are opened like any other chunk, in order.
func (d *Dispatch) HandOut(ctx context.Context, tx pgx.Tx, due []schedules.Due) error {
	if sabotage.RetimeForgets.On() {
		return nil
	}
	for _, one := range due {
		var workflow string
		cs := newChunks(one.Shard, one.Run.At)
		err := tx.QueryRow(ctx, `SELECT workflow, clock_timestamp() FROM schedule WHERE tenant_id = $1 AND id = $2`, one.Tenant, one.Schedule).Scan(&workflow, &cs.now)
		if err != nil {
			return err
		}
		d.purse.owe(one.Tenant, 1)
		cs.add(one.Tenant, one.Cohort, workflow, one.Run, []member{{id: one.Schedule, missed: one.Missed}}, one.Forced, false)
		if err := d.insertChunks(ctx, tx, cs); err != nil {
			return err
		}
		if err := announce(ctx, tx, cs.made); err != nil {
			return err
		}
	}
	return nil
}
