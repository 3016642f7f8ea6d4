package open

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// plan is what the opening of a chunk gives rise to once it is committed.
type plan struct {
	chunk   *chunk.Chunk
	now     time.Time     // the clock, read after the chunk was locked and before anything that decides its ticks
	groups  []chunk.Group // of first tries
	items   int           // how many of those there are
	routes  []route       // of the chunk's workflows, in their order
	stopped bool          // its tenant is halted or suspended
	ticks   []record.Tick
	ready   []lease.ReadyTick
	send    []*push.Delivery
	bytes   int              // of their payloads
	later   push.Lots        // to be sent once their endpoint's queue has room
	filling bool             // it has
	waiting []*push.Delivery // for one of their workflow to end
	hold    []record.Held
	park    []record.Parking
	buffer  []ident.TickKey // ticks that wait for others
	cancels []int64         // schedules whose running tick is to stop for a newer one
	passed  []ident.TickKey // skipped ticks of schedules with fixed_delay
	fired   []Fired
	ending  []finish.Ending
}

// open opens a chunk: it decides each tick in it, commits the rows, and has those that were handed out sent. A chunk
// that is open already, or gone, is left as it is.
func (o *Opener) Open(ctx context.Context, id int64) error {
	for range mostEarlier {
		behind, err := o.openRange(ctx, id, id)
		if err != nil || len(behind) == 0 {
			return err
		}
		if err := o.Open(ctx, behind[id]); err != nil {
			return fmt.Errorf("open the earlier chunk %d: %w", behind[id], err)
		}
	}
	return fmt.Errorf("chunk %d has more than %d unopened before it", id, mostEarlier)
}

const mostEarlier = 2000

// openRange opens the chunks of a shard whose numbers are from first to through, in one transaction. Those of which an earlier
// chunk shares a schedule and is unopened still are left, and returned with that. Of those that are left to a later try the error
// is notYet; the others are open then.
func (o *Opener) openRange(ctx context.Context, first, through int64) (behind map[int64]int64, err error) {
	self, alive := o.member.Self()
	if !alive {
		return nil, errors.New("this process was silent and opens nothing")
	}
	var all []*plan
	var later []error
	open := func() error {
		return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
			l, err := o.lockChunks(ctx, tx, first, through)
			if err != nil {
				return err
			}
			all, behind, later = l.ready, l.behind, l.later
			if len(all) == 0 {
				return nil
			}
			if all[0].chunk.Kind == chunk.LaterTries {
				err = o.openTries(ctx, tx, all[0])
			} else {
				err = o.openFirst(ctx, tx, all)
			}
			if err != nil {
				return err
			}
			err = o.commitOpen(ctx, tx, all, self)
			sabotage.Crash("open.before_commit")
			return err
		})
	}
	err = errStopped
	for try := 0; try < mostStops && errors.Is(err, errStopped); try++ {
		err = postgres.Retry(ctx, open)
	}
	if err != nil {
		return nil, err
	}
	sabotage.Crash("open.committed")
	for _, p := range all {
		o.after(p)
	}
	return behind, errors.Join(later...)
}

// errStopped is the error of an opening whose tenant was halted or suspended after the opening had read the tenant.
var errStopped = errors.New("the tenant was stopped while its chunk was being opened")

const mostStops = 3 // openings of a run in a row that end with errStopped

