package sweep

import (
	"context"

	"github.com/carillonhq/carillon/dispatch/state"
)

// markOut writes into the states of schedules with fixed_delay that a tick of theirs is out: the end of that tick arms the schedule's cohort
// again. It returns the cohorts whose last tick this is.
func (p *pass) markOut(ctx context.Context) (over []int64, err error) {
	var all []state.Delayed
	for _, d := range p.delayed {
		for _, m := range d.members {
			all = append(all, state.Delayed{Schedule: state.Schedule{Tenant: d.cohort.TenantID, ID: m.ID}, Cohort: d.cohort.ID, At: d.cohort.run.At})
		}
	}
	return state.SendDelayed(ctx, p.tx, all)
}
