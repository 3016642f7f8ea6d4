package sweep

import (
	"context"

	"github.com/carillonhq/carillon/dispatch/state"
)

// markOut records in the states of schedules with fixed_delay that a tick is handed out. The end of that tick rearms the schedule's
// cohort. It returns the cohorts with their last tick.
func (p *pass) markOut(ctx context.Context) (over []int64, err error) {
	var all []state.Delayed
	for _, d := range p.made.delayed {
		for _, m := range d.members {
			all = append(all, state.Delayed{Schedule: state.Schedule{Tenant: d.cohort.TenantID, ID: m.ID}, Cohort: d.cohort.ID, At: d.cohort.run.At})
		}
	}
	return state.SendDelayed(ctx, p.tx, all)
}
