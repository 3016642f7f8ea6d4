package dispatch

import (
	"context"
	"fmt"
	"sync"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/jackc/pgx/v5"
)

// resume reads the ticks that the sender asks for until ctx ends. It reads those of each endpoint in a goroutine of their own, so that
// no endpoint waits for another one.
func (d *Dispatch) resume(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case r := <-d.sender.Refill():
			working.Go(func() { r.ended <- d.sendBehind(r.ctx, r.lot) })
		case <-ctx.Done():
			return
		}
	}
}

// sendBehind reads ticks that waited behind a queue, and sends them the way that their workflows are registered now.
func (d *Dispatch) sendBehind(ctx context.Context, l lot) error {
	self, alive := d.process.Self()
	if !alive {
		return nil // others hold us for dead: abandon clears what is left
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	var o *opened
	mine := false
	err := pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		// Locked against being taken until what is decided here is written.
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM chunk WHERE id = $1 AND owner = $2 AND epoch = $3 FOR SHARE)`,
			l.chunk.ID, self, l.chunk.Epoch).Scan(&mine)
		if err != nil || !mine {
			return err
		}
		o, err = d.resend(ctx, tx, l.chunk, l.tries, true)
		return err
	})
	if err != nil {
		return fmt.Errorf("chunk %d: %w", l.chunk.ID, err)
	}
	if !mine {
		return nil
	}
	d.tellReady(o)
	if !d.sender.more(l.chunk, o.send, len(l.tries)) {
		return nil
	}
	_, err = d.Pool.Exec(ctx, `UPDATE chunk SET done_at = `+postgres.Now+` WHERE id = $1 AND owner = $2 AND epoch = $3`, l.chunk.ID, self, l.chunk.Epoch)
	if err != nil {
		d.Log.Warn("cannot mark chunks done", "error", err) // it is taken when this process ends, and nothing of it found
	}
	return nil
}
