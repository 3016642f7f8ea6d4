package open

import (
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/trace"
)

// recordSpans makes the spans of a committed plan: that of the opening, under the sweep, and one of each new tick under the opening, whose
// id the tick's traceparent has. An opening of further attempts is a span of each tick instead.
func (o *Opener) recordSpans(p *plan, began time.Time) {
	if !o.finish.Traces.On() {
		return
	}
	tenant := int32(p.chunk.TenantID)
	for _, t := range p.traced {
		o.finish.Traces.Record("open", trace.Read(t.Trace), trace.Context{}, began, trace.Facts{Tenant: tenant, Tick: t.RowKey(), Attempt: t.Attempt})
	}
	if !o.finish.Traces.Follows(p.trace) {
		return
	}
	opening := p.trace.Child()
	o.finish.Traces.Record("open", p.trace, opening, began, trace.Facts{Tenant: tenant, Ticks: len(p.ticks), Lane: p.chunk.Lane})
	for i := range p.ticks {
		t := &p.ticks[i]
		if len(t.Trace) == 0 {
			continue
		}
		state := t.State.String()
		if t.State == record.Skipped {
			state += ": " + t.Reason.String()
		}
		o.finish.Traces.Record("tick", opening, trace.Read(t.Trace), began, trace.Facts{Tenant: tenant, Workflow: t.Workflow, Tick: t.RowKey(), State: state})
	}
}
