package lease

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// parkHeld parks the ticks of held workflows that no worker has had, and returns the others. They were taken out of the queue of ready
// ticks, so a poll meets each of them once.
func parkHeld(ctx context.Context, tx pgx.Tx, tenant tenants.ID, found []*record.Sendable, terms map[string]record.WorkflowTerms) (left []*record.Sendable, err error) {
	var names []string
	for _, s := range found {
		if terms[s.Workflow].Held && !slices.Contains(names, s.Workflow) {
			names = append(names, s.Workflow)
		}
	}
	if len(names) == 0 {
		return found, nil
	}
	shared, err := record.ShareParking(ctx, tx, tenant)
	if err != nil {
		return nil, err
	}
	held, err := record.HeldWorkflows(ctx, tx, tenant, names) // under the lock: one may have been released since
	if err != nil {
		return nil, err
	}
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return nil, err
	}
	var holds []record.Delayed
	for _, s := range found {
		if !slices.Contains(names, s.Workflow) || s.Attempt > 1 {
			left = append(left, s)
			continue
		}
		h := record.Delayed{Try: record.Try{TickKey: s.RowKey(), Attempt: s.Attempt}, Shard: s.Shard, Why: "held", Due: now}
		switch {
		case !shared:
			h.Due = now.Add(record.ContendedWait)
		case slices.Contains(held, s.Workflow):
			h.Due, h.WaitsFor = record.Never, new(record.ForRelease(s.Workflow))
			if latest, expires := s.Latest(terms[s.Workflow].Terms); expires {
				h.Due = latest.Add(time.Millisecond)
			}
		}
		holds = append(holds, h)
	}
	return left, record.InsertDelayed(ctx, tx, tenant, holds)
}
