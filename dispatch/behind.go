package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What an endpoint's queue has no room for waits behind it: of each tick its key, under the chunk that this process has
// open. So a herd that an endpoint works through for minutes costs no writes while it waits, and who takes the chunk over
// finds its ticks as any others that were not sent. They are read once there is room.

// lot are ticks of one chunk that wait behind the queue of an endpoint.
type lot struct {
	endpoint endpointName
	chunk    *chunk
	tries    []try
	bytes    int // of their payloads, when they were put aside
}

const (
	mostInLot      = 500     // read at once
	mostBytesInLot = 1 << 20 // of payloads
)

// lots groups ticks by the endpoint behind whose queue they wait.
type lots []lot

func (l *lots) add(name endpointName, c *chunk, t try, bytes, most int) {
	for i := len(*l) - 1; i >= 0; i-- {
		last := &(*l)[i]
		if last.endpoint != name {
			continue
		}
		if len(last.tries) < most && last.bytes+bytes <= mostBytesInLot {
			last.tries, last.bytes = append(last.tries, t), last.bytes+bytes
			return
		}
		break
	}
	*l = append(*l, lot{name, c, []try{t}, bytes})
}

// fill has what waits behind a queue be read, once half of the queue is free. The sender is locked.
func (s *sender) fill(q *queue) {
	if s.closed || q.filling || len(q.behind) == 0 || !s.roomFor(q, 2) {
		return
	}
	q.filling = true
	s.working.Go(func() {
		for again := true; again; {
			l, ok := s.nextLot(q)
			if !ok {
				return
			}
			if err := s.d.sendBehind(s.context, l); err != nil {
				again = s.putBack(q, l, err)
			}
		}
	})
}

// nextLot takes what is to be read next; false, and filling ends, once there is nothing, or no room.
func (s *sender) nextLot(q *queue) (l lot, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(q.behind) == 0 || !s.roomFor(q, 1) {
		q.filling = false
		if q.idle() && s.queues[q.name] == q {
			delete(s.queues, q.name)
		}
		return l, false
	}
	l = q.behind[0]
	q.behind, s.behind = q.behind[1:], s.behind-len(l.tries)
	return l, true
}

// putBack keeps what could not be read, and waits a while before it is tried again, unless the sender ends.
func (s *sender) putBack(q *queue, l lot, err error) (again bool) {
	if s.context.Err() == nil {
		s.d.Log.Error("cannot read ticks to push", "chunk", l.chunk.ID, "ticks", len(l.tries), "error", err)
	}
	s.mu.Lock()
	if o := s.unsent[l.chunk.ID]; o != nil && o.epoch == l.chunk.Epoch {
		q.behind, s.behind = append([]lot{l}, q.behind...), s.behind+len(l.tries)
	}
	s.mu.Unlock()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.context.Done():
		return false
	}
}

// sendBehind reads ticks that waited behind a queue, and sends them the way that their workflows are registered now.
func (d *Dispatch) sendBehind(ctx context.Context, l lot) error {
	self, alive := d.process.self()
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
	_, err = d.Pool.Exec(ctx, `UPDATE chunk SET done_at = clock_timestamp() WHERE id = $1 AND owner = $2 AND epoch = $3`, l.chunk.ID, self, l.chunk.Epoch)
	if err != nil {
		d.Log.Warn("cannot mark chunks done", "error", err) // it is taken when this process ends, and nothing of it found
	}
	return nil
}

// more queues what has been read of so many ticks of a chunk; the others are settled. It tells whether the chunk is done.
func (s *sender) more(c *chunk, deliveries []*delivery, of int) (done bool) {
	most := s.share(c.TenantID)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.unsent[c.ID]
	if s.closed || o == nil || o.epoch != c.Epoch {
		return false
	}
	for _, one := range deliveries {
		one.epoch = c.Epoch
	}
	s.enqueue(deliveries, most)
	return s.settle(c.ID, o, of-len(deliveries))
}

// settle counts settled ticks of a chunk. The sender is locked.
func (s *sender) settle(chunk int64, o *owned, n int) (done bool) {
	if o.left -= n; o.left > 0 {
		return false
	}
	delete(s.unsent, chunk)
	return true
}
