package open

import (
	"context"
	"fmt"
	"sync"

	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/jackc/pgx/v5"
)

// resume answers the pusher's requests for refills until ctx ends. Each refill has its own goroutine, so that no endpoint waits for
// another.
func (o *Opener) resume(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case r := <-o.push.Refills():
			working.Go(func() { r.Ended <- o.refill(r.Ctx, r.Batch) })
		case <-ctx.Done():
			return
		}
	}
}

// refill reads ticks of the overflow of a queue, and routes them as their workflows are registered now.
func (o *Opener) refill(ctx context.Context, l push.OverflowBatch) error {
	self, alive := o.cluster.Member.Self()
	if !alive {
		return nil // other processes count this one as dead, and its pusher abandons what is left
	}
	ctx, cancel := context.WithTimeout(ctx, push.WriteLimit)
	defer cancel()
	p, mine := &plan{chunk: l.Chunk, origin: refilled}, false
	err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// The lock keeps a take-over of the chunk away until this transaction ends.
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM chunk WHERE id = $1 AND owner = $2 AND epoch = $3 FOR SHARE)`,
			l.Chunk.ID, self, l.Chunk.Epoch).Scan(&mine)
		if err != nil || !mine {
			return err
		}
		return o.resend(ctx, tx, p, l.Tries, self)
	})
	if err != nil {
		return fmt.Errorf("chunk %d: %w", l.Chunk.ID, err)
	}
	if !mine {
		return nil
	}
	o.wakeWorkers(p)
	if !o.push.Refilled(l.Chunk, p.send, len(l.Tries)) {
		return nil
	}
	if _, err = o.pool.Exec(ctx, markDone, l.Chunk.ID, self, l.Chunk.Epoch); err != nil {
		o.log.Warn("cannot mark chunks done", "error", err) // after the end of this process, a take-over marks it
	}
	return nil
}
