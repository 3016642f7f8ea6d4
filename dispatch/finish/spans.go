package finish

import (
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/trace"
)

// tracedEnd is the end of an attempt at a tick with a stored trace.
type tracedEnd struct {
	of     trace.Context
	ending *Ending
}

// trace keeps the stored trace of a tick whose attempt ended, if spans are made.
func (d *ends) trace(stored []byte, e *Ending) {
	if d.traces.On() && stored != nil {
		d.traced = append(d.traced, tracedEnd{trace.Read(stored), e})
	}
}

// recordSpans makes a span of the end of each attempt, under its tick. The caller still has to commit.
func (f *Finisher) recordSpans(d *ends) {
	if !f.Traces.On() {
		return
	}
	for _, one := range d.traced {
		e := one.ending
		facts := trace.Facts{Tenant: int32(d.tenant), Tick: e.TickKey, Attempt: e.Attempt, Outcome: e.Outcome, State: d.ended[e.TickKey].String(), Bad: d.ended[e.TickKey] == record.Failed}
		f.Traces.Record("finish", one.of, trace.Context{}, d.began, facts)
	}
}
