package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/carillonhq/carillon/api"
	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/console"
	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/migrations"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
)

// plan is what a house is built from.
type plan struct {
	databaseURL string
	apiURL      string // of whom tenants' requests log in as; empty: databaseURL
	connections int
	role        role
	issuer      string
	audience    string // of tokens; empty: tenants.DefaultAudience
	keys        []tenants.Key
	minter      *tenants.Minter // nil: API keys are not exchanged here
	outbound    web.Outbound
	proxies     []netip.Prefix // trusted ones before the API
	onFired     func([]dispatch.Fired)
	tzdata      string         // a file; empty: what the program carries
	keyset      *keyset.Keyset // nil: endpoints' secrets are stored in the clear
	log         *slog.Logger
	memory      int64 // that the process may use; 0: any amount
	noDocs      bool
	noConsole   bool

	shed func(h *house) tenants.Shedding // nil: no load is shed
}

// requestsPerConnection are worked on at a time until load is shed: they wait for connections by then.
const requestsPerConnection = 16

// shedByPool sheds a tenant's load while its requests wait for connections of the API, and all load while tenants wait to be
// looked up.
func shedByPool(h *house) tenants.Shedding {
	return tenants.Shedding{
		AtATime: requestsPerConnection * h.api.Connections(),
		Waits:   func(tenant tenants.ID) time.Duration { return h.api.Waited(int32(tenant)) },
		LookupWaits: tenants.PoolWaits(func() tenants.PoolUse {
			is := h.platform.Stat()
			return tenants.PoolUse{Acquired: is.AcquireCount(), Waited: is.EmptyAcquireWaitTime(), Busy: is.AcquiredConns() >= is.MaxConns()}
		}, time.Now),
	}
}

// bytesInFlight is what requests may hold in memory at a time: an eighth of what the process may use, if that is limited. Requests
// to endpoints may hold half as much besides.
func (p plan) bytesInFlight() int64 {
	if p.memory <= 0 || p.memory/8 > web.DefaultBudget {
		return web.DefaultBudget
	}
	return p.memory / 8
}

// pages serves the document of the API, and the pages that are not turned off.
func (p plan) pages(e *echo.Echo) {
	api.Routes(e, web.Static, web.Conditional)
	if !p.noDocs {
		api.PageRoutes(e, web.Static, web.Conditional)
	}
	if !p.noConsole {
		console.Routes(e)
	}
}

// house is all that one process of Carillon runs. The API and the engine have a pool each, so that neither waits for a
// connection while the other is flooded, and so that no route of a tenant's can reach the rows of another.
type house struct {
	api       *postgres.Wall // a tenant's rows
	platform  *pgxpool.Pool  // who the tenants are
	engine    *pgxpool.Pool  // all
	cluster   *postgres.Cluster
	registry  *prometheus.Registry
	router    *echo.Echo
	draining  atomic.Bool // it stops soon: load balancers are to send it nothing new
	dispatch  *dispatch.Dispatch
	schedules *schedules.Schedules
	directory *tenants.Directory
}

// secrets are those of the installation: in the database, and the same in every process.
type secrets struct {
	ids     ident.Codec
	cursors *web.Cursor
	leases  []byte
	hashes  []byte
}

