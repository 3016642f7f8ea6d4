package push

import (
	"math/rand/v2"
	"time"
)

// queue is what one endpoint is still to be sent.
type queue struct {
	name    EndpointName
	waiting []*Delivery
	bytes   int   // of their payloads
	behind  []Lot // that do not fit, in their order
	filling bool  // some of them are being read
	parked  bool
	slots   int // in use
}

func (q *queue) idle() bool {
	return q.slots == 0 && len(q.waiting) == 0 && len(q.behind) == 0 && !q.filling
}

const (
	mostQueued      = 5_000   // of one endpoint; beyond this no more than the keys are kept
	mostQueuedBytes = 4 << 20 // of payloads, likewise
	mostBehind      = 500_000 // of all endpoints; beyond this a tick is held for a while
	fullWait        = 30 * time.Second
	longestWait     = 10 * time.Minute
)

// mustWait tells why and how long a tick for an endpoint is to be held; 0: it is not. It is full while the queue is, adding
// others that go with it and hold so many bytes, and not filling it: then the tick waits behind it. A tick that is held again waits
// as long as it has waited since it was fired, up to longestWait: so its waits double.
func (s *sender) mustWait(e *Target, adding, bytes int, filling bool, since time.Duration) (why string, wait time.Duration, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := EndpointName{e.Tenant, e.Name}
	if wait := s.breakers[name].blocks(time.Now()); wait > 0 {
		return "endpoint", wait, false
	}
	waiting, held := 0, 0
	full = s.bytes+bytes >= s.flights.bytes
	if q := s.queues[name]; q != nil {
		waiting, held, full = len(q.waiting), q.bytes, full || len(q.behind) > 0 || q.filling
	}
	full = (full || waiting+adding >= s.room || held+bytes >= s.bytesIn) && !filling
	if full && s.behind+adding >= mostBehind {
		wait := min(max(fullWait, since), longestWait)
		return "slot", wait + rand.N(wait), false
	}
	return "", 0, full
}

// roomFor reports whether more may be read of what waits behind a queue that is to hold a part of what it has room for. A queue that
// has run empty may always read a lot, however much others hold.
func (s *sender) roomFor(q *queue, part int) bool {
	return len(q.waiting) == 0 || len(q.waiting) < s.room/part && q.bytes < s.bytesIn/part && s.bytes < s.flights.bytes
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
		q.waiting = append(q.waiting, one)
		q.bytes, s.bytes = q.bytes+one.bytes(), s.bytes+one.bytes()
		if q.slots < most.endpoint {
			s.spawn(q)
		}
	}
}

// left notes that deliveries left a queue.
func (s *sender) left(q *queue, deliveries []*Delivery) {
	for _, one := range deliveries {
		q.bytes, s.bytes = q.bytes-one.bytes(), s.bytes-one.bytes()
	}
}

// empty drops what waits in a queue.
func (s *sender) empty(q *queue) {
	s.left(q, q.waiting)
	q.waiting = nil
}
