package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// cutter is a proxy in front of PostgreSQL. It cuts a connection that sends the armed text: before PostgreSQL receives it, or after PostgreSQL
// has answered, so that the answer is lost.
type cutter struct {
	listener net.Listener
	server   string
	armed    atomic.Pointer[cut]
	done     sync.WaitGroup
}

type cut struct {
	text     []byte
	answered bool
}

// cutBefore starts a proxy in front of the server of a URL, and returns it with a URL that leads through it.
func cutBefore(t *testing.T, direct string) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, server: u.Host}
	c.done.Go(c.accept)
	t.Cleanup(func() {
		l.Close()
		c.done.Wait()
	})
	u.Host = l.Addr().String()
	return c, u.String()
}

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			client.Close()
			continue
		}
		hold := make(chan struct{})
		c.done.Go(func() { c.forth(client, server, hold) })
		c.done.Go(func() { c.back(client, server, hold) })
	}
}

// forth copies from the client to the server until the armed text comes.
func (c *cutter) forth(client, server net.Conn, hold chan struct{}) {
	defer client.Close()
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		armed := c.armed.Load()
		if armed != nil && bytes.Contains(buffer[:n], armed.text) && c.armed.CompareAndSwap(armed, nil) {
			if armed.answered {
				close(hold)
				_, _ = server.Write(buffer[:n])
				_, _ = io.ReadFull(client, make([]byte, 1)) // until back has cut the connection
			}
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// back copies from the server to the client, unless the answer must be lost.
func (c *cutter) back(client, server net.Conn, hold chan struct{}) {
	defer client.Close()
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		select {
		case <-hold:
			return
		default:
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A change whose COMMIT loses its answer may have been made, and the API's answer says so. A change that was cut before COMMIT was not made.
func TestTheAnswerKnowsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	var proxy *cutter
	s := serveAs(t, func(p *options) { proxy, p.apiURL = cutBefore(t, p.databaseURL) })
	client := checked(t)
	admin, platform := s.mint(t, "acme", tenants.TenantScopes()...), s.mint(t, "", tenants.PlatformAdmin)
	s.expect(t, client, admin, "PUT", "/v1/workflows/w", `{}`, 201, "")
	requests := []struct{ token, method, path, body, there string }{
		{admin, "PUT", "/v1/workflows/w/schedules/k%d", `{"spec": {"cron": "0 8 * * *"}}`, `SELECT count(*) FROM schedule WHERE key = 'k%d'`},
		{admin, "PUT", "/v1/workflows/w%d", `{}`, `SELECT count(*) FROM workflow WHERE name = 'w%d'`},
		{admin, "PUT", "/v1/endpoints/e%d", `{"url": "https://example.com/"}`, `SELECT count(*) FROM endpoint WHERE name = 'e%d'`},
		{platform, "PUT", "/v1/platform/tenants/t%d", `{}`, `SELECT count(*) FROM tenant WHERE name = 't%d'`},
	}
	cuts := []struct {
		cut
		code string
		made int
	}{
		{cut{[]byte("commit\x00"), true}, "outcome_unknown", 1},
		{cut{[]byte("commit\x00"), false}, "outcome_unknown", 0}, // Carillon cannot know whether PostgreSQL received the COMMIT
		{cut{[]byte("begin"), false}, "unavailable", 0},
	}
	for _, r := range requests {
		for i, c := range cuts {
			proxy.armed.Store(&c.cut)
			path := fmt.Sprintf(r.path, i)
			doc := s.expect(t, client, r.token, r.method, path, r.body, 503, c.code)
			if proxy.armed.Swap(nil) != nil {
				t.Errorf("%s %s did not come to %q: %v", r.method, path, c.text, doc)
			}
			var made int
			if err := s.pool.QueryRow(t.Context(), fmt.Sprintf(r.there, i)).Scan(&made); err != nil || made != c.made {
				t.Errorf("%s %s cut at %q: got %d rows, %v, want %d", r.method, path, c.text, made, err, c.made)
			}
		}
	}
}
