package chaos

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/carillonhq/carillon/internal/postgres/embedded"
	"github.com/carillonhq/carillon/tenants"
)

// roles are the roles of the lab's processes: two of each.
var roles = []string{"api", "api", "sweep", "sweep", "dispatch", "dispatch"}

// Lab is everything that runs: PostgreSQL, the processes of carillon, each behind its own proxy, the sink and the workers.
type Lab struct {
	dir      string
	postgres *embedded.Server
	database string // its URL, without a proxy
	disk     *disk  // PostgreSQL's own; nil: there is none
	proxies  *toxiproxy.ApiServer
	nodes    []*node
	seed     ed25519.PrivateKey
	env      []string
	sink     *sink
	say      func(format string, args ...any)

	ledger   *ledger
	history  *history
	troubles *troubles
	internal atomic.Int64 // answers of 500
	ended    atomic.Int64 // backends that were terminated
	healed   atomic.Bool
	keep     bool // keep the folder for inspection

	mu     sync.Mutex
	tokens map[string]minted
	down   sync.Mutex // PostgreSQL's
}

type minted struct {
	text string
	at   time.Time
}

// openLab starts PostgreSQL and the processes of the lab. close ends them.
func openLab(ctx context.Context, o Options) (_ *Lab, err error) {
	dir, err := os.MkdirTemp("", "carillon-chaos-*")
	if err != nil {
		return nil, err
	}
	l := &Lab{
		dir: dir, say: o.Say, tokens: map[string]minted{},
		ledger: &ledger{}, history: &history{}, troubles: &troubles{},
		proxies: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
	}
	defer func() {
		if err != nil {
			l.close(context.WithoutCancel(ctx))
		}
	}()
	if _, l.seed, err = ed25519.GenerateKey(rand.Reader); err != nil {
		return nil, err
	}
	if err := l.startPostgres(ctx, o.Disk); err != nil {
		return nil, err
	}
	l.env = []string{
		"CARILLON_ISSUER_KEY=" + base64.StdEncoding.EncodeToString(l.seed.Seed()), "CARILLON_CONNECTIONS=16", "CARILLON_CLEAR_SECRETS=true", "CARILLON_LOG_FORMAT=json",
		"CARILLON_LOOPBACK=1", "CARILLON_MUTANT=" + o.Mutant,
	}
	migrate := exec.CommandContext(ctx, o.Binary, "migrate")
	migrate.Env = append(clean(), append(l.env, "DATABASE_URL="+l.database)...)
	if out, err := migrate.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("carillon migrate: %w\n%s", err, out)
	}
	return l, l.startNodes(ctx, o.Binary, o.Old)
}

// startPostgres starts PostgreSQL, on a disk of its own if ownDisk, and creates an empty database.
func (l *Lab) startPostgres(ctx context.Context, ownDisk bool) (err error) {
	config := embedded.Config{Ephemeral: true, Args: []string{"max_connections=150"}}
	if ownDisk {
		if l.disk, err = openDisk(); err != nil {
			return err
		}
		config.Ephemeral, config.Dir = false, filepath.Join(l.disk.dir, "postgres")
		config.Args = append(config.Args, "fsync=off", "full_page_writes=off", "max_wal_size=256MB")
	}
	if l.postgres, err = embedded.Start(ctx, config); err != nil {
		return err
	}
	l.database, err = l.postgres.Create(ctx, "carillon")
	return err
}

