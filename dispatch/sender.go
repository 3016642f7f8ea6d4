package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// delivery is a tick to be pushed: one attempt, of a chunk that this process owns.
type delivery struct {
	tenant      tenants.ID
	chunk       int64
	epoch       int32
	tick        tick
	id          string // the tick's, once a request bears it
	workflow    string
	version     string
	key         string
	payload     *string
	timeout     time.Duration
	maxAttempts int16
	endpoint    *endpoint
	limited     bool // by its workflow's max_running
	priority    int16
}

// sender pushes ticks. Each endpoint has a queue and slots of its own, so that a slow one holds up no other; what does
// not fit into a queue is held in the database.
type sender struct {
	d      *Dispatch
	pusher *pusher

	mu      sync.Mutex
	queues  map[endpointName]*queue
	unsent  map[int64]*owned // by chunk
	closed  bool
	working sync.WaitGroup
	cancel  context.CancelFunc
	context context.Context
}

type endpointName struct {
	tenant tenants.ID
	name   string
}

// queue is what one endpoint is still to be sent.
type queue struct {
	waiting []*delivery
	slots   int // in use
}

// owned is a chunk that this process has open: what of it has no result yet.
type owned struct {
	epoch int32
	left  int
}

const (
	mostQueued   = 5_000 // of one endpoint; beyond this a tick is held for a while
	slotWait     = time.Second
	endpointWait = 30 * time.Second
)

func newSender(d *Dispatch) *sender {
	s := &sender{d: d, queues: map[endpointName]*queue{}, unsent: map[int64]*owned{}}
	s.context, s.cancel = context.WithCancel(context.Background())
	s.pusher = newPusher(d)
	return s
}

// mustWait tells why and how long a tick for an endpoint is to be held, while adding others go with it; 0: it is not.
func (s *sender) mustWait(e *endpoint, adding int) (why string, wait time.Duration) {
	if e.state != enabledEndpoint {
		return "endpoint", endpointWait
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[endpointName{e.tenant, e.name}]; q != nil && len(q.waiting)+adding >= mostQueued {
		return "slot", slotWait
	}
	return "", 0
}

// add queues the deliveries of a chunk that this process has opened or taken over.
func (s *sender) add(chunk int64, deliveries []*delivery) {
	if len(deliveries) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // the chunk is ours and open: when this process has left, another takes it
	}
	s.unsent[chunk] = &owned{epoch: deliveries[0].epoch, left: len(deliveries)}
	for _, one := range deliveries {
		name := endpointName{one.tenant, one.endpoint.name}
		q := s.queues[name]
		if q == nil {
			q = &queue{}
			s.queues[name] = q
		}
		q.waiting = append(q.waiting, one)
		if q.slots < s.slots(one.tenant) {
			q.slots++
			s.working.Go(func() { s.work(name, q) })
		}
	}
}

// slots is how many requests an endpoint of a tenant has in flight at most.
func (s *sender) slots(tenant tenants.ID) int {
	quotas, err := s.d.Quotas(s.context, tenant)
	if err != nil {
		return 1
	}
	return min(quotas.RunningPerEndpoint, mostSlots)
}

const mostSlots = 32

// work sends what waits in a queue until nothing does.
func (s *sender) work(name endpointName, q *queue) {
	for {
		batch := s.take(name, q)
		if len(batch) == 0 {
			return
		}
		if _, alive := s.d.process.self(); !alive {
			continue // others hold us for dead: abandon clears what is left
		}
		s.pusher.push(s.context, batch)
	}
}

// take takes the next request's worth out of a queue; with nothing to take, the slot ends.
func (s *sender) take(name endpointName, q *queue) []*delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if !s.closed && len(q.waiting) > 0 {
		first := q.waiting[0].endpoint
		n = min(len(q.waiting), first.batch)
	}
	if n == 0 {
		if q.slots--; q.slots == 0 && len(q.waiting) == 0 {
			delete(s.queues, name)
		}
		return nil
	}
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	return batch
}

// settled counts deliveries of a chunk whose results are written, and tells whether the chunk is done with them.
func (s *sender) settled(chunk int64, epoch int32, n int) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.unsent[chunk]
	if o == nil || o.epoch != epoch {
		return false
	}
	if o.left -= n; o.left > 0 {
		return false
	}
	delete(s.unsent, chunk)
	return true
}

// unknown are those of the chunks of which this process has nothing to send and no result to write.
func (s *sender) unknown(chunks []int64) (unknown []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range chunks {
		if s.unsent[id] == nil {
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// abandon drops all that waits: another process has it by now.
func (s *sender) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.waiting = nil
	}
	clear(s.unsent)
}

// drain sends nothing new, and waits for what is in flight until ctx ends, which then is broken off.
func (s *sender) drain(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.working.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.cancel()
	<-done
}
