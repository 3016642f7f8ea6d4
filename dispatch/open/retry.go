package open

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/jackc/pgx/v5"
)

// openTries opens a chunk of ticks that are sent again. It ends the attempts whose answer has not come in time, and decides the manual
// ticks whose times have come.
func (o *Opener) openTries(ctx context.Context, tx pgx.Tx, p *plan) error {
	tries, err := chunk.UnpackTries(p.chunk.Items)
	if err != nil {
		return fmt.Errorf("chunk %d: %w", p.chunk.ID, err)
	}
	var send, triggered []record.Try
	for _, t := range tries {
		if t.Answer {
			p.end(t, finish.TimedOut, "no answer within the timeout")
			continue
		}
		if t.Attempt == 0 { // a manual tick whose time has come
			triggered = append(triggered, t)
			continue
		}
		send = append(send, t)
	}
	found, err := record.Sendables(ctx, tx, p.chunk.TenantID, send)
	if err != nil {
		return err
	}
	if err := o.route(ctx, tx, p, found); err != nil {
		return err
	}
	return o.fireTriggered(ctx, tx, p, triggered)
}

// route reads how workflows are registered now, and routes ticks that are running already.
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
		if o.finish.Traces.Follows(trace.Read(s.Trace)) {
			p.traced = append(p.traced, &s.Tick)
		}
		o.routeOne(p, s, &routes[slices.Index(workflows, s.Workflow)])
	}
	return nil
}

// routeOne delivers, parks or ends one tick that is running already.
func (o *Opener) routeOne(p *plan, s *record.Sendable, r *route) {
	if !r.known && !s.Stopped() {
		p.end(tryOf(&s.Tick), finish.Cancelled, "the workflow is gone")
		return
	}
	if e, over := finish.Unwanted(s, r.terms, p.now); over && (!p.stopped || s.Stopped()) {
		p.aside.ended = append(p.aside.ended, e)
		return
	}
	if p.stopped {
		p.park(&s.Tick, s.Workflow)
		return
	}
	o.deliver(p, &s.Tick, r, s.Content, s.Stated)
}
