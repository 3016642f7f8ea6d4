package push

import (
	"math/rand/v2"
	"time"
)

// queue holds the ticks to send to one endpoint.
type queue struct {
	name      EndpointName
	waiting   []*Delivery
	bytes     int             // of their payloads
	overflow  []OverflowBatch // the overflow, in order
	refilling bool            // the overflow is being read
	parked    bool
	slots     int // in use
	paced     paced
}

func (q *queue) idle() bool {
	return q.slots == 0 && !q.paced.asking && len(q.waiting) == 0 && len(q.overflow) == 0 && !q.refilling
}

const (
	mostQueued      = 5_000   // ticks in the queue of one endpoint; others go into its overflow
	mostQueuedBytes = 4 << 20 // bytes of their payloads, likewise
	mostOverflowing = 500_000 // ticks in all overflows; others are held for a while
	fullWait        = 30 * time.Second
	longestWait     = 10 * time.Minute
)

// mustWait is MustWait. The wait of a tick that is held again doubles, because it is as long as the tick has waited since it was
// fired, up to longestWait.
func (s *sender) mustWait(e *Target, adding, bytes int, filling bool, since time.Duration) (why string, wait time.Duration, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := EndpointName{e.Tenant, e.Name}
	if wait := s.breakers[name].blocks(time.Now()); wait > 0 {
		return "endpoint", wait, false
	}
	waiting, held := 0, 0
	full = s.capacity.bytes+bytes >= s.requests.limiter.bytes
	if q := s.queues[name]; q != nil {
		waiting, held, full = len(q.waiting), q.bytes, full || len(q.overflow) > 0 || q.refilling
	}
	full = (full || waiting+adding >= s.capacity.mostTicks || held+bytes >= s.capacity.mostBytes) && !filling
	if full && s.capacity.overflowing+adding >= mostOverflowing {
		wait := min(max(fullWait, since), longestWait)
		return "slot", wait + rand.N(wait), false
	}
	return "", 0, full
}

// roomFor reports whether more of the overflow may be read, if the queue is to fill only a part of its room. An empty queue may always
// read a batch, however much others hold.
func (s *sender) roomFor(q *queue, part int) bool {
	return len(q.waiting) == 0 || len(q.waiting) < s.capacity.mostTicks/part && q.bytes < s.capacity.mostBytes/part && s.capacity.bytes < s.requests.limiter.bytes
}

func (s *sender) queue(name EndpointName) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name}
		s.queues[name] = q
	}
	return q
}

func (s *sender) enqueue(deliveries []*Delivery, most part) {
	for _, one := range deliveries {
		q := s.queue(EndpointName{one.Tenant, one.Endpoint.Name})
		q.add(one)
		q.bytes, s.capacity.bytes = q.bytes+one.bytes(), s.capacity.bytes+one.bytes()
		if q.slots < most.endpoint {
			s.spawn(q)
		}
	}
}

// left subtracts deliveries that left a queue from the bytes.
func (s *sender) left(q *queue, deliveries []*Delivery) {
	for _, one := range deliveries {
		q.bytes, s.capacity.bytes = q.bytes-one.bytes(), s.capacity.bytes-one.bytes()
	}
}

// empty drops the waiting deliveries of a queue.
func (s *sender) empty(q *queue) {
	s.left(q, q.waiting)
	q.waiting, q.paced.manual = nil, 0
}
