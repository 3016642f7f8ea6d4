package cluster_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/postgres/silent"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// counter is an endpoint that counts requests by their path.
type counter struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *counter) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[r.URL.Path]++
}

// fewest returns the smallest number of requests to one of the paths.
func (c *counter) fewest(paths []string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	fewest := c.seen[paths[0]]
	for _, path := range paths {
		fewest = min(fewest, c.seen[path])
	}
	return fewest
}

func (c *counter) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.seen)
}

// The host of the database dies without a word: its connections stay open and never answer. Another host answers new ones.
func TestPushesGoOnAfterTheDatabaseFellSilent(t *testing.T) {
	t.Parallel()
	direct := postgrestest.URL(t)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := silent.New(t.Context(), u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	u.Host = proxy.Address()
	cluster := postgres.NewCluster()
	options := postgres.Options{Name: "test", MaxConns: 10, CallTimeout: 10 * time.Second, Cluster: cluster}
	pool, err := postgres.Open(t.Context(), u.String(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	options.MaxConns, options.Role = 4, postgres.PlatformRole
	platform, err := postgres.Open(t.Context(), u.String(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(platform.Close)

	h := dispatchtest.NewOn(t, pool)
	h.Config.Quotas = tenants.NewDirectory(platform).Quotas
	h.Config.Recheck = cluster.Recheck
	c := &counter{seen: map[string]int{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	var paths []string
	for i := range 5 {
		tenant, err := tenants.Ensure(t.Context(), pool, fmt.Sprintf("tenant-%d", i), tenants.Wide())
		if err != nil {
			t.Fatal(err)
		}
		path := "/" + tenant.Name
		paths = append(paths, path)
		ctx := postgres.ForTenant(t.Context(), int32(tenant.ID))
		endpoint, batch := "hook", int16(1)
		if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(ctx, tenant.ID, endpoint, push.EndpointParams{URL: server.URL + path, Batch: &batch}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.Schedules.PutWorkflow(ctx, tenant.ID, "w", schedules.WorkflowParams{Endpoint: &endpoint}); err != nil {
			t.Fatal(err)
		}
		for k := range 20 {
			if _, _, err := h.Schedules.Put(ctx, policy.Name{Tenant: tenant.ID, Workflow: "w", Key: fmt.Sprint(k)}, dispatchtest.EverySecond(), "tester", version.Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.Start(h.Process())
	dispatchtest.Until(t, "all tenants' ticks are pushed", func() bool { return c.fewest(paths) >= 40 })

	proxy.Silence()
	fell := time.Now()
	c.clear()
	dispatchtest.Until(t, "all tenants' ticks are pushed again", func() bool { return c.fewest(paths) >= 40 })
	t.Logf("each tenant got two rounds of ticks %s after the silence began", time.Since(fell))
}
