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

// delivery is a tick to be pushed: one attempt, of a chunk that this process owns.
type Delivery struct {
	Tenant      tenants.ID
	Chunk       int64
	Epoch       int32
	Tick        record.Tick
	id          string // the tick's, once a request bears it
	Workflow    string
	Version     string
	Key         string
	Payload     *string
	Timeout     time.Duration
	MaxAttempts int16
	Endpoint    *Target
	Limited     bool // by its workflow's max_running
	Priority    int16
}

// sender pushes ticks. Each endpoint has a queue and slots of its own, so that a slow one holds up no other; what does
// not fit into a queue is held in the database.
type sender struct {
	d       *Pusher
	pusher  *pusher
	flights *flights
	doubts  cluster.Doubts

	mu       sync.Mutex
	queues   map[EndpointName]*queue
	breakers map[EndpointName]*breaker // of endpoints whose last request failed
	running  map[tenants.ID]int        // requests in flight
	parked   map[tenants.ID][]*queue   // that wait for one of their tenant's to end
	unsent   map[int64]*owned          // by chunk
	behind   int                       // ticks that wait behind queues
	bytes    int                       // of the payloads in all queues
	room     int                       // of a queue, in ticks
	bytesIn  int                       // of payloads, that a queue has room for
	closed   bool
	working  sync.WaitGroup
	cancel   context.CancelFunc
	context  context.Context
	refills  chan refill
}

type EndpointName struct {
	Tenant tenants.ID
	Name   string
}

// owned is a chunk that this process has open: what of it has no result yet.
type owned struct {
	epoch int32
	left  int
}

func newSender(d *Pusher) *sender {
	s := &sender{
		d: d, queues: map[EndpointName]*queue{}, breakers: map[EndpointName]*breaker{}, running: map[tenants.ID]int{}, room: mostQueued, bytesIn: mostQueuedBytes,
		parked: map[tenants.ID][]*queue{}, unsent: map[int64]*owned{},
		refills: make(chan refill),
	}
	s.context, s.cancel = context.WithCancel(context.Background())
	s.pusher = newPusher(d)
	s.flights = newFlights(mostFlights, d.pushBytes)
	return s
}

// add queues what is to be pushed of a chunk that this process has opened or taken over: later waits behind the queues.
func (s *sender) add(c *chunk.Chunk, deliveries []*Delivery, later []Lot) {
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
	if s.closed {
		return // the chunk is ours and open: when this process has left, another takes it
	}
	s.unsent[c.ID] = &owned{epoch: c.Epoch, left: n}
	s.enqueue(deliveries, most)
	for _, l := range later {
		q := s.queue(l.endpoint)
		q.behind, s.behind = append(q.behind, l), s.behind+len(l.Tries)
		s.fill(q)
	}
}

// spawn has one more request of a queue be in flight.
func (s *sender) spawn(q *queue) {
	q.slots++
	s.working.Go(func() { s.work(q) })
}

// part is how many requests this process may have in flight: of a tenant, and of one of its endpoints.
type part struct{ tenant, endpoint int }

// share divides the tenant's quotas among the processes that dispatch, and returns at least one. Where the quotas are not known in
// time it returns one, so that a slot never hangs.
func (s *sender) share(tenant tenants.ID) part {
	quotas, err := s.d.quotas(s.context, tenant)
	if err != nil {
		return part{1, 1}
	}
	n := s.d.member.Dispatching()
	return part{max(1, quotas.Running/n), max(1, min(quotas.RunningPerEndpoint/n, mostSlots))}
}

const mostSlots = 32

// work sends what waits in a queue until nothing does, or it is another's turn.
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
	if !s.flights.enter(tenant, bytes) {
		return // the chunk is ours and open: when this process has left, another takes it
	}
	defer s.flights.leave(tenant, bytes)
	if _, alive := s.d.member.Self(); !alive {
		return // others hold us for dead: abandon clears what is left
	}
	if batch = s.ours(batch); len(batch) > 0 {
		s.pusher.push(s.context, batch)
	}
}

