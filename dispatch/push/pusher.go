package push

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// Config is what a Pusher needs. Keyset may be nil.
type Config struct {
	Pool      *pgxpool.Pool
	API       postgres.DB
	Quotas    record.Quotas
	Cursors   *web.Cursor
	Keyset    *keyset.Keyset // seals the secrets of endpoints; nil: they are stored in the clear
	Outbound  web.Outbound   // which addresses endpoints may have
	PushBytes int            // limits the bytes that requests hold at a time; less than 16 MiB counts as 16 MiB
	Member    *cluster.Member
	Messages  *message.Messages
	Finish    *finish.Finisher
	Metrics   *Metrics
	Log       loop.Log
}

// Pusher pushes ticks and events to endpoints. It is safe for concurrent use.
type Pusher struct {
	pool     *pgxpool.Pool
	quotas   record.Quotas
	member   *cluster.Member
	messages *message.Messages
	finish   *finish.Finisher
	metrics  *Metrics
	log      loop.Log

	sender    *sender
	results   *results
	Endpoints *Endpoints
}

// New returns a Pusher.
func New(c Config) *Pusher {
	p := &Pusher{pool: c.Pool, quotas: c.Quotas, member: c.Member, messages: c.Messages, finish: c.Finish, metrics: c.Metrics, log: c.Log}
	p.sender, p.results = newSender(p, newRequester(p, c)), newResults(p)
	p.Endpoints = newEndpoints(c, p.sender.requests)
	return p
}

// Start begins to write results, until Close.
func (p *Pusher) Start() { p.results.start() }

// Watch drops the ticks of this process whenever the others count it as dead, until ctx ends.
func (p *Pusher) Watch(ctx context.Context) { p.sender.abandonLapsed(ctx) }

// Run writes what this process has in flight, and the health of its endpoints, until ctx ends.
func (p *Pusher) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { p.writeHealth(ctx) })
	p.writePushing(ctx)
	all.Wait()
}

// Close sends nothing new, waits for requests in flight until ctx ends, and writes the results.
func (p *Pusher) Close(ctx context.Context) {
	p.sender.drain(ctx)
	p.results.close()
}

// Add queues ticks of a chunk that this process has opened or taken over. The ticks of later go into the overflows.
func (p *Pusher) Add(c *chunk.Chunk, deliveries []*Delivery, later []OverflowBatch) {
	p.sender.add(c, deliveries, later)
}

// MustWait returns why and how long a tick for an endpoint is held; 0 if it is not. full reports that the tick must go into the
// overflow. adding and bytes are the ticks that go with it and the bytes that they hold. filling is true for ticks that were read from
// the overflow. since is how long the tick has waited: a tick that is held again waits about that long.
func (p *Pusher) MustWait(e *Target, adding, bytes int, filling bool, since time.Duration) (why string, wait time.Duration, full bool) {
	return p.sender.mustWait(e, adding, bytes, filling, since)
}

// Refills returns the channel on which the pusher requests ticks of overflows. The receiver reads them, gives them to Refilled, and
// closes Ended.
func (p *Pusher) Refills() <-chan refill { return p.sender.refills }

// Refilled queues ticks of a chunk that were read from an overflow. of is how many were requested: those that are missing count as
// settled. done reports whether the chunk is done.
func (p *Pusher) Refilled(c *chunk.Chunk, deliveries []*Delivery, of int) (done bool) {
	return p.sender.refilled(c, deliveries, of)
}

// OverflowBatchSize returns the most ticks that a batch has.
func (p *Pusher) OverflowBatchSize() int {
	return min(overflowBatchTicks, p.sender.capacity.mostTicks/2)
}

// Unknown returns those of the chunks for which this process has, in that epoch, nothing to send and no result to write.
func (p *Pusher) Unknown(chunks []Sending) []int64 { return p.sender.unknown(chunks) }

// Doubts returns the chunks that this process gave up or could not mark done.
func (p *Pusher) Doubts() *cluster.Doubts { return &p.sender.chunks.doubts }

// Post makes one signed request, and returns the response.
func (p *Pusher) Post(ctx context.Context, e *Target, id string, body []byte, at time.Time) (Response, error) {
	return p.sender.requests.post(ctx, e, envelope{id: id, body: body}, at)
}

// Limits are the limits of a process. A limit of 0 leaves the default.
type Limits struct {
	QueuedTicks int           // of one endpoint
	Requests    int           // in flight
	KeepResults time.Duration // after it, results that cannot be written are dropped
}

// SetLimits changes limits. It must be called before Start.
func (p *Pusher) SetLimits(l Limits) {
	p.sender.capacity.mostTicks = cmp.Or(l.QueuedTicks, p.sender.capacity.mostTicks)
	p.sender.requests.limiter.requests = cmp.Or(l.Requests, p.sender.requests.limiter.requests)
	p.results.aside.kept = cmp.Or(l.KeepResults, p.results.aside.kept)
}

// QueuedBytes returns how many bytes of payloads wait in memory to be pushed, and how many the queue of one endpoint has room for.
func (p *Pusher) QueuedBytes() (held, room int) {
	p.sender.mu.Lock()
	defer p.sender.mu.Unlock()
	return p.sender.capacity.bytes, p.sender.capacity.mostBytes
}
