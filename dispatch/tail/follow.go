package tail

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// hub gives the notes of all processes to the clients of this one. One connection listens while there are clients.
type hub struct {
	turn sync.Mutex // of clients that come and leave: held while the connection opens and closes
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	clients map[*Client]bool
}

// Client is one that follows a tenant. What it has not taken yet is one note, however slow it is.
type Client struct {
	tail    *Tail
	tenant  tenants.ID
	stirred chan struct{}

	mu      sync.Mutex // if both are locked, hub.mu comes first
	filter  Filter
	id      uint64
	pending Note
	missed  bool
}

// Stirred returns the channel that says that there is something to take.
func (c *Client) Stirred() <-chan struct{} { return c.stirred }

// Take returns what came since the last call. missed: the connection to the database was lost meanwhile, and notes with it.
func (c *Client) Take() (n Note, missed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, missed = c.pending, c.missed
	c.pending, c.missed = Note{}, false
	return n, missed
}

// Pick changes what the client follows.
func (c *Client) Pick(ctx context.Context, f Filter) {
	c.mu.Lock()
	same := c.id == f.id()
	c.filter, c.id = f, f.id()
	c.mu.Unlock()
	if same {
		return
	}
	if err := c.tail.announce(ctx, []*Client{c}); err != nil && ctx.Err() == nil {
		c.tail.log.Warn("cannot announce what a client follows", "error", err) // it is announced again
	}
}

func (c *Client) announcement() announcement {
	c.mu.Lock()
	defer c.mu.Unlock()
	return announcement{c.tenant, c.filter}
}

func (c *Client) stir() {
	select {
	case c.stirred <- struct{}{}:
	default:
	}
}

// Follow returns a client for the ticks of a tenant that a filter picks, from now on. leave ends it.
func (t *Tail) Follow(ctx context.Context, tenant tenants.ID, f Filter) (c *Client, leave func(), err error) {
	c = &Client{tail: t, tenant: tenant, stirred: make(chan struct{}, 1), filter: f, id: f.id()}
	if err := t.join(ctx, c); err != nil {
		return nil, nil, err
	}
	if err := t.announce(ctx, []*Client{c}); err != nil {
		t.leave(c)
		return nil, nil, fmt.Errorf("announce what a client follows: %w", err)
	}
	return c, func() { t.leave(c) }, nil
}

// join adds a client. The first one begins the listening.
func (t *Tail) join(ctx context.Context, c *Client) error {
	h := &t.hub
	h.turn.Lock()
	defer h.turn.Unlock()
	if h.stop == nil {
		if err := t.listen(ctx); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients[c] = true
	return nil
}

// leave removes a client. The last one ends the listening.
func (t *Tail) leave(c *Client) {
	h := &t.hub
	h.turn.Lock()
	defer h.turn.Unlock()
	h.mu.Lock()
	delete(h.clients, c)
	last := len(h.clients) == 0
	h.mu.Unlock()
	if last {
		h.stop()
		<-h.done
		h.stop = nil
	}
}

// listen opens the connection on which notes come, and begins to give them to the clients. The caller holds the turn of the hub.
func (t *Tail) listen(ctx context.Context) error {
	conn, err := t.listening(ctx)
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	t.hub.stop, t.hub.done = stop, done
	var work sync.WaitGroup
	work.Go(func() { t.receive(run, conn) })
	work.Go(func() { t.announceAll(run) })
	go func() {
		work.Wait()
		close(done)
	}()
	return nil
}

// listening returns a connection that listens for notes.
func (t *Tail) listening(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	conn, err := postgres.Connect(ctx, t.pool)
	if err != nil {
		return nil, fmt.Errorf("listen for ticks: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+noteChannel); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("listen for ticks: %w", err)
	}
	return conn, nil
}

// receive gives the notes of a connection to the clients until ctx ends. It opens the connection again where it breaks.
func (t *Tail) receive(ctx context.Context, conn *pgx.Conn) {
	for {
		t.giveAll(ctx, conn)
		if ctx.Err() != nil {
			return
		}
		for conn = nil; conn == nil; {
			var err error
			if conn, err = t.listening(ctx); err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			t.log.Warn("cannot listen for ticks", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
		t.hub.each(func(c *Client) {
			c.mu.Lock()
			c.missed = true
			c.mu.Unlock()
			c.stir()
		})
	}
}

// giveAll gives the notes of a connection to the clients until it breaks or ctx ends, and closes it.
func (t *Tail) giveAll(ctx context.Context, conn *pgx.Conn) {
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	for {
		n, err := postgres.Receive(ctx, conn)
		if err != nil {
			return
		}
		var note Note
		if n == nil || json.Unmarshal([]byte(n.Payload), &note) != nil {
			continue
		}
		t.hub.each(func(c *Client) { c.give(note) })
	}
}

// each calls do with each client.
func (h *hub) each(do func(*Client)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.clients {
		do(c)
	}
}

// give gives a note to the client if it is of its filter.
func (c *Client) give(n Note) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tenant == n.Tenant && c.id == n.Filter {
		c.pending.merge(n)
		c.stir()
	}
}

// announceAll announces again and again what all clients follow, until ctx ends.
func (t *Tail) announceAll(ctx context.Context) {
	ticker := time.NewTicker(announceEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var all []*Client
		t.hub.each(func(c *Client) { all = append(all, c) })
		if err := t.announce(ctx, all); err != nil && ctx.Err() == nil {
			t.log.Warn("cannot announce what clients follow", "error", err)
		}
	}
}

// announce tells all processes what clients follow: this one at once.
func (t *Tail) announce(ctx context.Context, all []*Client) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	var channels, payloads []string
	for _, c := range all {
		a := c.announcement()
		t.watch(a)
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		channels, payloads = append(channels, WatchChannel), append(payloads, string(text))
	}
	_, err := t.pool.Exec(ctx, postgres.NotifyAll, channels, payloads)
	return err
}
