package push

import (
	"cmp"
	"context"
	"log/slog"
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
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// Config is what a Pusher works with.
type Config struct {
	Pool      *pgxpool.Pool
	API       postgres.DB
	Timings   *cohorts.Timings
	Quotas    record.Quotas
	Cursors   *web.Cursor
	Keyset    *keyset.Keyset // that endpoints' secrets are sealed with; nil: they are stored in the clear
	Outbound  web.Outbound   // which addresses endpoints may have
	PushBytes int            // that requests hold at a time; less than 16 MiB is 16 MiB
	Member    *cluster.Member
	Messages  *message.Messages
	Finish    *finish.Finisher
	Told      *loop.Rarely // of errors that come again and again
	Metrics   *Metrics
	Log       *slog.Logger
}

// Pusher pushes ticks and events to endpoints.
type Pusher struct {
	pool      *pgxpool.Pool
	api       postgres.DB
	timings   *cohorts.Timings
	quotas    record.Quotas
	cursors   *web.Cursor
	keyset    *keyset.Keyset
	outbound  web.Outbound
	pushBytes int
	member    *cluster.Member
	messages  *message.Messages
	finish    *finish.Finisher
	told      *loop.Rarely
	metrics   *Metrics
	log       *slog.Logger

	sender     *sender
	results    *results
	unreadable sync.Map // EndpointName: a secret of it cannot be opened, and that was told
}

// New returns a Pusher.
func New(c Config) *Pusher {
	p := &Pusher{
		pool: c.Pool, api: c.API, timings: c.Timings, quotas: c.Quotas, cursors: c.Cursors, keyset: c.Keyset, outbound: c.Outbound, pushBytes: c.PushBytes,
		member: c.Member, messages: c.Messages, finish: c.Finish, told: c.Told, metrics: c.Metrics, log: c.Log,
	}
	p.sender, p.results = newSender(p), newResults(p)
	return p
}

// Start lets results be written until Close.
func (p *Pusher) Start() { p.results.start() }

// Watch gives up the ticks of this process when it counts as dead, until ctx ends.
func (p *Pusher) Watch(ctx context.Context) { p.sender.abandonLapsed(ctx) }

// Run tells the other processes what is being pushed until ctx ends.
func (p *Pusher) Run(ctx context.Context) { p.tellPushing(ctx) }

// Close sends nothing new, lets requests in flight end until ctx ends, and writes the results.
func (p *Pusher) Close(ctx context.Context) {
	p.sender.drain(ctx)
	p.results.close()
}

// Add queues what is to be pushed of a chunk that this process has opened or taken over: later waits behind the queues.
func (p *Pusher) Add(c *chunk.Chunk, deliveries []*Delivery, later []Lot) {
	p.sender.add(c, deliveries, later)
}

// MustWait returns why and how long a tick for an endpoint must wait; 0: it does not wait. full reports that the endpoint's queue has
// no room for it beside others that go with it: adding of them, which hold so many bytes.
func (p *Pusher) MustWait(e *Target, adding, bytes int, filling bool, since time.Duration) (why string, wait time.Duration, full bool) {
	return p.sender.mustWait(e, adding, bytes, filling, since)
}

// Refill returns the channel on which the pusher asks for ticks that wait behind a queue. The receiver reads them, gives them to
// More, and closes ended when it has done so.
func (p *Pusher) Refill() <-chan refill { return p.sender.refills }

// More queues what has been read of so many ticks of a chunk; the others are settled. It reports whether the chunk is done.
func (p *Pusher) More(c *chunk.Chunk, deliveries []*Delivery, of int) (done bool) {
	return p.sender.more(c, deliveries, of)
}

// LotSize returns how many ticks wait behind a queue as one lot.
func (p *Pusher) LotSize() int { return min(mostInLot, p.sender.room/2) }

// Unknown returns those of the chunks of which this process has, in that epoch, nothing to send and no result to write.
func (p *Pusher) Unknown(chunks []Sending) []int64 { return p.sender.unknown(chunks) }

// Doubts returns the chunks that this process gave up or could not mark done.
func (p *Pusher) Doubts() *cluster.Doubts { return &p.sender.doubts }

// Post makes one signed request, and returns the response.
func (p *Pusher) Post(ctx context.Context, e *Target, id string, body []byte, at time.Time) (Response, error) {
	return p.sender.pusher.post(ctx, e, id, body, at)
}

// Limits are how much a process queues and has in flight. A limit of 0 stays as it is.
type Limits struct {
	QueuedTicks int           // of one endpoint
	Requests    int           // in flight
	KeepResults time.Duration // that cannot be written; after it they are given up
}

// SetLimits changes limits. It is called before Start.
func (p *Pusher) SetLimits(l Limits) {
	p.sender.room = cmp.Or(l.QueuedTicks, p.sender.room)
	p.sender.flights.requests = cmp.Or(l.Requests, p.sender.flights.requests)
	p.results.keptAside = cmp.Or(l.KeepResults, p.results.keptAside)
}

// QueuedBytes returns how many bytes of payloads wait in memory to be pushed, and how many one endpoint's queue has room for.
func (p *Pusher) QueuedBytes() (held, room int) {
	p.sender.mu.Lock()
	defer p.sender.mu.Unlock()
	return p.sender.bytes, p.sender.bytesIn
}
