package postgres

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// How soon a connection detects a dead peer. An idle connection detects it within keepAliveIdle and three intervals. A connection with
// unacknowledged data detects it within unacknowledgedFor, on Linux. If the peer acknowledges but never answers, the deadline of the
// call ends the wait.
const (
	keepAliveIdle     = 3 * time.Second
	keepAliveInterval = time.Second
	keepAliveCount    = 3
	unacknowledgedFor = 3 * time.Second
)

// timeouts bound how long the connections of a pool wait for their server.
type timeouts struct {
	connect time.Duration // to connect, and to close an abandoned connection
	silence time.Duration // between two bytes of an answer; 0: no limit
}

// wire is the network connection below a PostgreSQL connection. The cluster can close it while a call waits on it.
type wire struct {
	net.Conn
	cluster  *Cluster
	timeouts timeouts

	mu       sync.Mutex
	deadline time.Time // set by pgx

	server server // guarded by cluster.mu; empty until admit has accepted the server
}

// dialer returns the dial function of a pool. A new connection has a deadline until admit accepts its server. pgx dials cancel
// requests too, and would otherwise wait 15 s for a silent server.
func (c *Cluster) dialer(p timeouts) func(ctx context.Context, network, address string) (net.Conn, error) {
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
		w := &wire{Conn: conn, cluster: c, timeouts: p}
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

// SetDeadline implements net.Conn. It shortens long deadlines: pgx allows an abandoned connection 15 s to close, and the connection
// counts in the pool for that time.
func (w *wire) SetDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if latest := time.Now().Add(w.timeouts.connect); t.After(latest) {
		t = latest
	}
	w.deadline = t
	return w.Conn.SetDeadline(t)
}

// Read implements net.Conn. It never waits longer than the silence timeout, because a call of a library may have no deadline.
func (w *wire) Read(b []byte) (int, error) {
	if err := w.limitSilence(); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

func (w *wire) limitSilence() error {
	if w.timeouts.silence == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(w.timeouts.silence)
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
