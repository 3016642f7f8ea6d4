package dispatch_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

func TestMain(m *testing.M) { postgrestest.MainNoLeaks(m) }

// house is a whole Carillon without its HTTP: one tenant, schedules, and a process that does all.
type house struct {
	t         *testing.T
	pool      *pgxpool.Pool
	tenant    tenants.ID
	schedules *schedules.Schedules
	subjects  *subjects.Subjects
	inBulk    *bulk.Bulk
	calendars *calendars.Calendars
	dispatch  *process
	jobs      *dispatch.Jobs
	config    dispatch.Config
}

func newHouse(t *testing.T) *house {
	t.Helper()
	return newHouseOn(t, postgrestest.Database(t))
}

func newHouseOn(t *testing.T, pool *pgxpool.Pool) *house {
	t.Helper()

	tenant, err := tenants.Ensure(t.Context(), pool, "acme", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	ids, err := ident.New(make([]byte, ident.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	cursors, err := web.NewCursor(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, pool: pool, tenant: tenant.ID}
	api, engine := postgrestest.Wall(t, pool, int32(tenant.ID)), postgrestest.As(t, pool, postgres.EngineRole)
	h.config = dispatch.Config{
		Pool: engine, API: api, IDs: ids, Timings: cohorts.NewTimings(), Quotas: quotas, Cursors: cursors, LeaseKey: make([]byte, 32),
		Log: logger(), Metrics: dispatch.NewMetrics(prometheus.NewRegistry()), Name: "test", Sweeps: true, Dispatches: true, Outbound: web.Outbound{Loopback: true},
	}
	if h.jobs, err = dispatch.NewJobs(engine, logger()); err != nil {
		t.Fatal(err)
	}
	h.config.Operations = operations.New(operations.Config{Pool: api, Engine: engine, IDs: ids, Cursors: cursors, Queue: h.jobs.QueueOperation})
	h.dispatch = h.process()
	h.dispatch.Control.RegisterSteps()
	h.calendars = calendars.New(calendars.Config{Pool: api, IDs: ids, Timings: h.config.Timings, Cursors: cursors, Operations: h.config.Operations})
	h.schedules = schedules.New(schedules.Config{
		Pool: api, IDs: ids, Timings: h.config.Timings, HandOut: h.dispatch.Chunker.HandOut, Quotas: quotas, Cursors: cursors, Log: h.config.Log,
		Operations: h.config.Operations, Forecasts: forecast.New(forecast.Config{Pool: api, Timings: h.config.Timings, Quotas: quotas, Log: h.config.Log}),
	})
	h.inBulk = bulk.New(bulk.Config{Pool: api, Schedules: h.schedules, Forecasts: h.schedules.Forecasts, IDs: ids, Quotas: quotas, Log: h.config.Log})
	h.subjects = subjects.New(subjects.Config{Pool: api, Schedules: h.schedules, Forget: upkeep.Forget, Quotas: quotas, Cursors: cursors})
	return h
}

func quotas(context.Context, tenants.ID) (tenants.Quotas, error) { return tenants.Wide(), nil }

func logger() *slog.Logger {
	out := io.Discard
	if os.Getenv("CARILLON_TEST_LOG") != "" {
		out = os.Stderr
	}
	return slog.New(slog.NewTextHandler(out, nil))
}

// process makes another process on the same database, not yet started.
func (h *house) process() *process {
	h.t.Helper()
	c := h.config
	c.Chunker = sweep.NewChunker(c.Pool, c.Quotas, h.jobs.Open)
	d, err := dispatch.New(c)
	if err != nil {
		h.t.Fatal(err)
	}
	return &process{d}
}

// start has a process work until the test ends.
func (h *house) start(d *process) {
	h.t.Helper()
	if err := d.Start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := d.Stop(context.Background()); err != nil {
			h.t.Error(err)
		}
	})
}

func (h *house) put(workflow, key string, p schedules.Params) schedules.Schedule {
	h.t.Helper()
	s, _, err := h.schedules.Put(postgres.ForTenant(h.t.Context(), int32(h.tenant)), policy.Name{Tenant: h.tenant, Workflow: workflow, Key: key}, p, "tester", version.Precondition{})
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// history is the whole history of a schedule, oldest first.
func (h *house) history(workflow, key string) []history.Tick {
	h.t.Helper()
	page, _, err := h.dispatch.Reader.History(h.t.Context(), policy.Name{Tenant: h.tenant, Workflow: workflow, Key: key}, history.Span{}, 1000, "")
	if err != nil {
		h.t.Fatal(err)
	}
	oldest := make([]history.Tick, len(page))
	for i, t := range page {
		oldest[len(page)-1-i] = t
	}
	return oldest
}

// until waits for a condition, asking again every few milliseconds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
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
