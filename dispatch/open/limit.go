package open

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// admit takes slots for the ticks of limited workflows, by priority and then in order; ticks without a slot wait. It sends a tick that
// already has its slot, for example from a dead process.
func (o *Opener) admit(ctx context.Context, tx pgx.Tx, p *plan) error {
	tenant := p.chunk.TenantID
	if err := vacate(ctx, tx, tenant, p.ready); err != nil {
		return err
	}
	byWorkflow := map[string][]*push.Delivery{}
	var all record.Keys
	for _, one := range p.send {
		if one.Limited {
			byWorkflow[one.Workflow] = append(byWorkflow[one.Workflow], one)
			all.Add(one.Tick.RowKey(), one.Tick.Attempt)
		}
	}
	if len(byWorkflow) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(byWorkflow))
	free, err := o.finish.LockLimits(ctx, tx, tenant, names)
	if err != nil {
		return err
	}
	has, queued, err := o.finish.StandingSlots(ctx, tx, tenant, all, slices.Sorted(maps.Keys(free)))
	if err != nil {
		return err
	}
	var keys record.Keys
	var workflows []string
	aside := map[*push.Delivery]bool{}
	for _, name := range names {
		left, limited := free[name]
		if !limited { // the limit was lifted just now
			continue
		}
		if queued[name] {
			left = 0
		}
		slices.SortStableFunc(byWorkflow[name], func(a, b *push.Delivery) int { return int(a.Priority - b.Priority) })
		for _, one := range byWorkflow[name] {
			switch {
			case has[one.Tick.RowKey()]:
			case left > 0:
				left--
				keys.Add(one.Tick.RowKey(), one.Tick.Attempt)
				workflows = append(workflows, name)
			default:
				aside[one] = true
				p.queued = append(p.queued, one)
			}
		}
	}
	if err := finish.InsertSlots(ctx, tx, tenant, keys, workflows); err != nil {
		return err
	}
	if len(p.queued) == 0 {
		return nil
	}
	p.send = slices.DeleteFunc(p.send, func(one *push.Delivery) bool { return aside[one] })
	return o.queueUp(ctx, tx, p)
}

// queueUp writes the ticks that wait for a slot, in their order. It removes their chunk, so that no chunk pushes them.
func (o *Opener) queueUp(ctx context.Context, tx pgx.Tx, p *plan) error {
	places := make(map[ident.TickKey]*record.Tick, len(p.ticks))
	for i := range p.ticks {
		places[p.ticks[i].RowKey()] = &p.ticks[i]
	}
	var keys record.Keys
	var workflows []string
	var priorities, shards []int16
	for _, one := range p.queued {
		if t := places[one.Tick.RowKey()]; t != nil {
			t.ChunkID = nil
		}
		keys.Add(one.Tick.RowKey(), one.Tick.Attempt)
		workflows, priorities, shards = append(workflows, one.Workflow), append(priorities, one.Priority), append(shards, one.Tick.Shard)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO queued (tenant_id, workflow, priority, schedule_id, nominal_at, seq, attempt, shard)
		SELECT $1, workflow, priority, id, at, seq, attempt, shard
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[], $6::text[], $7::smallint[], $8::smallint[])
			WITH ORDINALITY AS n (id, at, seq, attempt, workflow, priority, shard, ord)
		ORDER BY ord`, p.chunk.TenantID, keys.IDs, keys.At, keys.Seqs, keys.Tries, workflows, priorities, shards)
	if err != nil {
		return fmt.Errorf("queue ticks for a slot: %w", err)
	}
	return nil
}

// vacate frees the slots of ticks that now wait for a worker, because these take a slot when they are leased.
func vacate(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ready []lease.ReadyTick) error {
	var keys record.Keys
	for _, r := range ready {
		if r.Limited {
			keys.Add(r.TickKey, r.Attempt)
		}
	}
	_, err := finish.DropSlots(ctx, tx, tenant, keys)
	return err
}
