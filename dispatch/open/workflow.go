package open

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/rate"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// route describes how the ticks of a workflow are delivered, according to its current registration.
type route struct {
	name       string
	known      bool
	versions   record.Versions
	endpoint   *push.Target // nil: they are pulled
	limited    bool         // by max_running
	held       bool         // nothing is handed out
	terms      policy.Terms
	unreadable error // why its defaults cannot be read: a newer program wrote them
}

// routeName names a workflow.
type routeName struct {
	tenant tenants.ID
	name   string
}

// routes are the registered workflows.
type routes map[routeName]route

// of returns the routes of a tenant's workflows, in their order. A workflow that is not registered gets a route with default terms.
func (known routes) of(tenant tenants.ID, workflows []string) []route {
	all := make([]route, len(workflows))
	for i, name := range workflows {
		r, there := known[routeName{tenant, name}]
		if !there {
			r = route{name: name, terms: policy.BuiltIn()}
		}
		all[i] = r
	}
	return all
}

// routeOf are the columns of a workflow w and its endpoint e that readRoutes reads.
const routeOf = `w.tenant_id, w.name, COALESCE(w.version, ''), w.past_versions, w.max_running IS NOT NULL, w.held_at IS NOT NULL, w.defaults, w.endpoint, e.url, e.batch, e.headers, e.state, e.secrets, e.rate, e.ramp_s`

func (o *Opener) readRoutes(rows pgx.Rows) (routes, error) {
	defer rows.Close()
	known := routes{}
	for rows.Next() {
		var n routeName
		var endpointName, url, state *string
		var batch *int16
		var perSecond, ramp *int32
		var r route
		var version string
		var past, defaults, headers []byte
		var secrets [][]byte
		if err := rows.Scan(&n.tenant, &n.name, &version, &past, &r.limited, &r.held, &defaults, &endpointName, &url, &batch, &headers, &state, &secrets, &perSecond, &ramp); err != nil {
			return nil, err
		}
		var err error
		if r.versions, err = record.ReadVersions(version, past); err != nil {
			return nil, err
		}
		if r.terms, r.unreadable = policy.OfWorkflow(defaults); r.unreadable != nil {
			r.terms = policy.BuiltIn()
		}
		if endpointName != nil {
			r.endpoint = o.push.Endpoints.WithOpened(push.Target{Tenant: n.tenant, Name: *endpointName, URL: *url, Batch: int(*batch), Rate: rate.Of(perSecond, ramp), State: *state}, headers, secrets)
		}
		r.name, r.known = n.name, true
		known[n] = r
	}
	return known, rows.Err()
}

// routes reads workflows of a tenant, in their order; whether the tenant is halted or suspended; and the clock.
func (o *Opener) routes(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflows []string) (all []route, halted bool, now time.Time, err error) {
	var b pgx.Batch
	b.Queue(`SELECT `+tenants.Stopped+`, `+postgres.Now+` FROM tenant t WHERE t.id = $1`, int32(tenant))
	b.Queue(`
		SELECT `+routeOf+`
		FROM workflow w
		LEFT JOIN endpoint e ON e.tenant_id = w.tenant_id AND e.name = w.endpoint
		WHERE w.tenant_id = $1 AND w.name = ANY($2)`, int32(tenant), workflows)
	results := tx.SendBatch(ctx, &b)
	defer results.Close()
	if err := results.QueryRow().Scan(&halted, &now); err != nil {
		return nil, false, now, fmt.Errorf("read tenant: %w", err)
	}
	rows, err := results.Query()
	if err != nil {
		return nil, false, now, fmt.Errorf("read workflows: %w", err)
	}
	known, err := o.readRoutes(rows)
	if err != nil {
		return nil, false, now, fmt.Errorf("read workflows: %w", err)
	}
	return known.of(tenant, workflows), halted, now.UTC(), nil
}

// routeTerms are the routes of chunks as parameter arrays of a query. Arrays of a query count from 1.
type routeTerms struct {
	first              map[*plan]int // place of a chunk's first route
	push               []bool
	overlap, onExpired []string
	maxLateness        []int32
}

func termsOf(all []*plan) routeTerms {
	c := routeTerms{first: make(map[*plan]int, len(all))}
	for _, p := range all {
		c.first[p] = len(c.push) + 1
		for i := range p.routes {
			r := &p.routes[i]
			c.push = append(c.push, r.endpoint != nil)
			c.overlap, c.onExpired = append(c.overlap, r.terms.Overlap), append(c.onExpired, r.terms.OnExpired)
			c.maxLateness = append(c.maxLateness, int32(r.terms.MaxLateness/time.Second))
		}
	}
	return c
}
