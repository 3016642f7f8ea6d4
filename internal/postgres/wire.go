package postgres

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// How soon a connection notices that its peer is gone. An idle one notices within keepAliveIdle and three intervals. One
// that waits for data to be acknowledged does so within unacknowledgedFor, where the system can be told so; a peer that
// acknowledges and says nothing more is noticed by the deadline of the call.
const (
	keepAliveIdle     = 3 * time.Second
	keepAliveInterval = time.Second
	keepAliveCount    = 3
	unacknowledgedFor = 3 * time.Second
)

// patience is how long the connections of a pool wait for their server.
type patience struct {
	connect time.Duration // for a connection, and for the end of one that was given up
	silence time.Duration // for the next byte of an answer; 0: no limit
}

// wire is the network connection below one of PostgreSQL's. Its cluster can close it while a call waits on it.
type wire struct {
	net.Conn
	cluster  *Cluster
	patience patience

	mu       sync.Mutex
	deadline time.Time // that pgx has set

	server server // guarded by cluster.mu; empty until the server was admitted
}

// dialer returns what connections are dialed with. Until the server is admitted they have a deadline: pgx dials cancel
// requests too, and would wait 15 s for the answer of a server that is silent.
func (c *Cluster) dialer(p patience) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{
		Timeout:         p.connect,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount},
		Control:         limitUnacknowledged,
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w := &wire{Conn: conn, cluster: c, patience: p}
		c.mu.Lock()
		c.wires[w] = struct{}{}
		c.mu.Unlock()
		return w, w.SetDeadline(time.Now().Add(p.connect))
	}
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.cluster.mu.Lock()
	delete(w.cluster.wires, w)
	w.cluster.mu.Unlock()
	return w.Conn.Close()
}

// SetDeadline implements net.Conn. pgx gives a connection that it has given up 15 s to say goodbye, and the pool keeps
// its place taken for as long. A silent server gets less.
func (w *wire) SetDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if latest := time.Now().Add(w.patience.connect); t.After(latest) {
		t = latest
	}
	w.deadline = t
	return w.Conn.SetDeadline(t)
}

// Read implements net.Conn. It waits for no longer than a server is ever silent, whatever the deadline of the call: a
// call of a library may have none.
func (w *wire) Read(b []byte) (int, error) {
	if err := w.limitSilence(); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

func (w *wire) limitSilence() error {
	if w.patience.silence == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(w.patience.silence)
	if !w.deadline.IsZero() && w.deadline.Before(until) {
		until = w.deadline
	}
	return w.Conn.SetReadDeadline(until)
}

func wireOf(conn net.Conn) *wire {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	w, _ := conn.(*wire)
	return w
}
