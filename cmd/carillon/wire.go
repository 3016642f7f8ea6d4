package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/console"
	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/platform"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/subjectview"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// app is everything that one process of Carillon runs.
type app struct {
	*parts
	router   *echo.Echo
	draining *atomic.Bool // it stops soon: load balancers must send it no new requests
}

// parts are what the routes and the loops of a process use.
type parts struct {
	*pools
	registry  *prometheus.Registry
	secrets   secrets
	directory *tenants.Directory
	limits    *tenants.Limits
	forecasts *forecast.Forecasts
	calendars *calendars.Calendars
	actions   *schedules.Actions
	bulk      *bulk.Bulk
	subjects  *subjects.Subjects
	uses      tenants.Uses
	dispatch  *dispatch.Dispatch
}

// secrets are the secrets of the installation. They are in the database, and the same in every process.
type secrets struct {
	ids     ident.Codec
	cursors *web.Cursor
	leases  []byte
	hashes  []byte
}

// wire makes the parts of a process, each after those that it uses.
func wire(ctx context.Context, o options) (_ *app, err error) {
	db, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			db.close()
		}
	}()
	secrets, err := readSecrets(ctx, db.engine)
	if err != nil {
		return nil, err
	}
	if err := adoptZones(ctx, db.engine, o.tzdata); err != nil {
		return nil, err
	}
	traces, err := o.traces.tracer(secrets.ids, o.log)
	if err != nil {
		return nil, err
	}
	p, err := newParts(o, db, secrets, traces)
	if err != nil {
		traces.Close()
		return nil, err
	}
	traces.Register(p.registry)
	draining := new(atomic.Bool)
	return &app{p, newRouter(o, p, draining), draining}, nil
}

// newParts makes the parts from the bottom up.
func newParts(o options, db *pools, s secrets, traces *trace.Tracer) (*parts, error) {
	registry := web.NewRegistry()
	directory := tenants.NewDirectory(db.platform)
	buckets := tenants.NewBuckets(db.api)
	limits := tenants.NewLimits(buckets, directory)
	timings := cohorts.NewTimings()
	jobs, err := dispatch.NewJobs(db.engine, o.log)
	if err != nil {
		return nil, err
	}
	chunker := sweep.NewChunker(db.engine, directory.Quotas, jobs.Open, traces)
	work := operations.New(operations.Config{Pool: db.api, Engine: db.engine, IDs: s.ids, Cursors: s.cursors, Queue: jobs.QueueOperation})
	forecasts := forecast.New(forecast.Config{Pool: db.api, Timings: timings, Quotas: directory.Quotas, Log: o.log})
	named := calendars.New(calendars.Config{Pool: db.api, IDs: s.ids, Timings: timings, Cursors: s.cursors, Operations: work})
	all := schedules.New(schedules.Config{
		Pool: db.api, IDs: s.ids, Timings: timings, Forecasts: forecasts, HandOut: chunker.HandOut,
		Quotas: directory.Quotas, Cursors: s.cursors, Log: o.log, Operations: work,
	})
	erasures := subjects.NewErasures(subjects.ErasuresConfig{Pool: db.api, Forget: upkeep.Forget, Secret: s.hashes})
	uses := tenants.Uses{DB: db.api, Directory: directory, Meters: meters(db, forecasts, limits)}
	ticks, err := dispatch.New(dispatch.Config{
		Pool:       db.engine,
		API:        db.api,
		IDs:        s.ids,
		Timings:    timings,
		Quotas:     directory.Quotas,
		Cursors:    s.cursors,
		LeaseKey:   s.leases,
		Keyset:     o.keyset,
		Log:        o.log,
		Metrics:    dispatch.NewMetrics(registry),
		Traces:     traces,
		Name:       processName(),
		Version:    thisEdition().Version,
		Serves:     o.role.does("api"),
		Sweeps:     o.role.does("sweep"),
		Dispatches: o.role.does("dispatch"),
		PushBytes:  int(o.bytesInFlight() / 2),
		Outbound:   o.outbound,
		OnFired:    o.onFired,
		Operations: work,
		Chunker:    chunker,
		Settle:     all.Settle,
		MayStore:   forecasts.MayStore,
		Pause:      all.PauseFailing,
		Uses:       uses.Of,
		Recheck:    db.cluster.Recheck,
		Erase:      func(ctx context.Context) error { return erasures.FinishErasures(ctx, db.engine) },
	})
	if err != nil {
		return nil, err
	}
	ticks.RegisterSteps()
	actions := schedules.NewActions(all, ticks.Control.TriggerOf)
	people := subjects.New(subjects.Config{
		Pool: db.api, Schedules: all, Erasures: erasures, Withdraw: ticks.Control.Withdraw, Operations: work, Quotas: directory.Quotas, Cursors: s.cursors,
	})
	lines := bulk.New(bulk.Config{Pool: db.api, Schedules: all, Subjects: people, Forecasts: forecasts, IDs: s.ids, Quotas: directory.Quotas, Log: o.log, Pace: pace(directory, buckets)})
	return &parts{db, registry, s, directory, limits, forecasts, named, actions, lines, people, uses, ticks}, nil
}

