package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// opened is what the opening of a chunk gives rise to once it is committed.
type opened struct {
	chunk   *chunk.Chunk
	now     time.Time     // the clock, read after the chunk was locked and before anything that decides its ticks
	groups  []chunk.Group // of first tries
	items   int           // how many of those there are
	routes  []route       // of the chunk's workflows, in their order
	stopped bool          // its tenant is halted or suspended
	ticks   []record.Tick
	ready   []readyTick
	send    []*delivery
	bytes   int         // of their payloads
	later   lots        // to be sent once their endpoint's queue has room
	filling bool        // it has
	waiting []*delivery // for one of their workflow to end
	hold    []record.Held
	park    []parking
	buffer  []ident.TickKey // ticks that wait for others
	cancels []int64         // schedules whose running tick is to stop for a newer one
	passed  []ident.TickKey // skipped ticks of schedules with fixed_delay
	fired   []Fired
	ending  []ending
}

// open opens a chunk: it decides each tick in it, commits the rows, and has those that were handed out sent. A chunk
// that is open already, or gone, is left as it is.
func (d *Dispatch) open(ctx context.Context, id int64) error {
	for range mostEarlier {
		behind, err := d.openRange(ctx, id, id)
		if err != nil || len(behind) == 0 {
			return err
		}
		if err := d.open(ctx, behind[id]); err != nil {
			return fmt.Errorf("open the earlier chunk %d: %w", behind[id], err)
		}
	}
	return fmt.Errorf("chunk %d has more than %d unopened before it", id, mostEarlier)
}

const mostEarlier = 2000

// openRange opens the chunks of a shard whose numbers are from first to through, in one transaction. Those of which an earlier
// chunk shares a schedule and is unopened still are left, and returned with that. Of those that are left to a later try the error
// is notYet; the others are open then.
func (d *Dispatch) openRange(ctx context.Context, first, through int64) (behind map[int64]int64, err error) {
	self, alive := d.process.Self()
	if !alive {
		return nil, errors.New("this process was silent and opens nothing")
	}
	var all []*opened
	var later []error
	open := func() error {
		return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
			l, err := d.lockChunks(ctx, tx, first, through)
			if err != nil {
				return err
			}
			all, behind, later = l.ready, l.behind, l.later
			if len(all) == 0 {
				return nil
			}
			if all[0].chunk.Kind == chunk.LaterTries {
				err = d.openTries(ctx, tx, all[0])
			} else {
				err = d.openFirst(ctx, tx, all)
			}
			if err != nil {
				return err
			}
			err = d.commitOpen(ctx, tx, all, self)
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
	for _, o := range all {
		d.after(o)
	}
	return behind, errors.Join(later...)
}

// errStopped is the error of an opening whose tenant was halted or suspended after the opening had read the tenant.
var errStopped = errors.New("the tenant was stopped while its chunk was being opened")

const mostStops = 3 // openings of a run in a row that end with errStopped

// commitOpen writes what opening decided, and marks the chunks: open, and done where nothing of them is to be pushed. With the last
// statement it looks again whether tenants are stopped: a tick does not go out after a halt or a suspension was committed. The error is
// then errStopped.
func (d *Dispatch) commitOpen(ctx context.Context, tx pgx.Tx, all []*opened, self int64) error {
	for _, o := range all {
		if err := d.admit(ctx, tx, o); err != nil {
			return err
		}
	}
	if err := copyOpened(ctx, tx, all); err != nil {
		return err
	}
	for _, o := range all {
		if err := d.putAside(ctx, tx, o); err != nil {
			return err
		}
	}
	for _, o := range all {
		if err := d.park(ctx, tx, o.chunk.TenantID, o.park); err != nil {
			return err
		}
	}
	var b pgx.Batch
	var ready readyRows
	var roll record.IndexEntries
	var use record.UseEntries
	ids, done := make([]int64, len(all)), make([]bool, len(all))
	for i, o := range all {
		for j := range o.ready {
			ready.add(o.chunk.TenantID, &o.ready[j])
		}
		roll.Add(o.chunk.TenantID, o.ticks)
		use.Add(o.chunk.TenantID, o.now, o.ticks)
		ids[i], done[i] = o.chunk.ID, len(o.send)+len(o.later) == 0
	}
	ready.queue(&b)
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
func (d *Dispatch) tellReady(o *opened) {
	waiting := map[string]int{}
	for _, r := range o.ready {
		waiting[r.workflow]++
	}
	for workflow, n := range waiting {
		d.hub.Ready(o.chunk.TenantID, workflow, n)
	}
}

// after sends what was handed out, now that it is committed.
func (d *Dispatch) after(o *opened) {
	for _, one := range o.send {
		one.epoch = o.chunk.Epoch
	}
	d.sender.add(o.chunk, o.send, o.later)
	d.tellReady(o)
	type outcome struct {
		state  record.State
		reason record.Reason
	}
	outcomes := map[outcome]int{}
	for i := range o.ticks {
		t := &o.ticks[i]
		outcomes[outcome{t.State, t.Reason}]++
		if t.State == record.Running {
			d.openMetrics.lateness.Observe(t.FiredAt.Sub(t.NominalAt).Seconds())
		}
	}
	for one, n := range outcomes {
		d.openMetrics.ticks.WithLabelValues(one.state.String(), one.reason.String()).Add(float64(n))
	}
	if d.OnFired != nil && len(o.fired) > 0 {
		d.OnFired(o.fired)
	}
}

// openFirst decides the ticks of schedules whose nominal time has come.
func (d *Dispatch) openFirst(ctx context.Context, tx pgx.Tx, all []*opened) error {
	n := 0
	for _, o := range all {
		if err := d.excluded(ctx, tx, o.chunk.TenantID, o.chunk.Shard, o.groups); err != nil {
			return err
		}
		n += o.items
	}
	items := make([]item, 0, n)
	for _, o := range all {
		items = flatten(items, o)
	}
	// In rising order of id, so that two that open chunks lock the states in one order.
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.id, b.id) })
	if err := d.decide(ctx, tx, all, items); err != nil {
		return err
	}
	return cancelDeleted(ctx, tx, items)
}

