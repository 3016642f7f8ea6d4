package lease

import (
	"context"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// dropForeignTokens clears the lease token of each of n items whose workflow the caller's API token does not cover, so that it is
// treated like a stale one. at returns the id and the token of item i.
func (ls *Leases) dropForeignTokens(ctx context.Context, who tenants.Identity, n int, at func(i int) (id string, token *string)) error {
	ids := make([]string, n)
	for i := range ids {
		ids[i], _ = at(i)
	}
	outside, err := ls.outside(ctx, who, ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if outside[id] {
			_, token := at(i)
			*token = ""
		}
	}
	return nil
}

// outside returns the ticks whose workflow the caller's API token does not cover; nil if the token covers all.
func (ls *Leases) outside(ctx context.Context, who tenants.Identity, ids []string) (map[string]bool, error) {
	if who.Workflows == nil || len(ids) > mostLeased { // so many are refused later
		return nil, nil
	}
	of := map[string]int64{}
	var asked []int64
	for _, id := range ids {
		if k, ok := ls.ids.ParseTick(id); ok {
			of[id], asked = k.Schedule, append(asked, k.Schedule)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	named, err := record.SchedulesOf(ctx, ls.api, who.Tenant, asked)
	if err != nil {
		return nil, err
	}
	outside := map[string]bool{}
	for id, schedule := range of {
		if w, known := named[schedule]; known && !who.MayUse(w.Workflow) {
			outside[id] = true
		}
	}
	return outside, nil
}
