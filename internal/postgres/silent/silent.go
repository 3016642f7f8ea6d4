// Package silent is a TCP proxy for tests. It simulates a host that dies without closing its connections: old connections stay open
// and never answer, while new ones reach the server. It can also simulate a host that answers new connections late.
package silent

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards connections to a server. New makes it; Close ends it.
type Proxy struct {
	listener net.Listener
	target   string

	delay atomic.Int64 // of new connections, in nanoseconds

	mu    sync.Mutex
	conns map[*conn]struct{}
	work  sync.WaitGroup
}

// conn is a pair of connections: the client's, and the one to the server.
type conn struct {
	client, server net.Conn
	silent         atomic.Bool // the client's data is acknowledged and discarded
}

// New returns a proxy to target. It listens on a free port of loopback.
func New(ctx context.Context, target string) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, conns: map[*conn]struct{}{}}
	p.work.Go(p.accept)
	return p, nil
}

// Address returns the address on which the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Silence silences the open connections for good, and returns their number. Their server side is closed, as if the host had died. The
// clients see no end: their data is acknowledged and never answered. New connections reach the server.
func (p *Proxy) Silence() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.silent.Store(true)
		_ = c.server.Close()
	}
	return len(p.conns)
}

// Delay makes each new connection forward nothing until it has been open for d.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Close closes all connections, and waits for the proxy's goroutines.
func (p *Proxy) Close() {
	_ = p.listener.Close() // ends accept
	p.mu.Lock()
	for c := range p.conns {
		c.close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close() // as the server's host would
		return
	}
	c := &conn{client: client, server: server}
	p.mu.Lock()
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	<-time.After(time.Duration(p.delay.Load()))
	var ways sync.WaitGroup
	ways.Go(func() { c.forward(server, client) })
	ways.Go(func() { c.forward(client, server) })
	ways.Wait()
	c.close()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// forward copies one direction until an end closes, and then closes both ends. It does not close the client of a silent connection
// when the server's end closes.
func (c *conn) forward(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		silent := c.silent.Load()
		if !silent && n > 0 {
			if _, failed := to.Write(buffer[:n]); err == nil {
				err = failed
			}
		}
		switch {
		case err == nil:
		case silent && from == c.server:
			return
		default:
			c.close()
			return
		}
	}
}

func (c *conn) close() {
	_ = c.client.Close() // no error matters here
	_ = c.server.Close()
}