// pace returns a function that delays n writes of schedules while the tenant exceeds its quota of upserts.
func pace(directory *tenants.Directory, buckets *tenants.Buckets) func(ctx context.Context, tenant tenants.ID, n int) error {
	return func(ctx context.Context, tenant tenants.ID, n int) error {
		q, err := directory.Quotas(ctx, tenant)
		if err != nil {
			return err
		}
		return buckets.Wait(ctx, tenant, tenants.Upserts(q), n)
	}
}

// meters returns, for each quota, the function that reports a tenant's use of it.
func meters(db *pools, forecasts *forecast.Forecasts, limits *tenants.Limits) map[string]tenants.Meter {
	return map[string]tenants.Meter{
		"schedules":               forecasts.Stored,
		"subjects":                forecasts.Subjects,
		"stored_bytes":            forecasts.StoredBytes,
		"projected_ticks_per_day": forecasts.Projected,
		"leased":                  lease.Leased(db.api),
		"running":                 push.Pushing(db.api),
		"running_per_endpoint":    push.PushingToBusiest(db.api),
		"concurrent_requests":     limits.Concurrent("concurrent_requests"),
		"concurrent_bulk":         limits.Concurrent("concurrent_bulk"),
		"concurrent_polls":        limits.Concurrent("concurrent_polls"),
	}
}

// close exports the spans that wait, and closes the pools.
func (p *parts) close() {
	p.dispatch.Finisher.Traces.Close()
	p.pools.close()
}

// newRouter returns a router with the probes and, if this process serves the API, its routes.
func newRouter(o options, p *parts, draining *atomic.Bool) *echo.Echo {
	router := web.New(web.Options{Log: o.log, Metrics: web.NewMetrics(p.registry), Proxies: o.proxies})
	looked := web.Cached(time.Second, p.ready)
	web.Probes(router, func(ctx context.Context) error {
		if draining.Load() {
			return errDraining
		}
		return looked(ctx)
	})
	if o.role.does("api") {
		o.pages(router)
		p.routes(router, o)
	}
	return router
}

// routes adds the routes that need a token.
func (p *parts) routes(router *echo.Echo, o options) {
	verifier := tenants.NewVerifier(tenants.VerifierOptions{Issuer: o.issuer, Audience: o.audience, Keys: o.keys, Tenants: p.directory, Outbound: o.outbound})
	var shedding tenants.Shedding
	if o.shed != nil {
		shedding = o.shed(p.pools)
	}
	sessions := console.NewSessions(p.secrets.cursors, verifier.Identify)
	if !o.noConsole {
		console.Routes(router, sessions)
	}
	authenticated := router.Group("", sessions.Authorize, shedding.ShedLookups, tenants.Authenticate(verifier, tenants.TokenRoute), web.Versioned(o.answering()), shedding.Shed(), p.limits.Limit, web.Refuse, web.NewBudget(o.bytesInFlight()).Limit(tenants.Charged), traced(p.dispatch.Finisher.Traces))
	router.RouteNotFound("/", echo.NotFoundHandler) // the group's own handler would ask for a token on a path that does not exist
	router.RouteNotFound("/*", echo.NotFoundHandler)
	schedules.Routes(authenticated, p.actions.Schedules)
	schedules.ActionRoutes(authenticated, p.actions)
	bulk.Routes(authenticated, p.bulk)
	subjects.Routes(authenticated, p.subjects)
	calendars.Routes(authenticated, p.calendars)
	forecast.Routes(authenticated, p.forecasts)
	operations.Routes(authenticated, p.actions.Schedules.Operations)
	dispatch.Routes(authenticated, p.dispatch)
	subjectview.Routes(authenticated, &subjectview.Views{Subjects: p.subjects, Schedules: p.actions.Schedules, History: p.dispatch.Reader, Explainer: p.dispatch.Explainer})
	tenants.Credentials{DB: p.api, Cursors: p.secrets.cursors, Directory: p.directory, Limits: p.limits, Minter: o.minter}.Routes(authenticated)
	tenants.OwnIssuers{DB: p.api, Issuer: o.issuer, Outbound: o.outbound, Tenants: p.directory}.Routes(authenticated)
	tenants.Audited{DB: p.api, Platform: p.platform, Cursors: p.secrets.cursors}.Routes(authenticated)
	p.uses.Routes(authenticated)
	(&history.Overviews{DB: p.api, Ahead: p.forecasts.Ahead, Uses: p.uses.Of, Unopened: p.dispatch.Unopened}).Routes(authenticated)
	platform.Routes(authenticated, &platform.Engine{DB: p.engine, Cursors: p.secrets.cursors, Unopened: p.dispatch.Unopened})
	tenants.Platform{DB: p.platform, Cursors: p.secrets.cursors, Issuer: o.issuer, Outbound: o.outbound, Tenants: p.directory, Empty: p.dispatch.Keeper.EraseTenant}.Routes(authenticated)
}

// adoptZones stores the tz database of this process for all processes, and makes this process use the newest stored one.
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
	return calendars.AdoptZones(ctx, db, archive)
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
