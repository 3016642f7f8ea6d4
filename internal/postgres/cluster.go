package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Cluster is the shared knowledge of a process's pools about the servers behind their URLs: a primary and its standbys, which share
// a system identifier. A promotion gives the new primary a higher timeline. Cluster refuses a primary with a lower timeline than the
// highest one seen, and closes the connections to it at once. So a call that waits for a dead host ends as soon as the process knows
// the new primary.
type Cluster struct {
	mu        sync.Mutex
	timelines map[string]uint32   // the highest one seen, by system identifier
	addresses map[string][]string // the last resolved addresses, by host name
	last      string              // address and port of the last connected server
	wires     map[*wire]struct{}
	pools     []*pgxpool.Pool
}

// NewCluster returns a Cluster that knows no server yet.
func NewCluster() *Cluster {
	return &Cluster{timelines: map[string]uint32{}, addresses: map[string][]string{}, wires: map[*wire]struct{}{}}
}

var errReadOnly = errors.New("the server is read-only")

// join installs the cluster's hooks in a pool's configuration. A connection must be able to write, unless the URL names another kind
// of server (target_session_attrs).
func (c *Cluster) join(config *pgxpool.Config, rawURL string, statement time.Duration) {
	conn := config.ConnConfig
	given := conn.ValidateConnect
	writes := !strings.Contains(rawURL, "target_session_attrs") && os.Getenv("PGTARGETSESSIONATTRS") == ""
	conn.ValidateConnect = func(ctx context.Context, pgConn *pgconn.PgConn) error {
		if given != nil {
			if err := given(ctx, pgConn); err != nil {
				return err
			}
		}
		return c.admit(ctx, pgConn, writes)
	}
	resolve, limit := conn.LookupFunc, conn.ConnectTimeout
	conn.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		found, err := resolve(ctx, host)
		return c.resolved(host, found, err)
	}
	limits := timeouts{connect: limit}
	if statement > 0 {
		limits.silence = statement + 2*answerSlack
	}
	conn.DialFunc = c.dialer(limits)
	config.BeforeConnect = func(_ context.Context, one *pgx.ConnConfig) error {
		c.order(one)
		return nil
	}
}

// resolved stores the addresses of a host, and returns the stored ones if the name server does not answer.
func (c *Cluster) resolved(host string, found []string, err error) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && len(c.addresses[host]) > 0 {
		return c.addresses[host], nil
	}
	if err == nil {
		c.addresses[host] = found
	}
	return found, err
}

// order moves the last connected server in front of the others.
func (c *Cluster) order(config *pgx.ConnConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	slices.SortStableFunc(hosts, func(a, b *pgconn.FallbackConfig) int { return c.rank(a) - c.rank(b) })
	config.Host, config.Port, config.TLSConfig, config.Fallbacks = hosts[0].Host, hosts[0].Port, hosts[0].TLSConfig, hosts[1:]
}

func (c *Cluster) rank(host *pgconn.FallbackConfig) int {
	for _, address := range c.addresses[host.Host] {
		if net.JoinHostPort(address, strconv.Itoa(int(host.Port))) == c.last {
			return 0
		}
	}
	return 1
}

// identify reads in one round trip: whether the server accepts writes, the pid of the backend, the system identifier, and the current
// timeline. The timeline of the last checkpoint would be wrong after a promotion until the next checkpoint ends.
const identify = `
	SELECT current_setting('transaction_read_only'), pg_backend_pid(),
		(SELECT system_identifier FROM pg_control_system()),
		CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END`

// admit returns an error if the process must not use the server; pgx then tries the next host. It accepts a server with an unknown
// timeline, because it may be another product or forbid the functions.
func (c *Cluster) admit(ctx context.Context, conn *pgconn.PgConn, writes bool) error {
	found, err := conn.Exec(ctx, identify).ReadAll()
	if _, refused := errors.AsType[*pgconn.PgError](err); refused {
		found, err = conn.Exec(ctx, `SELECT current_setting('transaction_read_only'), pg_backend_pid(), '', ''`).ReadAll()
	}
	if err != nil {
		return err
	}
	row := found[0].Rows[0]
	if writes && string(row[0]) == "on" {
		return errReadOnly
	}
	timeline, _ := strconv.ParseUint(string(row[3]), 16, 32) // 0: unknown
	s := server{system: string(row[2]), timeline: uint32(timeline)}
	if writes { // otherwise it may be a session of a standby, which the primary does not list
		s.pid = string(row[1])
	}
	return c.enter(conn.Conn(), s)
}