// item is one schedule of a chunk, with the group that it stands in.
type item struct {
	*chunk.Group
	of      *opened
	id      int64
	decided bool
}

func flatten(items []item, o *opened) []item {
	for i := range o.groups {
		for _, id := range o.groups[i].IDs {
			items = append(items, item{Group: &o.groups[i], of: o, id: id})
		}
	}
	return items
}

// putAside writes what is not to be delivered now, and ends what is over. Most chunks have nothing of the kind.
func (d *Dispatch) putAside(ctx context.Context, tx pgx.Tx, o *opened) error {
	if err := d.buffer(ctx, tx, o.chunk.TenantID, o.now, o.buffer, o.cancels); err != nil {
		return err
	}
	if o.chunk.Kind == chunk.LaterTries {
		if err := claim(ctx, tx, o); err != nil {
			return err
		}
	}
	if err := record.InsertHeld(ctx, tx, o.chunk.TenantID, o.hold); err != nil {
		return err
	}
	if len(o.ending) > 0 {
		if _, err := d.end(ctx, tx, o.chunk.TenantID, o.now, o.ending); err != nil {
			return err
		}
	}
	return d.rearm(ctx, tx, o.chunk.TenantID, o.now, o.passed)
}

// copyOpened records the ticks of chunks that are being opened.
func copyOpened(ctx context.Context, tx pgx.Tx, all []*opened) error {
	n := 0
	for _, o := range all {
		n += len(o.ticks)
	}
	if n == 0 {
		return nil
	}
	c := record.NewCopy(n)
	for _, o := range all {
		for i := range o.ticks {
			c.Add(o.chunk.TenantID, &o.ticks[i])
		}
	}
	return c.Send(ctx, tx)
}
