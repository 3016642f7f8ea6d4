package push

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/tenants"
)

// Delivery is a tick to push: one attempt, of a chunk that this process owns.
type Delivery struct {
	Tenant      tenants.ID
	Chunk       int64
	Epoch       int32
	Tick        record.Tick
	id          string // the tick's, set with the body of its request
	Workflow    string
	Version     string // of the workflow, when the tick fired
	Expired     bool   // the tick is later than its max_lateness
	Content     record.Content
	Timeout     time.Duration
	MaxAttempts int16
	Endpoint    *Target
	Limited     bool // by its workflow's max_running
	Priority    int16
}

// sender pushes ticks. Each endpoint has its own queue and slots, so that a slow one delays no other.
type sender struct {
	d         *Pusher
	requests  *requester
	refills   chan refill
	lifecycle lifecycle

	mu       sync.Mutex // of what follows, and of the queues
	queues   map[EndpointName]*queue
	breakers map[EndpointName]*breaker // of endpoints whose last request failed
	turns    turns
	chunks   openChunks
	capacity capacity
}

// lifecycle is what ends the work of a sender.
type lifecycle struct {
	context context.Context // of requests and of reading; it ends when time has run out for them
	cancel  context.CancelFunc
	working sync.WaitGroup
	closed  bool // nothing new begins; the lock of the sender guards it
}

// turns are the turns of tenants to make requests.
type turns struct {
	running map[tenants.ID]int      // requests in flight
	parked  map[tenants.ID][]*queue // queues that wait for a request of their tenant to end
}

// openChunks are the chunks that this process has open.
type openChunks struct {
	unsent map[int64]*owned
	doubts cluster.Doubts // chunks that it gave up or could not mark done
}

// capacity is what waits in memory, and how much may.
type capacity struct {
	overflowing int // ticks in all overflows
	bytes       int // of the payloads in all queues
	mostTicks   int // in one queue
	mostBytes   int // of payloads in one queue
}

// EndpointName names an endpoint of a tenant.
type EndpointName struct {
	Tenant tenants.ID
	Name   string
}

// owned is a chunk that this process has open; left is how many of its ticks have no result yet.
type owned struct {
	epoch int32
	left  int
}

func newSender(d *Pusher, r *requester) *sender {
	s := &sender{
		d: d, requests: r, refills: make(chan refill), queues: map[EndpointName]*queue{}, breakers: map[EndpointName]*breaker{},
		turns:  turns{running: map[tenants.ID]int{}, parked: map[tenants.ID][]*queue{}},
		chunks: openChunks{unsent: map[int64]*owned{}}, capacity: capacity{mostTicks: mostQueued, mostBytes: mostQueuedBytes},
	}
	s.lifecycle.context, s.lifecycle.cancel = context.WithCancel(context.Background())
	return s
}

