package postgres_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/embedded"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/postgres/silent"
)

// patient is how long a test waits for an event that must happen.
const patient = time.Minute

func startServer(t *testing.T, standbyOf *embedded.Server) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Ephemeral: true, Standby: standbyOf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Signal(syscall.SIGCONT)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// several returns a URL that lists the hosts of all servers.
func several(t *testing.T, servers ...*embedded.Server) string {
	t.Helper()
	u, err := url.Parse(servers[0].URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())))
	}
	u.Host = strings.Join(hosts, ",")
	return u.String() + "&connect_timeout=5"
}

func open(t *testing.T, url string, o postgres.Options) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// port returns the port of the server that answers the pool's next query.
func port(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, `SELECT inet_server_port()`).Scan(&n)
	return n, err
}

func TestThePoolFollowsThePrimary(t *testing.T) {
	t.Parallel()
	old := startServer(t, nil)
	standby := startServer(t, old)
	if _, err := postgres.Open(t.Context(), standby.URL("postgres"), postgres.Options{}); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a standby alone was taken: %v", err)
	}
	cluster := postgres.NewCluster()
	pool := open(t, several(t, standby, old), postgres.Options{Cluster: cluster})
	if n, err := port(t.Context(), pool); err != nil || n != old.Port() {
		t.Fatalf("got port %d, %v, want the primary's %d", n, err, old.Port())
	}

	// A call that waits for the silent host ends when the cluster learns of the new primary.
	waiting := make(chan error, 1)
	go func() {
		_, err := pool.Exec(t.Context(), `SELECT pg_sleep(3600)`)
		waiting <- err
	}()
	until(t, "the call waits", func() bool {
		var n int
		return pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)'`).Scan(&n) == nil && n == 1
	})
	if err := old.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cluster.Recheck(t.Context())
	select {
	case err := <-waiting:
		if err == nil {
			t.Error("the call to the silent host has succeeded")
		}
	case <-time.After(patient):
		t.Fatal("the call waits for the silent host still")
	}
	t.Logf("it ended after %s", time.Since(began))
	if n, err := port(t.Context(), pool); err != nil || n != standby.Port() {
		t.Fatalf("got port %d, %v, want the promoted one's %d", n, err, standby.Port())
	}

	// The old primary comes back and accepts writes. No pool may use it.
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	cluster.Recheck(t.Context())
	if n, err := port(t.Context(), pool); err != nil || n != standby.Port() {
		t.Errorf("got port %d, %v, want the promoted one's %d", n, err, standby.Port())
	}
	if _, err := postgres.Open(t.Context(), old.URL("postgres")+"&connect_timeout=5", postgres.Options{Cluster: cluster}); err == nil || !strings.Contains(err.Error(), "timeline") {
		t.Errorf("the old primary was taken: %v", err)
	}
	fresh := open(t, several(t, old, standby), postgres.Options{})
	if n, err := port(t.Context(), fresh); err != nil || n != standby.Port() {
		t.Errorf("a new process got port %d, %v, want the promoted one's %d", n, err, standby.Port())
	}
}

func TestAConnectionThatBecameReadOnlyIsDropped(t *testing.T) {
	t.Parallel()
	pool := open(t, postgrestest.URL(t), postgres.Options{MaxConns: 1})
	if _, err := pool.Exec(t.Context(), `CREATE TABLE written ()`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `SET default_transaction_read_only = on`); err != nil {
		t.Fatal(err)
	}
	_, err := pool.Exec(t.Context(), `INSERT INTO written DEFAULT VALUES`)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "25006" {
		t.Fatalf("got %v, want 25006", err)
	}
	if _, err := pool.Exec(t.Context(), `INSERT INTO written DEFAULT VALUES`); err != nil {
		t.Errorf("the next call was not on a new connection: %v", err)
	}
}

// through returns a URL that reaches a database through a proxy, and the proxy.
func through(t *testing.T, rawURL string) (string, *silent.Proxy) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := silent.New(t.Context(), u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u.Host = p.Address()
	q := u.Query()
	q.Set("connect_timeout", "2")
	u.RawQuery = q.Encode()
	return u.String(), p
}

