package open

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// write writes the rows of one transaction's plans, which have one origin, and marks their chunks. Every plan ends here: the first
// opening's, the take-over's and the refill's.
//
// Slots come first, since a tick without one is recorded without a chunk. Parking comes after all other locks: a change of an endpoint
// waits for it until the transaction ends. The marks come last, because they read again whether tenants are stopped.
func (o *Opener) write(ctx context.Context, tx pgx.Tx, all []*plan, self int64) error {
	for _, p := range all {
		if err := o.admit(ctx, tx, p); err != nil {
			return err
		}
	}
	if err := copyTicks(ctx, tx, all); err != nil {
		return err
	}
	for _, p := range all {
		if err := o.putAside(ctx, tx, p); err != nil {
			return err
		}
	}
	for _, p := range all {
		if err := o.park(ctx, tx, p.chunk.TenantID, p.aside.parked); err != nil {
			return err
		}
	}
	var b pgx.Batch
	queueRows(&b, all)
	queueMarks(&b, all, self)
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("mark chunks: %w", err)
	}
	return nil
}

// copyTicks copies the new ticks into their table.
func copyTicks(ctx context.Context, tx pgx.Tx, all []*plan) error {
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

// putAside writes the ticks of a plan that are not delivered now, and ends attempts that are over. Most plans have none of these.
func (o *Opener) putAside(ctx context.Context, tx pgx.Tx, p *plan) error {
	tenant, a := p.chunk.TenantID, &p.aside
	if err := o.finish.Buffer(ctx, tx, tenant, p.now, a.buffered, a.stops); err != nil {
		return err
	}
	if p.claims() {
		if err := claim(ctx, tx, p); err != nil {
			return err
		}
	}
	if err := record.InsertDelayed(ctx, tx, tenant, a.held); err != nil {
		return err
	}
	if len(a.ended) > 0 {
		if _, err := o.finish.End(ctx, tx, tenant, p.now, a.ended); err != nil {
			return err
		}
	}
	return o.finish.Rearm(ctx, tx, tenant, p.now, a.delays)
}

// claims reports whether the rows of the plan's ticks are older than the plan, and do not name the chunk that pushes them.
func (p *plan) claims() bool {
	if p.origin == refilled { // ticks that are pushed name this chunk already
		return len(p.ready)+len(p.queued) > 0
	}
	return p.origin == takenOver || p.chunk.Kind == chunk.LaterTries
}

// claim writes into the rows of ticks which chunk pushes them. A take-over of that chunk sends those again, and leaves alone the
// ticks that wait for a worker or a slot.
func claim(ctx context.Context, tx pgx.Tx, p *plan) error {
	var pushed, others []record.Try
	for _, one := range p.send {
		pushed = append(pushed, tryOf(&one.Tick))
	}
	for _, l := range p.later {
		pushed = append(pushed, l.Tries...)
	}
	for _, r := range p.ready {
		others = append(others, record.Try{TickKey: r.TickKey, Attempt: r.Attempt})
	}
	for _, one := range p.queued {
		others = append(others, tryOf(&one.Tick))
	}
	if err := claimFor(ctx, tx, p.chunk.TenantID, pushed, &p.chunk.ID); err != nil {
		return err
	}
	return claimFor(ctx, tx, p.chunk.TenantID, others, nil)
}

// claimFor writes a chunk, or none, into the rows of ticks that are still in the same attempt.
func claimFor(ctx context.Context, tx pgx.Tx, tenant tenants.ID, tries []record.Try, chunk *int64) error {
	if len(tries) == 0 {
		return nil
	}
	attempts := make(map[ident.TickKey]int16, len(tries))
	for _, t := range tries {
		attempts[t.TickKey] = t.Attempt
	}
	err := record.UpdateTicks(ctx, tx, slices.Collect(maps.Keys(attempts)), record.TickUpdate{
		SQL: `
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

// queueRows writes the ticks that are ready for workers, and the index and the use counts of the new ticks.
func queueRows(b *pgx.Batch, all []*plan) {
	var ready lease.ReadyRows
	var index record.IndexEntries
	var use record.UseEntries
	for _, p := range all {
		for i := range p.ready {
			ready.Add(p.chunk.TenantID, &p.ready[i])
		}
		index.Add(p.chunk.TenantID, p.ticks)
		use.Add(p.chunk.TenantID, p.now, p.ticks)
	}
	ready.Queue(b)
	index.Queue(b)
	use.Queue(b)
}

// queueMarks marks the chunks of plans of one origin. A refilled chunk keeps its mark: it is done when its queues are empty (resume.go).
func queueMarks(b *pgx.Batch, all []*plan, self int64) {
	switch p := all[0]; p.origin {
	case unopened:
		queueOpened(b, all, self)
	case takenOver:
		if !p.pushes() {
			b.Queue(markDone, p.chunk.ID, self, p.chunk.Epoch)
		}
	}
}

// queueOpened marks chunks as opened by this process, and as done where nothing is left to push. The statement looks again whether
// tenants are stopped: no tick goes out after a halt or a suspension was committed. The error is errStopped then.
func queueOpened(b *pgx.Batch, all []*plan, self int64) {
	ids, done := make([]int64, len(all)), make([]bool, len(all))
	for i, p := range all {
		ids[i], done[i] = p.chunk.ID, !p.pushes()
	}
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
}

// markDone marks a chunk as done, unless another process has taken it.
const markDone = `UPDATE chunk SET done_at = ` + postgres.Now + ` WHERE id = $1 AND owner = $2 AND epoch = $3`
