package migrations_test

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/migrations"
)

// A busy machine takes longer than a second to accept each connection of a migration.
func TestASlowServerIsMigrated(t *testing.T) {
	t.Parallel()
	at, err := url.Parse(postgrestest.EmptyURL(t))
	if err != nil {
		t.Fatal(err)
	}
	at.Host = slowly(t, at.Host, 1100*time.Millisecond)
	query := at.Query()
	query.Del("connect_timeout")
	at.RawQuery = query.Encode()
	if applied, err := migrations.Up(t.Context(), at.String(), migrations.Options{}); err != nil || applied == 0 {
		t.Errorf("%d migrations were applied: %v", applied, err)
	}
}

// slowly returns the address of a proxy to target whose connections begin to forward after a delay.
func slowly(t *testing.T, target string, delay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(func() { _ = l.Close() })
	work.Go(func() {
		for {
			client, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			work.Go(func() { forward(client, target, delay) })
		}
	})
	return l.Addr().String()
}

// forward forwards a connection to target until one of them ends. A client that has given up ends it, too.
func forward(client net.Conn, target string, delay time.Duration) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	<-time.After(delay)
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{server, client}, {client, server}} {
		ways.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // an error ends the connection as well
			_ = client.Close()
			_ = server.Close()
		})
	}
	ways.Wait()
}