// If the server stops answering, every kind of database call ends by itself, even if its context has no deadline.
func TestEveryCallEndsByItself(t *testing.T) {
	t.Parallel()
	background := context.WithoutCancel(t.Context())
	tenant := postgres.ForTenant(background, 1)
	for name, call := range map[string]func(pool *pgxpool.Pool, conn *pgxpool.Conn, tx pgx.Tx) error{
		"exec": func(_ *pgxpool.Pool, c *pgxpool.Conn, _ pgx.Tx) error {
			_, err := c.Exec(background, `SELECT 1`)
			return err
		},
		"query": func(_ *pgxpool.Pool, c *pgxpool.Conn, _ pgx.Tx) error {
			return c.QueryRow(background, `SELECT 1`).Scan(new(int))
		},
		"batch": func(_ *pgxpool.Pool, c *pgxpool.Conn, _ pgx.Tx) error {
			return c.SendBatch(background, batch()).Close()
		},
		"begin": func(_ *pgxpool.Pool, c *pgxpool.Conn, _ pgx.Tx) error { _, err := c.Begin(background); return err },
		"in a tx": func(_ *pgxpool.Pool, _ *pgxpool.Conn, tx pgx.Tx) error {
			_, err := tx.Exec(background, `SELECT 1`)
			return err
		},
		"commit":   func(_ *pgxpool.Pool, _ *pgxpool.Conn, tx pgx.Tx) error { return tx.Commit(background) },
		"rollback": func(_ *pgxpool.Pool, _ *pgxpool.Conn, tx pgx.Tx) error { return tx.Rollback(background) },
		"copy": func(_ *pgxpool.Pool, c *pgxpool.Conn, _ pgx.Tx) error {
			_, err := c.CopyFrom(background, pgx.Identifier{"tenant"}, []string{"name"}, pgx.CopyFromRows([][]any{{"one"}}))
			return err
		},
		"ping": func(_ *pgxpool.Pool, c *pgxpool.Conn, _ pgx.Tx) error { return c.Ping(background) }, // no tracer sees it
		"acquire": func(pool *pgxpool.Pool, _ *pgxpool.Conn, _ pgx.Tx) error {
			_, err := pool.Acquire(background)
			return err
		},
		"tenant pool": func(pool *pgxpool.Pool, _ *pgxpool.Conn, _ pgx.Tx) error {
			_, err := postgres.NewTenantPool(pool).Exec(tenant, `SELECT 1`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, proxy := through(t, postgrestest.URL(t)+"&statement_timeout=1000")
			pool := open(t, url, postgres.Options{MaxConns: 2, CallTimeout: time.Second})
			var conn *pgxpool.Conn
			var tx pgx.Tx
			until(t, "the pool has a connection", func() (ok bool) { conn, ok = acquired(background, pool); return ok })
			defer conn.Release()
			until(t, "another connection has a transaction", func() bool { // its first call may come to the limit of calls
				var err error
				tx, err = pool.Begin(background)
				return err == nil
			})
			defer func() { _ = tx.Rollback(background) }()
			proxy.Silence()
			done := make(chan error, 1)
			go func() { done <- call(pool, conn, tx) }()
			select {
			case err := <-done:
				if err == nil {
					t.Error("the call has succeeded")
				}
			case <-time.After(patient):
				t.Error("the call goes on")
				proxy.Close() // this ends the call
				<-done
			}
		})
	}
}

// acquired returns a connection of the pool, and whether it got one: a new connection may take longer than the pool lets it.
func acquired(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, bool) {
	conn, err := pool.Acquire(ctx)
	return conn, err == nil
}

func batch() *pgx.Batch {
	var b pgx.Batch
	b.Queue(`SELECT 1`)
	return &b
}

// A cancelled call gives its place in the pool to another one: the pool does not wait long for a silent server to close the connection.
func TestASilentServerDoesNotKeepThePlacesOfAPool(t *testing.T) {
	t.Parallel()
	url, proxy := through(t, postgrestest.URL(t))
	pool := open(t, url, postgres.Options{MaxConns: 2})
	const others = 2
	var held []*pgxpool.Conn
	for range others {
		until(t, "the pool has one more connection", func() bool {
			conn, ok := acquired(t.Context(), pool)
			if ok {
				held = append(held, conn)
			}
			return ok
		})
	}
	proxy.Silence()
	for _, conn := range held {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := conn.Exec(ctx, `SELECT 1`); err == nil {
			t.Error("the silent server has answered")
		}
		cancel()
		conn.Release()
	}
	began := time.Now()
	until(t, "the pool serves again", func() bool { _, err := port(t.Context(), pool); return err == nil })
	if took := time.Since(began); took > 12*time.Second { // pgx alone allows a connection 15 s to close
		t.Errorf("it took %s", took)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patient)
	defer deadline.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("timed out waiting until %s", what)
		case <-again.C:
		}
	}
}
