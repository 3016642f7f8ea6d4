package push

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
)

// What an endpoint's queue has no room for waits behind it: of each tick its key, under the chunk that this process has
// open. So a herd that an endpoint works through for minutes costs no writes while it waits, and who takes the chunk over
// finds its ticks as any others that were not sent. They are read once there is room.

// lot are ticks of one chunk that wait behind the queue of an endpoint.
type Lot struct {
	endpoint EndpointName
	Chunk    *chunk.Chunk
	Tries    []record.Try
	bytes    int // of their payloads, when they were put aside
}

const (
	mostInLot      = 500     // read at once
	mostBytesInLot = 1 << 20 // of payloads
)

// lots groups ticks by the endpoint behind whose queue they wait.
type Lots []Lot

func (l *Lots) Add(name EndpointName, c *chunk.Chunk, t record.Try, bytes, most int) {
	for i := len(*l) - 1; i >= 0; i-- {
		last := &(*l)[i]
		if last.endpoint != name {
			continue
		}
		if len(last.Tries) < most && last.bytes+bytes <= mostBytesInLot {
			last.Tries, last.bytes = append(last.Tries, t), last.bytes+bytes
			return
		}
		break
	}
	*l = append(*l, Lot{name, c, []record.Try{t}, bytes})
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
			if err := s.read(l); err != nil {
				again = s.putBack(q, l, err)
			}
		}
	})
}

// refill asks for ticks that wait behind a queue. ended takes one error: it has room for it.
type refill struct {
	Ctx   context.Context
	Lot   Lot
	Ended chan<- error
}

// read asks for ticks that wait behind a queue, and waits until they are read.
func (s *sender) read(l Lot) error {
	ended := make(chan error, 1)
	select {
	case s.refills <- refill{s.context, l, ended}:
		return <-ended
	case <-s.context.Done():
		return s.context.Err()
	}
}

// nextLot takes what is to be read next; false, and filling ends, once there is nothing, or no room.
func (s *sender) nextLot(q *queue) (l Lot, ok bool) {
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
	q.behind, s.behind = q.behind[1:], s.behind-len(l.Tries)
	return l, true
}

// putBack keeps what could not be read, and waits a while before it is tried again, unless the sender ends.
func (s *sender) putBack(q *queue, l Lot, err error) (again bool) {
	if s.context.Err() == nil {
		s.d.log.Error("cannot read ticks to push", "chunk", l.Chunk.ID, "ticks", len(l.Tries), "error", err)
	}
	s.mu.Lock()
	if o := s.unsent[l.Chunk.ID]; o != nil && o.epoch == l.Chunk.Epoch {
		q.behind, s.behind = append([]Lot{l}, q.behind...), s.behind+len(l.Tries)
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

// more queues what has been read of so many ticks of a chunk; the others are settled. It tells whether the chunk is done.
func (s *sender) more(c *chunk.Chunk, deliveries []*Delivery, of int) (done bool) {
	most := s.share(c.TenantID)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.unsent[c.ID]
	if s.closed || o == nil || o.epoch != c.Epoch {
		return false
	}
	for _, one := range deliveries {
		one.Epoch = c.Epoch
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
