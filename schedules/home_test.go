package schedules_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
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

// home is two tenants' schedules on a database of their own. What is handed out is written down, and nothing is swept.
type home struct {
	t         testing.TB
	pool      *pgxpool.Pool        // without the tenant isolation
	api       *postgres.TenantPool // what the schedules go by
	acme      tenants.ID
	other     tenants.ID
	quotas    tenants.Quotas
	schedules *schedules.Schedules
	subjects  *subjects.Subjects
	calendars *calendars.Calendars
	inBulk    *bulk.Bulk

	mu     sync.Mutex
	handed []cohorts.Due
}

func newHome(t testing.TB) *home {
	t.Helper()
	h := &home{t: t, pool: postgrestest.Database(t), quotas: tenants.Wide()}
	for name, id := range map[string]*tenants.ID{"acme": &h.acme, "other": &h.other} {
		tenant, err := tenants.Ensure(t.Context(), h.pool, name, tenants.Wide())
		if err != nil {
			t.Fatal(err)
		}
		*id = tenant.ID
	}
	ids, err := ident.New(make([]byte, ident.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	h.api = postgrestest.TenantPool(t, h.pool, int32(h.acme))
	operations := operations.New(operations.Config{Pool: h.api, Engine: postgrestest.As(t, h.pool, postgres.EngineRole), IDs: ids, Cursors: cursors(t)})
	timings := cohorts.NewTimings()
	quotas := func(context.Context, tenants.ID) (tenants.Quotas, error) { return h.quotas, nil }
	h.calendars = calendars.New(calendars.Config{Pool: h.api, IDs: ids, Timings: timings, Cursors: cursors(t), Operations: operations})
	h.schedules = schedules.New(schedules.Config{
		Operations: operations, Pool: h.api, IDs: ids, Timings: timings, HandOut: h.handOut, Cursors: cursors(t), Log: slog.New(slog.DiscardHandler),
		Quotas:    quotas,
		Forecasts: forecast.New(forecast.Config{Pool: h.api, Timings: timings, Quotas: quotas, Log: slog.New(slog.DiscardHandler), Within: time.Minute}), // on a machine that is busy too
	})
	h.inBulk = inBulk(h.schedules, nil)
	h.subjects = subjects.New(subjects.Config{Pool: h.api, Schedules: h.schedules, Forget: h.forget, Secret: []byte("secret"), Quotas: quotas, Cursors: cursors(t)})
	return h
}

// inBulk makes what stores many schedules at the pace of a function; nil: at once.
func inBulk(s *schedules.Schedules, pace func(context.Context, tenants.ID, int) error) *bulk.Bulk {
	return bulk.New(bulk.Config{Pool: s.Pool, Schedules: s, Forecasts: s.Forecasts, IDs: s.IDs, Quotas: s.Quotas, Log: s.Log, Pace: pace})
}

// theirs is the context of the other tenant's requests.
func (h *home) theirs() context.Context { return h.as(h.other) }

func (h *home) as(tenant tenants.ID) context.Context {
	return postgres.ForTenant(h.t.Context(), int32(tenant))
}

func cursors(t testing.TB) *web.Cursor {
	t.Helper()
	c, err := web.NewCursor(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (h *home) handOut(_ context.Context, _ pgx.Tx, due []cohorts.Due) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handed = append(h.handed, due...)
	return nil
}

// forget finds nothing to forget: nothing is swept here.
func (h *home) forget(context.Context, pgx.Tx, tenants.ID, []int64) (ticks, attempts int64, done bool, err error) {
	return 0, 0, true, nil
}

// takeHanded is what was handed out since it was last asked.
func (h *home) takeHanded() []cohorts.Due {
	h.mu.Lock()
	defer h.mu.Unlock()
	handed := h.handed
	h.handed = nil
	return handed
}

func cron(expressions ...string) calendar.Spec {
	return calendar.Spec{Cron: calendar.StringList(expressions)}
}

func spec(s calendar.Spec) schedules.Params { return schedules.Params{Spec: s} }

func (h *home) put(key string, p schedules.Params) schedules.Schedule {
	h.t.Helper()
	s, _, err := h.schedules.Put(h.t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: key}, p, "ann", version.Precondition{})
	if err != nil {
		h.t.Fatalf("put %q: %v", key, err)
	}
	return s
}

func (h *home) get(key string) schedules.Schedule {
	h.t.Helper()
	s, err := h.schedules.Get(h.t.Context(), h.acme, "w", key)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *home) pause(key string, p schedules.PauseParams) schedules.Schedule {
	h.t.Helper()
	if _, _, err := h.schedules.Pause(h.t.Context(), h.acme, "w", key, p, schedules.Changer{By: "bob"}); err != nil {
		h.t.Fatal(err)
	}
	return h.get(key)
}

func (h *home) resume(key string, p schedules.ResumeParams) schedules.Schedule {
	h.t.Helper()
	if _, _, err := h.schedules.Resume(h.t.Context(), h.acme, "w", key, p, schedules.Changer{By: "bob"}); err != nil {
		h.t.Fatal(err)
	}
	return h.get(key)
}

func (h *home) delete(key string) {
	h.t.Helper()
	if err := h.schedules.Delete(h.t.Context(), h.acme, "w", key, schedules.Changer{By: "bob"}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.pool.Exec(h.t.Context(), sql, args...); err != nil {
		h.t.Fatal(err)
	}
}

// one is the single value of a query.
func one[T any](h *home, sql string, args ...any) (v T) {
	h.t.Helper()
	if err := h.pool.QueryRow(h.t.Context(), sql, args...).Scan(&v); err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// back moves the cohorts of acme back in time, members and all, as if the sweep had not come since.
func (h *home) back(d time.Duration) {
	h.t.Helper()
	h.exec(`UPDATE cohort SET next_at = next_at - $2::interval, due_at = due_at - $2::interval WHERE tenant_id = $1`, h.acme, d)
	h.exec(`UPDATE member SET from_at = from_at - $2::interval WHERE tenant_id = $1`, h.acme, d)
}

// faulty is the fault that a call must have ended with.
func faulty(t testing.TB, err error, status int, code string) *fault.Error {
	t.Helper()
	f, ok := err.(*fault.Error)
	if !ok || f.Status != status || f.Code != code {
		t.Fatalf("got %v, want a fault %d %s", err, status, code)
	}
	return f
}
