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

// Cluster is what the pools of one process know together about the servers behind their URLs: a primary and its
// standbys, which share a system identifier. A promotion gives the new primary a higher timeline. Cluster refuses a
// primary whose timeline is lower than one that it has seen, and closes the connections to such a primary at once, so
// that a call that waits for a dead host ends as soon as another host is known to have taken its place.
type Cluster struct {
	mu        sync.Mutex
	timelines map[string]uint32   // the highest seen, by system identifier
	addresses map[string][]string // what a host's name was last resolved to
	good      string              // the address and port of the server that was last connected to
	wires     map[*wire]struct{}
	pools     []*pgxpool.Pool
}

// NewCluster returns a Cluster that has seen no server yet.
func NewCluster() *Cluster {
	return &Cluster{timelines: map[string]uint32{}, addresses: map[string][]string{}, wires: map[*wire]struct{}{}}
}

var errReadOnly = errors.New("the server is read-only")

// join makes the connections of a pool's configuration members of the cluster. The server is asked for a session that
// can write, unless the URL says which kind of server it wants.
func (c *Cluster) join(config *pgxpool.Config, rawURL string, statement time.Duration) {
	conn := config.ConnConfig
	asked := conn.ValidateConnect
	writes := !strings.Contains(rawURL, "target_session_attrs") && os.Getenv("PGTARGETSESSIONATTRS") == ""
	conn.ValidateConnect = func(ctx context.Context, pgConn *pgconn.PgConn) error {
		if asked != nil {
			if err := asked(ctx, pgConn); err != nil {
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
	wait := patience{connect: limit}
	if statement > 0 {
		wait.silence = statement + 2*answerSlack
	}
	conn.DialFunc = c.dialer(wait)
	config.BeforeConnect = func(_ context.Context, one *pgx.ConnConfig) error {
		c.order(one)
		return nil
	}
}

// resolved remembers the addresses of a host, and returns the remembered ones when the name server does not answer.
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

// order moves the server that was last connected to in front of the others.
func (c *Cluster) order(config *pgx.ConnConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	slices.SortStableFunc(hosts, func(a, b *pgconn.FallbackConfig) int { return c.rank(a) - c.rank(b) })
	config.Host, config.Port, config.TLSConfig, config.Fallbacks = hosts[0].Host, hosts[0].Port, hosts[0].TLSConfig, hosts[1:]
}

func (c *Cluster) rank(host *pgconn.FallbackConfig) int {
	for _, address := range c.addresses[host.Host] {
		if net.JoinHostPort(address, strconv.Itoa(int(host.Port))) == c.good {
			return 0
		}
	}
	return 1
}

// identify asks a server, in one trip, whether it takes writes, which process serves the connection, which system it is of
// and on which timeline it writes.
// The timeline of the last checkpoint is no use: after a promotion it lags until the next checkpoint has ended.
const identify = `
	SELECT current_setting('transaction_read_only'), pg_backend_pid(),
		(SELECT system_identifier FROM pg_control_system()),
		CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END`

// admit returns an error where the server must not be used, which makes pgx try the next host. A server that does not
// tell its timeline, because it is not plain PostgreSQL or forbids the functions, is used.
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
	is := server{system: string(row[2]), timeline: uint32(timeline)}
	if writes { // others may be those of a standby, which the primary does not know
		is.pid = string(row[1])
	}
	return c.enter(conn.Conn(), is)
}

// server is what is known of the session that a connection leads to.
type server struct {
	system   string
	timeline uint32 // 0: unknown
	pid      string // of the backend; "": unknown
}

// enter notes the timeline of a new connection, and closes those of older timelines of the same system.
func (c *Cluster) enter(conn net.Conn, is server) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest := c.timelines[is.system]
	if is.timeline > 0 && is.timeline < newest {
		return fmt.Errorf("the server is a primary of timeline %d, and another one of the same system is at timeline %d", is.timeline, newest)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.good = conn.RemoteAddr().String()
	if w := wireOf(conn); w != nil {
		w.server = is
	}
	if is.timeline > newest {
		c.timelines[is.system] = is.timeline
		for w := range c.wires {
			if w.server.system == is.system && w.server.timeline > 0 && w.server.timeline < is.timeline {
				_ = w.Conn.Close() // its own Close, which its user calls, takes it off the list
			}
		}
	}
	return nil
}

// add makes a pool one that Recheck resets. The first with several hosts asks all of them who is the primary, so that a
// process that starts while an old primary still runs does not begin with that one.
func (c *Cluster) add(ctx context.Context, pool *pgxpool.Pool) {
	c.mu.Lock()
	c.pools = append(c.pools, pool)
	fresh := len(c.timelines) == 0
	c.mu.Unlock()
	if hosts := hostsOf([]*pgx.ConnConfig{pool.Config().ConnConfig}); fresh && len(hosts) > 1 {
		c.survey(ctx, hosts)
	}
}

// Recheck is for a process whose calls fail. It asks every host of the URLs again which one is the primary, so that an old
// primary that came back is not taken for it. It closes each connection that the primary does not know: a call that waits
// on one would wait for a host that has died. All others are closed as soon as they are not in use.
func (c *Cluster) Recheck(ctx context.Context) {
	c.mu.Lock()
	c.good = ""
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

// survey connects to each host once, all at the same time. admit learns from it, and closeLost.
func (c *Cluster) survey(ctx context.Context, hosts map[string]*pgconn.Config) {
	var asked sync.WaitGroup
	for _, one := range hosts {
		asked.Go(func() {
			conn, err := pgconn.ConnectConfig(ctx, one)
			if err != nil {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, one.ConnectTimeout)
			defer cancel()
			c.closeLost(ctx, conn)
			_ = conn.Close(ctx) // what it was for is done
		})
	}
	asked.Wait()
}

// closeLost closes the connections to sessions that the primary does not have.
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

// Connect opens a connection as those of a pool are, but outside of it. The caller closes it.
func Connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config.ConnConfig)
}
