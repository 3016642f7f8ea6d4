package push

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
)

// Ticks that do not fit into the queue of an endpoint wait in its overflow. The overflow holds only their keys, under the chunk that this
// process has open, so that many ticks wait for minutes without a write. A process that takes over the chunk finds them like any others
// that were not sent. They are read again once the queue has room.

// Lot is a part of an overflow: ticks of one chunk for one endpoint, which are read together.
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

// Lots collects parts of overflows. The zero value is empty.
type Lots []Lot

// Add adds a tick for an endpoint, with the size of its payload. A lot has at most most ticks.
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

// fill begins to read ticks of the overflow, once half of the queue is free. The caller holds the lock of the sender.
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

// refill is a request to read the ticks of Lot again. The reader sends the error, or closes Ended; Ended has room for one error.
type refill struct {
	Ctx   context.Context
	Lot   Lot
	Ended chan<- error
}

// read requests the ticks of a lot, and waits until they are read.
func (s *sender) read(l Lot) error {
	ended := make(chan error, 1)
	select {
	case s.refills <- refill{s.context, l, ended}:
		return <-ended
	case <-s.context.Done():
		return s.context.Err()
	}
}

// nextLot takes the next lot to read. ok is false, and the filling ends, if there is none or the queue has no room.
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

// putBack returns a lot that could not be read to the overflow, and waits a while. again is false if the sender has ended.
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

// more queues the ticks of a chunk that were read again. Those of the of ticks that are not among them count as settled. done reports
// whether the chunk is done.
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

// settle counts n settled ticks of a chunk, and reports whether the chunk is done. The caller holds the lock of the sender.
func (s *sender) settle(chunk int64, o *owned, n int) (done bool) {
	if o.left -= n; o.left > 0 {
		return false
	}
	delete(s.unsent, chunk)
	return true
}