// add is Pusher.Add.
func (s *sender) add(c *chunk.Chunk, deliveries []*Delivery, later []OverflowBatch) {
	n := len(deliveries)
	for _, l := range later {
		n += len(l.Tries)
	}
	if n == 0 {
		return
	}
	most := s.share(c.TenantID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifecycle.closed {
		return // the chunk stays open: when this process has left, another one takes it
	}
	s.chunks.unsent[c.ID] = &owned{epoch: c.Epoch, left: n}
	s.enqueue(deliveries, most)
	for _, l := range later {
		q := s.queue(l.endpoint)
		q.overflow, s.capacity.overflowing = append(q.overflow, l), s.capacity.overflowing+len(l.Tries)
		s.startRefill(q)
	}
}

// spawn starts another slot of a queue, which sends requests one after the other.
func (s *sender) spawn(q *queue) {
	q.slots++
	s.lifecycle.working.Go(func() { s.work(q) })
}

// part is how many requests this process may have in flight: of a tenant, and to one of its endpoints.
type part struct{ tenant, endpoint int }

// share divides the tenant's quotas among the processes that dispatch, and returns at least one. If the quotas cannot be read in time,
// it returns one, so that a slot never hangs.
func (s *sender) share(tenant tenants.ID) part {
	quotas, err := s.d.quotas(s.lifecycle.context, tenant)
	if err != nil {
		return part{1, 1}
	}
	n := s.d.member.Dispatching()
	return part{max(1, quotas.Running/n), max(1, min(quotas.RunningPerEndpoint/n, mostSlots))}
}

const mostSlots = 32

// work sends the ticks of a queue until none waits, or another queue's turn comes.
func (s *sender) work(q *queue) {
	for sent := false; ; {
		batch, aside := s.take(q, s.share(q.name.Tenant), sent)
		for _, some := range aside {
			s.d.results.add(some)
		}
		if len(batch) == 0 {
			return
		}
		sent = true
		s.send(q.name.Tenant, batch)
	}
}

// send makes one request, once the process has room for it.
func (s *sender) send(tenant tenants.ID, batch []*Delivery) {
	bytes := weigh(batch)
	if !s.requests.limiter.enter(tenant, bytes) {
		return // the chunk stays open: when this process has left, another one takes it
	}
	defer s.requests.limiter.leave(tenant, bytes)
	if _, alive := s.d.member.Self(); !alive {
		return // the others count this process as dead: abandon drops the rest
	}
	if batch = s.ours(batch); len(batch) > 0 {
		s.requests.push(s.lifecycle.context, batch)
	}
}

// take takes the ticks of the next request out of a queue. If there are none, or none may be sent now, the slot ends. sent is true if
// a request of this slot has just ended. aside are ticks that an open breaker keeps from being sent.
func (s *sender) take(q *queue, most part, sent bool) (batch []*Delivery, aside [][]outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenant := q.name.Tenant
	if sent {
		if s.turns.running[tenant]--; s.turns.running[tenant] == 0 {
			delete(s.turns.running, tenant)
		}
	}
	b, now := s.breakers[q.name], time.Now()
	if b.blocks(now) > 0 {
		aside = putAside(q.waiting, b, now)
		s.empty(q)
	}
	switch {
	case s.lifecycle.closed || len(q.waiting) == 0 || q.slots > most.endpoint:
	case s.turns.running[tenant] >= most.tenant, sent && len(s.turns.parked[tenant]) > 0 && s.turns.running[tenant]+1 >= most.tenant:
		s.park(q)
	default:
		n := q.allowed(min(len(q.waiting), q.waiting[0].Endpoint.Batch))
		if n == 0 {
			s.startAsking(q)
			break
		}
		q.spend(n)
		batch = q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		s.left(q, batch)
		s.turns.running[tenant]++
		b.sends(now)
		if len(q.waiting) > 0 && q.slots < most.endpoint && s.turns.running[tenant] < most.tenant {
			s.spawn(q)
		}
	}
	s.startRefill(q)
	if !s.lifecycle.closed && s.turns.running[tenant] < most.tenant {
		if next := s.unpark(tenant); next != nil {
			s.spawn(next)
		}
	}
	if len(batch) > 0 {
		return batch, aside
	}
	if q.slots--; q.idle() {
		delete(s.queues, q.name)
	}
	return nil, aside
}

// park makes a queue wait until a request of its tenant ends.
func (s *sender) park(q *queue) {
	if !q.parked {
		q.parked = true
		s.turns.parked[q.name.Tenant] = append(s.turns.parked[q.name.Tenant], q)
	}
}

// unpark removes and returns the parked queue of a tenant that has waited the longest; nil if there is none.
func (s *sender) unpark(tenant tenants.ID) *queue {
	for list := s.turns.parked[tenant]; len(list) > 0; {
		q := list[0]
		if list = list[1:]; len(list) == 0 {
			delete(s.turns.parked, tenant)
		} else {
			s.turns.parked[tenant] = list
		}
		q.parked = false
		if len(q.waiting) > 0 {
			return q
		}
	}
	return nil
}

const mostAside = 500 // written at once

// putAside returns the waiting deliveries as outcomes that are held while the breaker is open.
func putAside(waiting []*Delivery, b *breaker, now time.Time) (aside [][]outcome) {
	for part := range slices.Chunk(waiting, mostAside) {
		aside = append(aside, everyOne(part, func(o *outcome) { o.held = now.Add(b.blocks(now)) }))
	}
	return aside
}

// ended records in the endpoint's breaker how a request ended.
func (s *sender) ended(name EndpointName, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.breakers[name]
	switch {
	case well && b != nil:
		delete(s.breakers, name)
	case !well:
		if b == nil {
			b = &breaker{}
			s.breakers[name] = b
		}
		if b.failed(time.Now()) {
			s.d.metrics.breakers.Inc()
			s.d.log.Warn("requests to an endpoint keep failing: its ticks are held", "tenant", name.Tenant, "endpoint", name.Name)
		}
	}
}

// settled counts n deliveries of a chunk whose results are written, and reports whether the chunk is done.
func (s *sender) settled(chunk int64, epoch int32, n int) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.chunks.unsent[chunk]
	if o == nil || o.epoch != epoch {
		return false
	}
	return s.settle(chunk, o, n)
}

// ours returns the deliveries whose chunk this process still has in their epoch.
func (s *sender) ours(batch []*Delivery) []*Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(batch, func(one *Delivery) bool {
		o := s.chunks.unsent[one.Chunk]
		return o == nil || o.epoch != one.Epoch
	})
}

// forget gives up the chunks of lost results. This process takes them again, in another epoch.
func (s *sender) forget(outcomes []outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []int64
	for i := range outcomes {
		if c := outcomes[i].sending(); s.chunks.unsent[c.Chunk] != nil && s.chunks.unsent[c.Chunk].epoch == c.Epoch {
			delete(s.chunks.unsent, c.Chunk)
			gone = append(gone, c.Chunk)
		}
	}
	s.chunks.doubts.Add(gone)
}

// unknown is Pusher.Unknown.
func (s *sender) unknown(chunks []Sending) (unknown []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		if o := s.chunks.unsent[c.Chunk]; o == nil || o.epoch != c.Epoch {
			unknown = append(unknown, c.Chunk)
		}
	}
	return unknown
}

// abandonLapsed drops all waiting ticks whenever this process was silent for too long, until ctx ends.
func (s *sender) abandonLapsed(ctx context.Context) {
	for {
		select {
		case dropped := <-s.d.member.Lapsed():
			s.abandon()
			close(dropped)
		case <-ctx.Done():
			return
		}
	}
}

// abandon drops all waiting ticks: another process has them by now.
func (s *sender) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		s.empty(q)
		q.overflow = nil
	}
	s.capacity.overflowing = 0
	clear(s.chunks.unsent)
}

// drain sends nothing new, and waits for requests in flight until ctx ends. It then cancels those that are left.
func (s *sender) drain(ctx context.Context) {
	s.mu.Lock()
	s.lifecycle.closed = true
	s.mu.Unlock()
	s.requests.limiter.close()
	done := make(chan struct{})
	go func() {
		s.lifecycle.working.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.lifecycle.cancel()
	<-done
}
