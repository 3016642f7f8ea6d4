package dispatchtest

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

// Carillon is a whole Carillon without its HTTP: one tenant, its schedules, and a process that does all the work.
type Carillon struct {
	T         *testing.T
	Pool      *pgxpool.Pool
	Tenant    tenants.ID
	Schedules *schedules.Schedules
	Actions   *schedules.Actions
	Subjects  *subjects.Subjects
	InBulk    *bulk.Bulk
	Calendars *calendars.Calendars
	Dispatch  *Process
	running   *Process // started last
	Jobs      *dispatch.Jobs
	Config    dispatch.Config
}

func New(t *testing.T) *Carillon {
	t.Helper()
	return NewOn(t, postgrestest.Database(t))
}

func NewOn(t *testing.T, pool *pgxpool.Pool) *Carillon {
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
	h := &Carillon{T: t, Pool: pool, Tenant: tenant.ID}
	api, engine := postgrestest.TenantPool(t, pool, int32(tenant.ID)), postgrestest.As(t, pool, postgres.EngineRole)
	h.Config = dispatch.Config{
		Pool: engine, API: api, IDs: ids, Timings: cohorts.NewTimings(), Quotas: Quotas, Cursors: cursors, LeaseKey: make([]byte, 32),
		Log: logger(), Metrics: dispatch.NewMetrics(prometheus.NewRegistry()), Name: "test", Sweeps: true, Dispatches: true, Outbound: web.Outbound{Loopback: true},
	}
	if h.Jobs, err = dispatch.NewJobs(engine, logger()); err != nil {
		t.Fatal(err)
	}
	h.Config.Operations = operations.New(operations.Config{Pool: api, Engine: engine, IDs: ids, Cursors: cursors, Queue: h.Jobs.QueueOperation})
	h.Dispatch = h.Process()
	h.Dispatch.RegisterSteps()
	h.Calendars = calendars.New(calendars.Config{Pool: api, IDs: ids, Timings: h.Config.Timings, Cursors: cursors, Operations: h.Config.Operations})
	forecasts := forecast.New(forecast.Config{Pool: api, Timings: h.Config.Timings, Quotas: Quotas, Log: h.Config.Log, Within: time.Minute}) // on a machine that is busy too
	h.Schedules = schedules.New(schedules.Config{
		Pool: api, IDs: ids, Timings: h.Config.Timings, HandOut: h.Dispatch.Chunker.HandOut, Quotas: Quotas, Cursors: cursors, Log: h.Config.Log,
		Operations: h.Config.Operations, Forecasts: forecasts,
	})
	h.Actions = schedules.NewActions(h.Schedules, h.Dispatch.Control.TriggerOf)
	h.Subjects = subjects.New(subjects.Config{
		Pool: api, Schedules: h.Schedules, Erasures: subjects.NewErasures(subjects.ErasuresConfig{Pool: api, Forget: upkeep.Forget}),
		Withdraw: h.Dispatch.Control.Withdraw, Operations: h.Config.Operations, Quotas: Quotas, Cursors: cursors,
	})
	h.InBulk = bulk.New(bulk.Config{Pool: api, Schedules: h.Schedules, Subjects: h.Subjects, Forecasts: h.Schedules.Forecasts, IDs: ids, Quotas: Quotas, Log: h.Config.Log})
	return h
}

func Quotas(context.Context, tenants.ID) (tenants.Quotas, error) { return tenants.Wide(), nil }

func logger() *slog.Logger {
	out := io.Discard
	if os.Getenv("CARILLON_TEST_LOG") != "" {
		out = os.Stderr
	}
	return slog.New(slog.NewTextHandler(out, nil))
}

// Process makes another process on the same database, not yet started.
func (h *Carillon) Process() *Process {
	h.T.Helper()
	c := h.Config
	c.Chunker = sweep.NewChunker(c.Pool, c.Quotas, h.Jobs.Open, c.Traces)
	d, err := dispatch.New(c)
	if err != nil {
		h.T.Fatal(err)
	}
	return &Process{d, c.Chunker, c.Pool}
}

// Start starts a process, which works until the test ends.
func (h *Carillon) Start(d *Process) {
	h.T.Helper()
	if err := d.Start(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
	h.running = d
	h.T.Cleanup(func() {
		if err := d.Stop(context.Background()); err != nil {
			h.T.Error(err)
		}
	})
}

func (h *Carillon) Put(workflow, key string, p schedules.Params) schedules.Schedule {
	h.T.Helper()
	s, _, err := h.Schedules.Put(postgres.ForTenant(h.T.Context(), int32(h.Tenant)), policy.Name{Tenant: h.Tenant, Workflow: workflow, Key: key}, p, "tester", version.Precondition{})
	if err != nil {
		h.T.Fatal(err)
	}
	return s
}

// History is the whole history of a schedule, oldest first.
func (h *Carillon) History(workflow, key string) []history.Tick {
	h.T.Helper()
	page, _, err := h.Dispatch.Reader.History(h.T.Context(), policy.Name{Tenant: h.Tenant, Workflow: workflow, Key: key}, history.Span{}, 1000, "")
	if err != nil {
		h.T.Fatal(err)
	}
	oldest := make([]history.Tick, len(page))
	for i, t := range page {
		oldest[len(page)-1-i] = t
	}
	return oldest
}

// Until waits for a condition, asking again every few milliseconds.
func Until(t *testing.T, what string, holds func() bool) {
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