// server describes the server session of a connection.
type server struct {
	system   string
	timeline uint32 // 0: unknown
	pid      string // of the backend; "": unknown
}

// enter stores the timeline of a new connection, and closes connections to the same system with an older timeline.
func (c *Cluster) enter(conn net.Conn, s server) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest := c.timelines[s.system]
	if s.timeline > 0 && s.timeline < newest {
		return fmt.Errorf("the server is an old primary: its timeline is %d, and that of the current primary is %d", s.timeline, newest)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.last = conn.RemoteAddr().String()
	if w := wireOf(conn); w != nil {
		w.server = s
	}
	if s.timeline > newest {
		c.timelines[s.system] = s.timeline
		for w := range c.wires {
			if w.server.system == s.system && w.server.timeline > 0 && w.server.timeline < s.timeline {
				_ = w.Conn.Close() // pgx then calls the wire's own Close, which removes it from the list
			}
		}
	}
	return nil
}

// add registers a pool for Recheck. The first pool with several hosts surveys all of them, so that a process that starts beside a
// still running old primary does not use it.
func (c *Cluster) add(ctx context.Context, pool *pgxpool.Pool) {
	c.mu.Lock()
	c.pools = append(c.pools, pool)
	fresh := len(c.timelines) == 0
	c.mu.Unlock()
	if hosts := hostsOf([]*pgx.ConnConfig{pool.Config().ConnConfig}); fresh && len(hosts) > 1 {
		c.survey(ctx, hosts)
	}
}

// Recheck finds the primary again after calls have failed. It asks every host of the URLs, so that the process does not use an old
// primary that came back. It closes each connection whose session the primary does not have, because a call on it would wait for a
// dead host. The other connections are closed when they become idle.
func (c *Cluster) Recheck(ctx context.Context) {
	c.mu.Lock()
	c.last = ""
	pools := slices.Clone(c.pools)
	c.mu.Unlock()
	var configs []*pgx.ConnConfig
	for _, p := range pools {
		p.Reset()
		configs = append(configs, p.Config().ConnConfig)
	}
	c.survey(ctx, hostsOf(configs))
}

// hostsOf returns a configuration for each host.
func hostsOf(configs []*pgx.ConnConfig) map[string]*pgconn.Config {
	hosts := map[string]*pgconn.Config{}
	for _, config := range configs {
		for _, host := range append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...) {
			name := net.JoinHostPort(host.Host, strconv.Itoa(int(host.Port)))
			if hosts[name] != nil {
				hosts[name].Fallbacks = append(hosts[name].Fallbacks, host)
				continue
			}
			one := config.Config.Copy()
			one.Host, one.Port, one.TLSConfig, one.Fallbacks = host.Host, host.Port, host.TLSConfig, nil
			hosts[name] = one
		}
	}
	return hosts
}

// survey connects to all hosts at the same time, once each. admit stores what they report; closeLost closes lost connections.
func (c *Cluster) survey(ctx context.Context, hosts map[string]*pgconn.Config) {
	var work sync.WaitGroup
	for _, one := range hosts {
		work.Go(func() {
			conn, err := pgconn.ConnectConfig(ctx, one)
			if err != nil {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, one.ConnectTimeout)
			defer cancel()
			c.closeLost(ctx, conn)
			_ = conn.Close(ctx) // the connection is not needed any more
		})
	}
	work.Wait()
}

// closeLost closes the connections whose sessions the primary does not have.
func (c *Cluster) closeLost(ctx context.Context, primary *pgconn.PgConn) {
	c.mu.Lock()
	older := maps.Clone(c.wires)
	c.mu.Unlock()
	found, err := primary.Exec(ctx, `SELECT pid FROM pg_stat_activity`).ReadAll()
	if err != nil {
		return
	}
	alive := map[string]bool{}
	for _, row := range found[0].Rows {
		alive[string(row[0])] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	self := wireOf(primary.Conn())
	if self == nil || self.server.pid == "" {
		return
	}
	for w := range older {
		if w.server.pid != "" && w.server.system == self.server.system && !alive[w.server.pid] {
			_ = w.Conn.Close()
		}
	}
}

// Connect opens a connection with a pool's configuration, outside the pool. The caller closes it.
func Connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config.ConnConfig)
}
