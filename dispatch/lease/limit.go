package lease

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/tenants"
)

// takeLimited takes ready ticks. Of a workflow with max_running, it takes at most the number in free.
func takeLimited(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r leaseRequest, free map[string]int) ([]record.Try, error) {
	if len(free) == 0 {
		return takeReady(ctx, tx, tenant, r)
	}
	most := r.max
	var all []record.Try
	var rest []string
	seen := map[string]bool{}
	for _, name := range r.workflows {
		n, limited := free[name]
		if !limited {
			rest = append(rest, name)
			continue
		}
		if seen[name] || most == len(all) || n == 0 {
			continue
		}
		seen[name] = true
		r.workflows, r.max = []string{name}, min(n, most-len(all))
		tries, err := takeReady(ctx, tx, tenant, r)
		if err != nil {
			return nil, err
		}
		all = append(all, tries...)
	}
	if len(rest) == 0 || most == len(all) {
		return all, nil
	}
	r.workflows, r.max = rest, most-len(all)
	tries, err := takeReady(ctx, tx, tenant, r)
	return append(all, tries...), err
}

// occupy writes a slot for each leased tick of a workflow with max_running.
func occupy(ctx context.Context, tx pgx.Tx, tenant tenants.ID, found []*record.Sendable, free map[string]int) error {
	var keys record.Keys
	var workflows []string
	for _, s := range found {
		if _, limited := free[s.Workflow]; limited {
			keys.Add(s.RowKey(), s.Attempt)
			workflows = append(workflows, s.Workflow)
		}
	}
	return finish.InsertSlots(ctx, tx, tenant, keys, workflows)
}