func build(ctx context.Context, p plan) (_ *house, err error) {
	h := &house{registry: web.NewRegistry(), cluster: postgres.NewCluster()}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if err := h.connect(ctx, p); err != nil {
		return nil, err
	}
	s, err := readSecrets(ctx, h.engine)
	if err != nil {
		return nil, err
	}
	if err := adoptZones(ctx, h.engine, p.tzdata); err != nil {
		return nil, err
	}
	directory := tenants.NewDirectory(h.platform)
	h.directory = directory
	timings := cohorts.NewTimings()
	work := operations.New(operations.Config{Pool: h.api, Engine: h.engine, IDs: s.ids, Cursors: s.cursors})
	if h.dispatch, err = dispatch.New(dispatch.Config{
		Pool:       h.engine,
		API:        h.api,
		IDs:        s.ids,
		Timings:    timings,
		Quotas:     directory.Quotas,
		Cursors:    s.cursors,
		LeaseKey:   s.leases,
		Keyset:     p.keyset,
		Log:        p.log,
		Metrics:    dispatch.NewMetrics(h.registry),
		Name:       processName(),
		Sweeps:     p.role.does("sweep"),
		Dispatches: p.role.does("dispatch"),
		PushBytes:  int(p.bytesInFlight() / 2),
		Outbound:   p.outbound,
		OnFired:    p.onFired,
		Operations: work,
		Recheck:    h.cluster.Recheck,
	}); err != nil {
		return nil, err
	}
	buckets := tenants.NewBuckets(h.api)
	all := schedules.New(schedules.Config{
		Pace: func(ctx context.Context, tenant tenants.ID, n int) error {
			q, err := directory.Quotas(ctx, tenant)
			if err != nil {
				return err
			}
			return buckets.Wait(ctx, tenant, tenants.Upserts(q), n)
		},
		Pool:    h.api,
		IDs:     s.ids,
		Timings: timings,
		HandOut: h.dispatch.HandOut,
		Forget:  dispatch.Forget,
		Secret:  s.hashes,
		Quotas:  directory.Quotas,
		Cursors: s.cursors,
		Log:     p.log,

		Operations: work,
	})
	h.dispatch.Erase = func(ctx context.Context) error {
		return errors.Join(all.FinishErasures(ctx, h.engine), h.dispatch.FinishTenants(ctx))
	}
	h.schedules = all
	limits := tenants.NewLimits(buckets, directory)
	uses := tenants.Uses{DB: h.api, Directory: directory, Meters: map[string]tenants.Meter{
		"schedules":               all.Stored,
		"stored_bytes":            all.StoredBytes,
		"projected_ticks_per_day": all.Projected,
		"leased":                  h.dispatch.Leased,
		"running":                 h.dispatch.Pushing,
		"running_per_endpoint":    h.dispatch.PushingToBusiest,
		"concurrent_requests":     limits.AtOnce("concurrent_requests"),
		"concurrent_bulk":         limits.AtOnce("concurrent_bulk"),
		"concurrent_polls":        limits.AtOnce("concurrent_polls"),
	}}
	h.dispatch.Uses = uses.Of
	h.dispatch.Settle = all.Settle
	h.dispatch.MayStore = all.MayStore
	h.dispatch.Pause = all.PauseFailing // each needs the other, so one of them is told late
	work.Queue = h.dispatch.QueueOperation
	h.dispatch.RegisterSteps()
	h.router = web.New(web.Options{Log: p.log, Metrics: web.NewMetrics(h.registry), Proxies: p.proxies})
	looked := web.Cached(time.Second, h.ready)
	web.Probes(h.router, func(ctx context.Context) error {
		if h.draining.Load() {
			return errDraining
		}
		return looked(ctx)
	})
	if !p.role.does("api") {
		return h, nil
	}
	p.pages(h.router)
	verifier := tenants.NewVerifier(tenants.VerifierOptions{Issuer: p.issuer, Audience: p.audience, Keys: p.keys, Tenants: directory, Outbound: p.outbound})
	var shedding tenants.Shedding
	if p.shed != nil {
		shedding = p.shed(h)
	}
	authenticated := h.router.Group("", shedding.ShedLookups, tenants.Authenticate(verifier, tenants.TokenRoute), shedding.Shed(), limits.Limit, web.Refuse, web.NewBudget(p.bytesInFlight()).Limit(tenants.Charged))
	h.router.RouteNotFound("/", echo.NotFoundHandler) // the group's own would ask a token of a path that does not exist
	h.router.RouteNotFound("/*", echo.NotFoundHandler)
	schedules.Routes(authenticated, all)
	operations.Routes(authenticated, all.Operations)
	dispatch.Routes(authenticated, h.dispatch)
	tenants.Credentials{DB: h.api, Cursors: s.cursors, Directory: directory, Limits: limits, Minter: p.minter}.Routes(authenticated)
	tenants.Audited{DB: h.api, Cursors: s.cursors}.Routes(authenticated)
	uses.Routes(authenticated)
	(&dispatch.Overviews{DB: h.api, Ahead: all.Ahead, Uses: uses.Of, Unopened: h.dispatch.Unopened}).Routes(authenticated)
	tenants.Platform{DB: h.platform, Cursors: s.cursors, Issuer: p.issuer, Outbound: p.outbound, Tenants: directory, Empty: h.dispatch.EraseTenant}.Routes(authenticated)
	return h, nil
}

// platformConnections are enough to look up tenants and keys, as the answers are remembered. Look-ups for callers that are
// not known take at most half of them.
const platformConnections = 4

