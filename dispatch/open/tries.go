package open

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// openTries opens a chunk of ticks that are sent again, and ends the attempts whose answer has not come in time.
func (o *Opener) openTries(ctx context.Context, tx pgx.Tx, p *plan) error {
	c := p.chunk
	tries, err := chunk.UnpackTries(c.Items)
	if err != nil {
		return fmt.Errorf("chunk %d: %w", c.ID, err)
	}
	var send []record.Try
	for _, t := range tries {
		if t.Answer {
			p.ending = append(p.ending, finish.Ending{TickKey: t.TickKey, Attempt: t.Attempt, Outcome: finish.TimedOut, Err: new("no answer within the timeout")})
			continue
		}
		send = append(send, t)
	}
	found, err := record.Sendables(ctx, tx, c.TenantID, send)
	if err != nil {
		return err
	}
	return o.route(ctx, tx, p, found)
}

// route sends ticks that are under way the way that their workflows are registered now.
func (o *Opener) route(ctx context.Context, tx pgx.Tx, p *plan, found []*record.Sendable) error {
	var workflows []string
	for _, s := range found {
		if !slices.Contains(workflows, s.Workflow) {
			workflows = append(workflows, s.Workflow)
		}
	}
	routes, halted, now, err := o.routes(ctx, tx, p.chunk.TenantID, workflows)
	if err != nil {
		return err
	}
	if why := unreadable(routes); why != nil {
		return why
	}
	p.now, p.stopped = now, halted
	for _, s := range found {
		r := &routes[slices.Index(workflows, s.Workflow)]
		if !r.known && !s.Stopped() {
			p.ending = append(p.ending, finish.Ending{TickKey: s.RowKey(), Attempt: s.Attempt, Outcome: finish.Cancelled, Err: new("the workflow is gone")})
			continue
		}
		if e, over := finish.Unwanted(s, r.terms, now); over && (!halted || s.Stopped()) {
			p.ending = append(p.ending, e)
			continue
		}
		if halted {
			p.park = append(p.park, record.Parking{Try: record.Try{TickKey: s.RowKey(), Attempt: s.Attempt}, Shard: s.Shard, Workflow: s.Workflow})
			continue
		}
		o.place(p, &s.Tick, r, s.Key, s.Own, s.Stated)
	}
	return nil
}

// place puts a tick that is under way where it goes: to its endpoint or to the workers. It puts the tick aside while the endpoint is
// held or has too much to do, and while a change has handed out more ticks than its tenant's rate.
func (o *Opener) place(p *plan, t *record.Tick, r *route, key string, payload *string, stated policy.Stored) {
	k, terms := t.RowKey(), r.terms.With(stated)
	if at := p.chunk.HandAt; at != nil && at.After(p.now) {
		p.hold = append(p.hold, record.Held{Try: record.Try{TickKey: k, Attempt: t.Attempt}, Shard: t.Shard, Why: "rate", Due: *at})
		return
	}
	if r.endpoint == nil {
		p.ready = append(p.ready, lease.ReadyTick{TickKey: k, Workflow: r.name, Queue: terms.Queue, Priority: terms.Priority, Attempt: t.Attempt, Limited: r.limited})
		return
	}
	if r.endpoint.Shut() {
		p.park = append(p.park, record.Parking{Try: record.Try{TickKey: k, Attempt: t.Attempt}, Shard: t.Shard, Workflow: r.name})
		return
	}
	why, wait, full := o.push.MustWait(r.endpoint, len(p.send), p.bytes, p.filling, p.now.Sub(t.FiredAt))
	if wait > 0 {
		p.hold = append(p.hold, record.Held{Try: record.Try{TickKey: k, Attempt: t.Attempt}, Shard: t.Shard, Why: why, Due: p.now.Add(wait)})
		return
	}
	if full {
		p.later.Add(push.EndpointName{Tenant: r.endpoint.Tenant, Name: r.endpoint.Name}, p.chunk, record.Try{TickKey: k, Attempt: t.Attempt}, push.TextLength(payload), o.push.LotSize())
		return
	}
	p.bytes += push.TextLength(payload)
	p.send = append(p.send, &push.Delivery{
		Tenant: p.chunk.TenantID, Chunk: p.chunk.ID, Tick: *t, Workflow: r.name, Version: r.version, Key: key, Payload: payload,
		Timeout: terms.Timeout, MaxAttempts: t.Budget(terms.MaxAttempts), Endpoint: r.endpoint,
		Limited: r.limited, Priority: terms.Priority,
	})
}

// claim writes in the rows of ticks that were there already which chunk pushes them: who takes that chunk over sends
// those again, and leaves alone what waits for a worker.
func claim(ctx context.Context, tx pgx.Tx, p *plan) error {
	var pushed, pulled []record.Try
	for _, one := range p.send {
		pushed = append(pushed, record.Try{TickKey: one.Tick.RowKey(), Attempt: one.Tick.Attempt})
	}
	for _, l := range p.later {
		pushed = append(pushed, l.Tries...)
	}
	for _, r := range p.ready {
		pulled = append(pulled, record.Try{TickKey: r.TickKey, Attempt: r.Attempt})
	}
	for _, w := range p.waiting {
		pulled = append(pulled, record.Try{TickKey: w.Tick.RowKey(), Attempt: w.Tick.Attempt})
	}
	if err := claimFor(ctx, tx, p.chunk.TenantID, pushed, &p.chunk.ID); err != nil {
		return err
	}
	return claimFor(ctx, tx, p.chunk.TenantID, pulled, nil)
}

func claimFor(ctx context.Context, tx pgx.Tx, tenant tenants.ID, tries []record.Try, chunk *int64) error {
	if len(tries) == 0 {
		return nil
	}
	attempts := make(map[ident.TickKey]int16, len(tries))
	for _, t := range tries {
		attempts[t.TickKey] = t.Attempt
	}
	err := record.UpdateTicks(ctx, tx, slices.Collect(maps.Keys(attempts)), record.TickUpdate{
		Sql: `
			UPDATE tick t
			SET chunk_id = $8
			FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
			WHERE ` + record.ThatTick + ` AND t.attempt = i.attempt`,
		Args: func(part []ident.TickKey) []any {
			var keys record.Keys
			for _, k := range part {
				keys.Add(k, attempts[k])
			}
			return []any{tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, chunk}
		},
		Each: func() error { return nil },
	})
	if err != nil {
		return fmt.Errorf("claim ticks: %w", err)
	}
	return nil
}