// take takes the next request's worth out of a queue; with nothing to take, or nothing that may be sent now, the slot
// ends. Sent tells that a request of this slot has ended. What an open breaker keeps from being sent is put aside.
func (s *sender) take(q *queue, most part, sent bool) (batch []*Delivery, aside [][]outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenant := q.name.Tenant
	if sent {
		if s.running[tenant]--; s.running[tenant] == 0 {
			delete(s.running, tenant)
		}
	}
	b, now := s.breakers[q.name], time.Now()
	if b.blocks(now) > 0 {
		aside = putAside(q.waiting, b, now)
		s.empty(q)
	}
	switch {
	case s.closed || len(q.waiting) == 0 || q.slots > most.endpoint:
	case s.running[tenant] >= most.tenant, sent && len(s.parked[tenant]) > 0 && s.running[tenant]+1 >= most.tenant:
		s.park(q)
	default:
		n := min(len(q.waiting), q.waiting[0].Endpoint.Batch)
		batch = q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		s.left(q, batch)
		s.running[tenant]++
		b.sends(now)
		if len(q.waiting) > 0 && q.slots < most.endpoint && s.running[tenant] < most.tenant {
			s.spawn(q)
		}
	}
	s.fill(q)
	if !s.closed && s.running[tenant] < most.tenant {
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

// park has a queue wait for a request of its tenant to end.
func (s *sender) park(q *queue) {
	if !q.parked {
		q.parked = true
		s.parked[q.name.Tenant] = append(s.parked[q.name.Tenant], q)
	}
}

// unpark takes out the queue of a tenant that has waited the longest.
func (s *sender) unpark(tenant tenants.ID) *queue {
	for list := s.parked[tenant]; len(list) > 0; {
		q := list[0]
		if list = list[1:]; len(list) == 0 {
			delete(s.parked, tenant)
		} else {
			s.parked[tenant] = list
		}
		q.parked = false
		if len(q.waiting) > 0 {
			return q
		}
	}
	return nil
}

const mostAside = 500 // written at once

func putAside(waiting []*Delivery, b *breaker, now time.Time) (aside [][]outcome) {
	for part := range slices.Chunk(waiting, mostAside) {
		aside = append(aside, everyOne(part, func(o *outcome) { o.held = now.Add(b.blocks(now)) }))
	}
	return aside
}

// came notes how a request to an endpoint ended.
func (s *sender) came(name EndpointName, well bool) {
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
			s.d.log.Warn("an endpoint answers nothing: its ticks are held", "tenant", name.Tenant, "endpoint", name.Name)
		}
	}
}

// settled counts deliveries of a chunk whose results are written, and tells whether the chunk is done with them.
func (s *sender) settled(chunk int64, epoch int32, n int) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.unsent[chunk]
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
		o := s.unsent[one.Chunk]
		return o == nil || o.epoch != one.Epoch
	})
}

// forget gives up the chunks of results that are lost. This process takes them again, in another epoch.
func (s *sender) forget(outcomes []outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []int64
	for i := range outcomes {
		if c := outcomes[i].sending(); s.unsent[c.Chunk] != nil && s.unsent[c.Chunk].epoch == c.Epoch {
			delete(s.unsent, c.Chunk)
			gone = append(gone, c.Chunk)
		}
	}
	s.doubts.Add(gone)
}

// unknown are those of the chunks of which this process has, in that epoch, nothing to send and no result to write.
func (s *sender) unknown(chunks []Sending) (unknown []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chunks {
		if o := s.unsent[c.Chunk]; o == nil || o.epoch != c.Epoch {
			unknown = append(unknown, c.Chunk)
		}
	}
	return unknown
}

// abandonLapsed drops all that waits whenever this process was silent for too long, until ctx ends.
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

// abandon drops all that waits: another process has it by now.
func (s *sender) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		s.empty(q)
		q.behind = nil
	}
	s.behind = 0
	clear(s.unsent)
}

// drain sends nothing new, and waits for what is in flight until ctx ends, which then is broken off.
func (s *sender) drain(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.flights.close()
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