// connect refuses a database that is not up to date rather than failing at the first query.
func (h *house) connect(ctx context.Context, p plan) error {
	if err := current(ctx, p.databaseURL); err != nil {
		return err
	}
	engine := max(8, p.connections/2)
	var err error
	h.engine, err = h.open(ctx, p.databaseURL, postgres.Options{Name: "carillon engine", MaxConns: int32(engine), Role: postgres.EngineRole})
	if err != nil {
		return err
	}
	url := cmp.Or(p.apiURL, p.databaseURL)
	h.platform, err = h.open(ctx, url, postgres.Options{Name: "carillon platform", MaxConns: platformConnections, Role: postgres.PlatformRole})
	if err != nil {
		return err
	}
	api, err := h.open(ctx, url, postgres.Options{
		Name: "carillon api", MaxConns: int32(max(4, p.connections-engine-platformConnections)), Role: postgres.APIRole,
	})
	if err != nil {
		return err
	}
	h.api = postgres.NewWall(api)
	return nil
}

// callTimeout ends a call to the database whose context has no deadline.
const callTimeout = 10 * time.Second

func (h *house) open(ctx context.Context, url string, o postgres.Options) (*pgxpool.Pool, error) {
	o.Cluster, o.CallTimeout = h.cluster, callTimeout
	return postgres.Open(ctx, url, o)
}

// current refuses a database that lacks migrations, the roles of the pools among them.
func current(ctx context.Context, url string) error {
	pool, err := postgres.Open(ctx, url, postgres.Options{Name: "carillon", MaxConns: 1})
	if err != nil {
		return err
	}
	defer pool.Close()
	pending, err := migrations.Pending(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if pending > 0 {
		return fmt.Errorf("the database lacks %d migrations of this version: run carillon migrate first", pending)
	}
	return nil
}

// adoptZones has all processes know the tz database of this one, and this one the newest of all.
func adoptZones(ctx context.Context, db postgres.DB, file string) error {
	archive := calendar.EmbeddedArchive()
	if file != "" {
		given, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("CARILLON_TZDATA: %w", err)
		}
		archive = given
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return schedules.AdoptZones(ctx, db, archive)
}

func readSecrets(ctx context.Context, pool *pgxpool.Pool) (s secrets, err error) {
	read := func(name string) []byte {
		fresh := make([]byte, 32)
		rand.Read(fresh) // it never fails
		secret, readErr := tenants.Secret(ctx, pool, name, fresh)
		err = errors.Join(err, readErr)
		return secret
	}
	ids, cursors, leases, hashes := read("ids"), read("cursors"), read("leases"), read("hashes")
	if err != nil {
		return s, err
	}
	s.leases, s.hashes = leases, hashes
	if s.ids, err = ident.New(ids[:ident.KeySize]); err != nil {
		return s, err
	}
	s.cursors, err = web.NewCursor(cursors)
	return s, err
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

var errDraining = errors.New("the process is about to stop")

// ready is for /readyz: the database answers, takes writes, and has what this program needs.
func (h *house) ready(ctx context.Context) error {
	var readOnly string
	if err := h.platform.QueryRow(ctx, `SELECT current_setting('transaction_read_only')`).Scan(&readOnly); err != nil {
		return err
	}
	if readOnly == "on" {
		return errors.New("the database takes no writes")
	}
	pending, err := migrations.Pending(ctx, h.platform)
	if err != nil {
		return err
	}
	if pending > 0 {
		return fmt.Errorf("%d migrations are pending", pending)
	}
	return nil
}

// warnOfSecrets tells at the start what a reader of the database could sign with, and what cannot be signed with.
func (h *house) warnOfSecrets(ctx context.Context, k *keyset.Keyset, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if k == nil {
		log.Warn("secrets of endpoints are stored in the clear: set CARILLON_KEYSET to what carillon keyset prints")
	}
	s, err := dispatch.Sealings(ctx, h.engine, k)
	if err != nil {
		log.Warn("cannot look at the secrets of endpoints", "error", err)
		return
	}
	if s.Unreadable > 0 {
		log.Error("CARILLON_KEYSET lacks keys that secrets of endpoints are sealed with, so their ticks are held", "secrets", s.Unreadable)
	}
}

// close may be called of a house half built.
func (h *house) close() {
	if h.api != nil {
		h.api.Close()
	}
	if h.platform != nil {
		h.platform.Close()
	}
	if h.engine != nil {
		h.engine.Close()
	}
}
