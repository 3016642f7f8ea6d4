package open

import (
	"context"
	"fmt"
	"sync"

	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/jackc/pgx/v5"
)

// resume reads the ticks that the sender asks for until ctx ends. It reads those of each endpoint in a goroutine of their own, so that
// no endpoint waits for another one.
func (o *Opener) resume(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case r := <-o.push.Refill():
			working.Go(func() { r.Ended <- o.sendBehind(r.Ctx, r.Lot) })
		case <-ctx.Done():
			return
		}
	}
}

// sendBehind reads ticks that waited behind a queue, and sends them the way that their workflows are registered now.
func (o *Opener) sendBehind(ctx context.Context, l push.Lot) error {
	self, alive := o.member.Self()
	if !alive {
		return nil // others hold us for dead: abandon clears what is left
	}
	ctx, cancel := context.WithTimeout(ctx, push.WriteLimit)
	defer cancel()
	var p *plan
	mine := false
	err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		// Locked against being taken until what is decided here is written.
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM chunk WHERE id = $1 AND owner = $2 AND epoch = $3 FOR SHARE)`,
			l.Chunk.ID, self, l.Chunk.Epoch).Scan(&mine)
		if err != nil || !mine {
			return err
		}
		p, err = o.resend(ctx, tx, l.Chunk, l.Tries, true)
		return err
	})
	if err != nil {
		return fmt.Errorf("chunk %d: %w", l.Chunk.ID, err)
	}
	if !mine {
		return nil
	}
	o.tellReady(p)
	if !o.push.More(l.Chunk, p.send, len(l.Tries)) {
		return nil
	}
	_, err = o.pool.Exec(ctx, `UPDATE chunk SET done_at = `+postgres.Now+` WHERE id = $1 AND owner = $2 AND epoch = $3`, l.Chunk.ID, self, l.Chunk.Epoch)
	if err != nil {
		o.log.Warn("cannot mark chunks done", "error", err) // it is taken when this process ends, and nothing of it found
	}
	return nil
}
