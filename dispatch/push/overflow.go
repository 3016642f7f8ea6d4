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

// OverflowBatch is a part of an overflow: ticks of one chunk for one endpoint, which are read together.
type OverflowBatch struct {
	endpoint EndpointName
	Chunk    *chunk.Chunk
	Tries    []record.Try
	bytes    int // of their payloads, when they were put aside
}

const (
	overflowBatchTicks = 500     // read at once
	overflowBatchBytes = 1 << 20 // of payloads
)

// OverflowBatches collects parts of overflows. The zero value is empty.
type OverflowBatches []OverflowBatch

// Add adds a tick for an endpoint, with the size of its payload. A batch has at most most ticks.
func (b *OverflowBatches) Add(name EndpointName, c *chunk.Chunk, t record.Try, bytes, most int) {
	for i := len(*b) - 1; i >= 0; i-- {
		last := &(*b)[i]
		if last.endpoint != name {
			continue
		}
		if len(last.Tries) < most && last.bytes+bytes <= overflowBatchBytes {
			last.Tries, last.bytes = append(last.Tries, t), last.bytes+bytes
			return
		}
		break
	}
	*b = append(*b, OverflowBatch{name, c, []record.Try{t}, bytes})
}

// startRefill begins to read ticks of the overflow, once half of the queue is free. The caller holds the lock of the sender.
func (s *sender) startRefill(q *queue) {
	if s.lifecycle.closed || q.refilling || len(q.overflow) == 0 || !s.roomFor(q, 2) {
		return
	}
	q.refilling = true
	s.lifecycle.working.Go(func() {
		for again := true; again; {
			b, ok := s.nextOverflow(q)
			if !ok {
				return
			}
			if err := s.read(b); err != nil {
				again = s.putBack(q, b, err)
			}
		}
	})
}

// refill is a request to read the ticks of Batch again. The reader sends the error, or closes Ended; Ended has room for one error.
type refill struct {
	Ctx   context.Context
	Batch OverflowBatch
	Ended chan<- error
}

// read requests the ticks of a batch, and waits until they are read.
func (s *sender) read(b OverflowBatch) error {
	ended := make(chan error, 1)
	select {
	case s.refills <- refill{s.lifecycle.context, b, ended}:
		return <-ended
	case <-s.lifecycle.context.Done():
		return s.lifecycle.context.Err()
	}
}

// nextOverflow takes the next batch to read. ok is false, and the refill ends, if there is none or the queue has no room.
func (s *sender) nextOverflow(q *queue) (b OverflowBatch, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifecycle.closed || len(q.overflow) == 0 || !s.roomFor(q, 1) {
		q.refilling = false
		if q.idle() && s.queues[q.name] == q {
			delete(s.queues, q.name)
		}
		return b, false
	}
	b = q.overflow[0]
	q.overflow, s.capacity.overflowing = q.overflow[1:], s.capacity.overflowing-len(b.Tries)
	return b, true
}

// putBack returns a batch that could not be read to the overflow, and waits a while. again is false if the sender has ended.
func (s *sender) putBack(q *queue, b OverflowBatch, err error) (again bool) {
	if s.lifecycle.context.Err() == nil {
		s.d.log.Error("cannot read ticks to push", "chunk", b.Chunk.ID, "ticks", len(b.Tries), "error", err)
	}
	s.mu.Lock()
	if o := s.chunks.unsent[b.Chunk.ID]; o != nil && o.epoch == b.Chunk.Epoch {
		q.overflow, s.capacity.overflowing = append([]OverflowBatch{b}, q.overflow...), s.capacity.overflowing+len(b.Tries)
	}
	s.mu.Unlock()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.lifecycle.context.Done():
		return false
	}
}

// refilled queues the ticks of a chunk that were read again. Those of the of ticks that are not among them count as settled. done reports
// whether the chunk is done.
func (s *sender) refilled(c *chunk.Chunk, deliveries []*Delivery, of int) (done bool) {
	most := s.share(c.TenantID)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.chunks.unsent[c.ID]
	if s.lifecycle.closed || o == nil || o.epoch != c.Epoch {
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
	delete(s.chunks.unsent, chunk)
	return true
}
