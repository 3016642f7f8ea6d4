package open

import (
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/trace"
)

// origin says where the ticks of a plan come from.
type origin int8

const (
	unopened  origin = iota // a chunk that nobody has opened yet
	takenOver               // an open chunk whose process died
	refilled                // the overflow of an endpoint's queue, which has room again
)

// plan is what one transaction does with the ticks of one chunk. decide and route fill it, write writes it, and send sends its
// ticks once they are committed.
type plan struct {
	chunk   *chunk.Chunk
	trace   trace.Context // of the chunk's sweep; none if no span of it is exported
	origin  origin
	now     time.Time     // the database's clock, read after the chunk was locked and before anything that decides its ticks
	groups  []chunk.Group // of first attempts
	items   int           // schedules in the groups
	routes  []route       // of the chunk's workflows, in their order
	stopped bool          // the tenant is halted or suspended

	ticks  []record.Tick // new ones
	fired  []Fired
	aside  aside
	send   []*push.Delivery
	bytes  int                  // of the payloads in send
	later  push.OverflowBatches // overflow: sent when the queue of their endpoint has room
	ready  []lease.ReadyTick
	queued []*push.Delivery // wait for a slot of their workflow
	traced []*record.Tick   // ticks of further attempts, for their spans

	triggered []settled // manual ticks whose times had come
}

// settled is a tick and what became of it.
type settled struct {
	key ident.TickKey
	is  record.State
}

// aside are the ticks of a plan that go to no worker now.
type aside struct {
	held     []record.Delayed
	parked   []record.Parking
	buffered []ident.TickKey // wait for another tick of their schedule
	stops    []int64         // schedules whose running tick is cancelled for a buffered one
	delays   []ident.TickKey // skipped ticks of schedules with fixed_delay, whose next time counts from now
	ended    []finish.Ending
}

// hold delays an attempt until a moment.
func (p *plan) hold(t *record.Tick, why string, until time.Time) {
	p.aside.held = append(p.aside.held, record.Delayed{Try: tryOf(t), Shard: t.Shard, Why: why, Due: until})
}

// park delays an attempt until its endpoint, or its tenant, goes on.
func (p *plan) park(t *record.Tick, workflow string) {
	p.aside.parked = append(p.aside.parked, record.Parking{Try: tryOf(t), Shard: t.Shard, Workflow: workflow})
}

// end ends an attempt without a delivery.
func (p *plan) end(t record.Try, outcome, why string) {
	p.aside.ended = append(p.aside.ended, finish.Ending{TickKey: t.TickKey, Attempt: t.Attempt, Outcome: outcome, Err: &why})
}

// skip records a tick that is not delivered at all.
func (p *plan) skip(t *record.Tick, reason record.Reason, delays bool) {
	t.State, t.Reason, t.EndedAt = record.Skipped, reason, new(t.FiredAt)
	p.ticks = append(p.ticks, *t)
	if delays {
		p.aside.delays = append(p.aside.delays, t.RowKey())
	}
}

// buffer records a tick that waits for another tick of its schedule; stops: it cancels the running one.
func (p *plan) buffer(t *record.Tick, stops bool) {
	t.State = record.Scheduled
	p.ticks, p.aside.buffered = append(p.ticks, *t), append(p.aside.buffered, t.RowKey())
	if stops {
		p.aside.stops = append(p.aside.stops, t.ScheduleID)
	}
}

// pushes reports whether the plan leaves its chunk ticks to push.
func (p *plan) pushes() bool { return len(p.send)+len(p.later) > 0 }

func tryOf(t *record.Tick) record.Try { return record.Try{TickKey: t.RowKey(), Attempt: t.Attempt} }
