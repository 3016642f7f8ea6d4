package open

import (
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules/policy"
)

// deliver plans the delivery of a running tick: to its endpoint, or to the workers. The tick is delayed while its endpoint is held or
// has too much to do, and when a change of schedules has handed out more ticks than its tenant's rate.
func (o *Opener) deliver(p *plan, t *record.Tick, r *route, content record.Content, stated policy.Stored) {
	terms := r.terms.With(stated)
	if at := p.chunk.HandAt; at != nil && at.After(p.now) {
		p.hold(t, "rate", *at)
		return
	}
	if r.held && t.Attempt == 1 { // retries go on
		p.park(t, r.name)
		return
	}
	if r.endpoint == nil {
		p.ready = append(p.ready, lease.ReadyTick{
			TickKey: t.RowKey(), Workflow: r.name, Queue: terms.Queue, Priority: terms.Priority, Attempt: t.Attempt, Limited: r.limited,
		})
		return
	}
	if r.endpoint.Shut() {
		p.park(t, r.name)
		return
	}
	size := push.TextLength(content.Payload)
	why, wait, full := o.push.MustWait(r.endpoint, len(p.send), p.bytes, p.origin == refilled, p.now.Sub(t.FiredAt))
	if wait > 0 {
		p.hold(t, why, p.now.Add(wait))
		return
	}
	if full {
		p.later.Add(push.EndpointName{Tenant: r.endpoint.Tenant, Name: r.endpoint.Name}, p.chunk, tryOf(t), size, o.push.OverflowBatchSize())
		return
	}
	p.bytes += size
	p.send = append(p.send, &push.Delivery{
		Tenant: p.chunk.TenantID, Chunk: p.chunk.ID, Tick: *t, Workflow: r.name, Version: r.versions.At(t.FiredAt), Content: content,
		Timeout: terms.Timeout, MaxAttempts: t.Budget(terms.MaxAttempts), Endpoint: r.endpoint,
		Limited: r.limited, Priority: terms.Priority, Expired: t.LateTo(p.now, terms),
	})
}

// send gives the ticks of a committed plan to the push, and wakes the workers of the others.
func (o *Opener) send(p *plan) {
	for _, one := range p.send {
		one.Epoch = p.chunk.Epoch
	}
	o.push.Add(p.chunk, p.send, p.later)
	o.wakeWorkers(p)
	o.observers.metrics.count(p.ticks)
	o.finish.Tail.Fired(p.chunk.TenantID, p.ticks)
	o.tellTriggered(p)
	if o.observers.onFired != nil && len(p.fired) > 0 {
		o.observers.onFired(p.fired)
	}
}

// wakeWorkers notifies the polls of the workflows whose ticks are ready.
func (o *Opener) wakeWorkers(p *plan) {
	ready := map[string]int{}
	for _, r := range p.ready {
		ready[r.Workflow]++
	}
	for workflow, n := range ready {
		o.cluster.Notifier.Ready(p.chunk.TenantID, workflow, n)
	}
}