// commitOpen writes what opening decided, and marks the chunks: open, and done where nothing of them is to be pushed. With the last
// statement it looks again whether tenants are stopped: a tick does not go out after a halt or a suspension was committed. The error is
// then errStopped.
func (o *Opener) commitOpen(ctx context.Context, tx pgx.Tx, all []*plan, self int64) error {
	for _, p := range all {
		if err := o.admit(ctx, tx, p); err != nil {
			return err
		}
	}
	if err := copyOpened(ctx, tx, all); err != nil {
		return err
	}
	for _, p := range all {
		if err := o.putAside(ctx, tx, p); err != nil {
			return err
		}
	}
	for _, p := range all {
		if err := o.park(ctx, tx, p.chunk.TenantID, p.park); err != nil {
			return err
		}
	}
	var b pgx.Batch
	var ready lease.ReadyRows
	var roll record.IndexEntries
	var use record.UseEntries
	ids, done := make([]int64, len(all)), make([]bool, len(all))
	for i, p := range all {
		for j := range p.ready {
			ready.Add(p.chunk.TenantID, &p.ready[j])
		}
		roll.Add(p.chunk.TenantID, p.ticks)
		use.Add(p.chunk.TenantID, p.now, p.ticks)
		ids[i], done[i] = p.chunk.ID, len(p.send)+len(p.later) == 0
	}
	ready.Queue(&b)
	roll.Queue(&b)
	use.Queue(&b)
	b.Queue(`
		UPDATE chunk c
		SET opened_at = $2::timestamptz, owner = $3, epoch = c.epoch + 1, done_at = CASE WHEN n.done THEN $2::timestamptz END
		FROM unnest($1::bigint[], $4::boolean[]) WITH ORDINALITY AS n (id, done, ord)
		WHERE c.id = n.id
		RETURNING n.ord::int, c.epoch, EXISTS (SELECT FROM tenant t WHERE t.id = c.tenant_id AND `+tenants.Stopped+`)`,
		ids, all[0].now, self, done).Query(func(rows pgx.Rows) error {
		var ord int
		var epoch int32
		var stopped bool
		_, err := pgx.ForEachRow(rows, []any{&ord, &epoch, &stopped}, func() error {
			if stopped && !all[ord-1].stopped {
				return errStopped
			}
			all[ord-1].chunk.Epoch = epoch
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("mark chunks open: %w", err)
	}
	return nil
}

// tellReady wakes workers for what waits for them.
func (o *Opener) tellReady(p *plan) {
	waiting := map[string]int{}
	for _, r := range p.ready {
		waiting[r.Workflow]++
	}
	for workflow, n := range waiting {
		o.notifier.Ready(p.chunk.TenantID, workflow, n)
	}
}

// after sends what was handed out, now that it is committed.
func (o *Opener) after(p *plan) {
	for _, one := range p.send {
		one.Epoch = p.chunk.Epoch
	}
	o.push.Add(p.chunk, p.send, p.later)
	o.tellReady(p)
	type outcome struct {
		state  record.State
		reason record.Reason
	}
	outcomes := map[outcome]int{}
	for i := range p.ticks {
		t := &p.ticks[i]
		outcomes[outcome{t.State, t.Reason}]++
		if t.State == record.Running {
			o.metrics.lateness.Observe(t.FiredAt.Sub(t.NominalAt).Seconds())
		}
	}
	for one, n := range outcomes {
		o.metrics.ticks.WithLabelValues(one.state.String(), one.reason.String()).Add(float64(n))
	}
	if o.onFired != nil && len(p.fired) > 0 {
		o.onFired(p.fired)
	}
}

// openFirst decides the ticks of schedules whose nominal time has come.
func (o *Opener) openFirst(ctx context.Context, tx pgx.Tx, all []*plan) error {
	n := 0
	for _, p := range all {
		if err := o.excluded(ctx, tx, p.chunk.TenantID, p.chunk.Shard, p.groups); err != nil {
			return err
		}
		n += p.items
	}
	items := make([]item, 0, n)
	for _, p := range all {
		items = flatten(items, p)
	}
	// In rising order of id, so that two that open chunks lock the states in one order.
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.id, b.id) })
	if err := o.decide(ctx, tx, all, items); err != nil {
		return err
	}
	return cancelDeleted(ctx, tx, items)
}

// item is one schedule of a chunk, with the group that it stands in.
type item struct {
	*chunk.Group
	of      *plan
	id      int64
	decided bool
}

func flatten(items []item, p *plan) []item {
	for i := range p.groups {
		for _, id := range p.groups[i].IDs {
			items = append(items, item{Group: &p.groups[i], of: p, id: id})
		}
	}
	return items
}

// putAside writes what is not to be delivered now, and ends what is over. Most chunks have nothing of the kind.
func (o *Opener) putAside(ctx context.Context, tx pgx.Tx, p *plan) error {
	if err := o.finish.Buffer(ctx, tx, p.chunk.TenantID, p.now, p.buffer, p.cancels); err != nil {
		return err
	}
	if p.chunk.Kind == chunk.LaterTries {
		if err := claim(ctx, tx, p); err != nil {
			return err
		}
	}
	if err := record.InsertHeld(ctx, tx, p.chunk.TenantID, p.hold); err != nil {
		return err
	}
	if len(p.ending) > 0 {
		if _, err := o.finish.End(ctx, tx, p.chunk.TenantID, p.now, p.ending); err != nil {
			return err
		}
	}
	return o.finish.Rearm(ctx, tx, p.chunk.TenantID, p.now, p.passed)
}

// copyOpened records the ticks of chunks that are being opened.
func copyOpened(ctx context.Context, tx pgx.Tx, all []*plan) error {
	n := 0
	for _, p := range all {
		n += len(p.ticks)
	}
	if n == 0 {
		return nil
	}
	c := record.NewCopy(n)
	for _, p := range all {
		for i := range p.ticks {
			c.Add(p.chunk.TenantID, &p.ticks[i])
		}
	}
	return c.Send(ctx, tx)
}
