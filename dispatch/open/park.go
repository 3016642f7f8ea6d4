package open

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// park parks ticks of a tenant. It comes late in a transaction: a change of the endpoint waits until the transaction has ended.
func (o *Opener) park(ctx context.Context, tx pgx.Tx, tenant tenants.ID, parked []record.Parking) error {
	if len(parked) == 0 {
		return nil
	}
	shared, err := record.ShareParking(ctx, tx, tenant)
	if err != nil {
		return fmt.Errorf("park ticks: %w", err)
	}
	tries := make([]record.Try, len(parked))
	var workflows []string
	for i, p := range parked {
		if tries[i] = p.Try; !slices.Contains(workflows, p.Workflow) {
			workflows = append(workflows, p.Workflow)
		}
	}
	// Read under the lock, in statements of their own: what was read before it may have been changed since.
	routes, halted, now, err := o.routes(ctx, tx, tenant, workflows)
	if err != nil {
		return err
	}
	found, err := record.Sendables(ctx, tx, tenant, tries)
	if err != nil {
		return err
	}
	underWay := make(map[ident.TickKey]*record.Sendable, len(found))
	for _, s := range found {
		underWay[s.RowKey()] = s
	}
	holds := make([]record.Delayed, len(parked))
	for i, p := range parked {
		h := record.Delayed{Try: p.Try, Shard: p.Shard, Why: "endpoint", Due: now}
		r := &routes[slices.Index(workflows, p.Workflow)]
		s := underWay[p.TickKey]
		switch {
		case !shared || s == nil:
			h.Due = now.Add(record.ContendedWait)
		case halted: // nothing ends while its tenant is stopped
			h.Why, h.Due, h.WaitsFor = "halted", record.Never, new("")
		case r.held && p.Attempt == 1:
			h.Why, h.Due, h.WaitsFor = "held", expiry(s, r.terms), new(record.ForRelease(r.name))
		case r.endpoint != nil && r.endpoint.Shut():
			h.Due, h.WaitsFor = expiry(s, r.terms), &r.endpoint.Name
		}
		holds[i] = h
	}
	return record.InsertDelayed(ctx, tx, tenant, holds)
}

// expiry returns when a parked tick expires.
func expiry(s *record.Sendable, terms policy.Terms) time.Time {
	if latest, expires := s.Latest(terms); expires {
		return latest.Add(time.Millisecond)
	}
	return record.Never
}