// startNodes starts a process for each of roles and waits until all are ready. If old names another binary, the second process of
// each role begins with it.
func (l *Lab) startNodes(ctx context.Context, binary, old string) error {
	seen := map[string]int{}
	for _, role := range roles {
		seen[role]++
		n, err := l.newNode(ctx, binary, fmt.Sprintf("%s-%d", role, seen[role]), role)
		if err != nil {
			return err
		}
		n.other = old
		if old != "" && seen[role] == 2 {
			n.binary, n.other = old, binary
		}
		l.nodes = append(l.nodes, n)
	}
	for _, n := range l.nodes {
		if err := n.start(""); err != nil {
			return err
		}
	}
	for _, n := range l.nodes {
		if err := n.ready(ctx, 2*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything that openLab started, and deletes the folder.
func (l *Lab) close(ctx context.Context) {
	for _, n := range l.nodes {
		n.kill()
		n.host.Close()
		n.proxy.Stop()
	}
	if l.postgres != nil {
		at, cancel := context.WithCancel(ctx)
		cancel()                // at once: its data is not needed any more
		_ = l.postgres.Stop(at) // an error changes nothing
	}
	if l.disk != nil {
		l.disk.close()
	}
	if l.keep {
		l.say("the logs of the processes are in %s", l.dir)
		return
	}
	_ = os.RemoveAll(l.dir)
}

func (l *Lab) role(role string) (nodes []*node) {
	for _, n := range l.nodes {
		if role == "" || n.role == role {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// apis returns the addresses of the API.
func (l *Lab) apis() (at []string) {
	for _, n := range l.role("api") {
		at = append(at, n.listen)
	}
	return at
}

// token returns a token of the tenant, or of the platform if tenant is empty.
func (l *Lab) token(tenant string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tokens[tenant]; t.text != "" && time.Since(t.at) < 20*time.Minute {
		return t.text, nil
	}
	claims := tenants.Claims{Subject: "chaos", Tenant: tenant, Scopes: tenants.TenantScopes(), TTL: time.Hour}
	if tenant == "" {
		claims.Scopes = []string{tenants.PlatformAdmin}
	}
	text, err := tenants.NewIssuer(l.seed, "carillon").Mint(claims, time.Now())
	l.tokens[tenant] = minted{text, time.Now()}
	return text, err
}

// tenant creates a tenant with wide quotas, the endpoints of a sink, and a workflow for each endpoint.
func (l *Lab) tenant(ctx context.Context, s *sink, tenant string) (*client, error) {
	body, err := json.Marshal(map[string]any{"name": tenant, "quotas": tenants.Wide()})
	if err != nil {
		return nil, err
	}
	platform := newClient(l, "")
	defer platform.http.CloseIdleConnections()
	if a, _, err := platform.until(ctx, http.MethodPut, "/v1/platform/tenants/"+tenant, body); err != nil || !a.ok() {
		return nil, errors.Join(err, fmt.Errorf("make tenant %s: %d %.300s", tenant, a.status, a.body))
	}
	c := newClient(l, tenant)
	for _, habit := range pushedWorkflows {
		batch := 1
		if habit == "batch" {
			batch = 20
		}
		at, err := s.url(tenant, habit)
		if err != nil {
			return nil, err
		}
		a, _, err := c.until(ctx, http.MethodPut, "/v1/endpoints/"+habit, fmt.Appendf(nil, `{"url":%q,"batch":%d}`, at, batch))
		if err != nil || !a.ok() {
			return nil, errors.Join(err, fmt.Errorf("make endpoint %s: %d %.300s", habit, a.status, a.body))
		}
		if err := s.learn(tenant, habit, a.body); err != nil {
			return nil, err
		}
	}
	for _, workflow := range allWorkflows() {
		endpoint := "null"
		switch {
		case slices.Contains(pushedWorkflows, workflow):
			endpoint = fmt.Sprintf("%q", workflow)
		case workflow == bulkWorkflow:
			endpoint = `"good"`
		}
		a, _, err := c.until(ctx, http.MethodPut, "/v1/workflows/"+workflow, fmt.Appendf(nil, `{"endpoint":%s}`, endpoint))
		if err != nil || !a.ok() {
			return nil, errors.Join(err, fmt.Errorf("make workflow %s: %d %.300s", workflow, a.status, a.body))
		}
	}
	return c, nil
}

// poisoned is a tenant whose rows a fault damages. That must harm no other tenant.
const poisoned = "poisoned"

// poison creates that tenant and some schedules of it.
func (l *Lab) poison(ctx context.Context, s *sink) error {
	c, err := l.tenant(ctx, s, poisoned)
	if err != nil {
		return err
	}
	defer c.http.CloseIdleConnections()
	for i := range 10 {
		n := name{poisoned, pulledWorkflow, fmt.Sprint("key ", i)}
		if a, _, err := c.until(ctx, http.MethodPut, path(n), fmt.Appendf(nil, `{"spec":{"intervals":[{"every":"%ds"}]}}`, i+2)); err != nil || !a.ok() {
			return errors.Join(err, fmt.Errorf("put %v: %d %.300s", n, a.status, a.body))
		}
	}
	return nil
}

// restartPostgres crashes PostgreSQL and starts it again, even if the faults end meanwhile.
func (l *Lab) restartPostgres(ctx context.Context, crash func(pid int) error) error {
	l.down.Lock()
	defer l.down.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	if err := crash(l.postgres.Pid()); err != nil {
		return err
	}
	select {
	case <-l.postgres.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.postgres.Restart(ctx)
}

// clean returns our environment without the variables that configure carillon.
func clean() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CARILLON_") || strings.HasPrefix(v, "DATABASE_URL=")
	})
}
