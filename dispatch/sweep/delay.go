package sweep

import (
	"context"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/jackc/pgx/v5"
)

// markOut says in the states of schedules with fixed_delay that a tick of theirs is out: whoever ends it arms the
// schedule's cohort again. It returns the cohorts whose last tick this is.
func markOut(ctx context.Context, tx pgx.Tx, cohorts []*due, members [][]chunk.Member) (over []int64, err error) {
	var all []state.Delayed
	for i, c := range cohorts {
		if _, delays := c.timing.FixedDelay(); !delays {
			continue
		}
		for _, m := range members[i] {
			all = append(all, state.Delayed{Schedule: state.Schedule{Tenant: c.TenantID, ID: m.ID}, Cohort: c.ID, At: c.run.At})
		}
	}
	return state.SendDelayed(ctx, tx, all)
}
