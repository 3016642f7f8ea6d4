package schedulestest

import (
	"context"
	"log/slog"
	"slices"
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

// Fixture holds the schedules of two tenants on a database of its own. It records the due ticks that a change hands out. Nothing sweeps.
type Fixture struct {
	T         testing.TB
	Pool      *pgxpool.Pool        // without the tenant isolation
	API       *postgres.TenantPool // the pool of requests, with the tenant isolation
	Acme      tenants.ID
	Other     tenants.ID
	Quotas    tenants.Quotas
	Schedules *schedules.Schedules
	Actions   *schedules.Actions
	Subjects  *subjects.Subjects
	Calendars *calendars.Calendars
	InBulk    *bulk.Bulk

	mu        sync.Mutex
	handed    []cohorts.Due
	triggered []string // workflow/key of each manual tick
}

// New returns a fixture with wide quotas and no schedules.
func New(t testing.TB) *Fixture {
	t.Helper()
	h := &Fixture{T: t, Pool: postgrestest.Database(t), Quotas: tenants.Wide()}
	for name, id := range map[string]*tenants.ID{"acme": &h.Acme, "other": &h.Other} {
		tenant, err := tenants.Ensure(t.Context(), h.Pool, name, tenants.Wide())
		if err != nil {
			t.Fatal(err)
		}
		*id = tenant.ID
	}
	ids, err := ident.New(make([]byte, ident.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	h.API = postgrestest.TenantPool(t, h.Pool, int32(h.Acme))
	operations := operations.New(operations.Config{Pool: h.API, Engine: postgrestest.As(t, h.Pool, postgres.EngineRole), IDs: ids, Cursors: cursors(t)})
	timings := cohorts.NewTimings()
	quotas := func(context.Context, tenants.ID) (tenants.Quotas, error) { return h.Quotas, nil }
	h.Calendars = calendars.New(calendars.Config{Pool: h.API, IDs: ids, Timings: timings, Cursors: cursors(t), Operations: operations})
	h.Schedules = schedules.New(schedules.Config{
		Operations: operations, Pool: h.API, IDs: ids, Timings: timings, HandOut: h.handOut, Cursors: cursors(t), Log: slog.New(slog.DiscardHandler),
		Quotas:    quotas,
		Forecasts: forecast.New(forecast.Config{Pool: h.API, Timings: timings, Quotas: quotas, Log: slog.New(slog.DiscardHandler), Within: time.Minute}), // on a machine that is busy too
	})
	h.Actions = schedules.NewActions(h.Schedules, h.trigger)
	h.Subjects = subjects.New(subjects.Config{
		Pool: h.API, Schedules: h.Schedules, Erasures: subjects.NewErasures(subjects.ErasuresConfig{Pool: h.API, Forget: h.forget, Secret: []byte("secret")}),
		Withdraw: h.withdraw, Operations: operations, Quotas: quotas, Cursors: cursors(t),
	})
	h.InBulk = NewBulk(h.Schedules, h.Subjects, nil)
	return h
}

// trigger stands for dispatch/control: it records the schedule, and refuses one whose key is "held".
func (h *Fixture) trigger(_ context.Context, _ pgx.Tx, of policy.Name) error {
	if of.Key == "held" {
		return fault.Conflict("workflow_held", "the workflow is held")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.triggered = append(h.triggered, of.Workflow+"/"+of.Key)
	return nil
}

// Triggered returns the workflow and key of each manual tick that was made.
func (h *Fixture) Triggered() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.triggered)
}

// NewBulk returns the bulk service of s. It calls pace before it stores a batch, unless pace is nil.
func NewBulk(s *schedules.Schedules, people *subjects.Subjects, pace func(context.Context, tenants.ID, int) error) *bulk.Bulk {
	return bulk.New(bulk.Config{Pool: s.Pool, Schedules: s, Subjects: people, Forecasts: s.Forecasts, IDs: s.IDs, Quotas: s.Quotas, Log: s.Log, Pace: pace})
}

// Theirs returns the context of a request of the other tenant.
func (h *Fixture) Theirs() context.Context { return h.As(h.Other) }

// As returns the context of a request of a tenant.
func (h *Fixture) As(tenant tenants.ID) context.Context {
	return postgres.ForTenant(h.T.Context(), int32(tenant))
}

func cursors(t testing.TB) *web.Cursor {
	t.Helper()
	c, err := web.NewCursor(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (h *Fixture) handOut(_ context.Context, _ pgx.Tx, due []cohorts.Due) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handed = append(h.handed, due...)
	return nil
}

// forget finds no ticks to forget, because nothing sweeps.
func (h *Fixture) forget(context.Context, pgx.Tx, tenants.ID, []int64) (ticks, attempts int64, done bool, err error) {
	return 0, 0, true, nil
}

// withdraw finds no ticks to cancel, because nothing sweeps.
func (h *Fixture) withdraw(context.Context, pgx.Tx, tenants.ID, []int64, int) (ticks int, more bool, err error) {
	return 0, false, nil
}

// TakeHanded returns the due ticks that were handed out since the last call.
func (h *Fixture) TakeHanded() []cohorts.Due {
	h.mu.Lock()
	defer h.mu.Unlock()
	handed := h.handed
	h.handed = nil
	return handed
}

// Cron returns a spec of cron expressions.
func Cron(expressions ...string) calendar.Spec {
	return calendar.Spec{Cron: calendar.StringList(expressions)}
}

// Spec returns the parameters of a schedule that has no more than a spec.
func Spec(s calendar.Spec) schedules.Params { return schedules.Params{Spec: s} }

// ByCron returns the parameters of a schedule that has no more than cron expressions.
func ByCron(expressions ...string) schedules.Params { return Spec(Cron(expressions...)) }

// Put stores a schedule of acme in workflow w.
func (h *Fixture) Put(key string, p schedules.Params) schedules.Schedule {
	h.T.Helper()
	s, _, err := h.Schedules.Put(h.T.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: key}, p, "ann", version.Precondition{})
	if err != nil {
		h.T.Fatalf("put %q: %v", key, err)
	}
	return s
}

// Get reads a schedule of acme in workflow w.
func (h *Fixture) Get(key string) schedules.Schedule {
	h.T.Helper()
	s, err := h.Schedules.Get(h.T.Context(), h.Acme, "w", key)
	if err != nil {
		h.T.Fatal(err)
	}
	return s
}

// Pause pauses a schedule of acme in workflow w, and reads it.
func (h *Fixture) Pause(key string, p schedules.PauseParams) schedules.Schedule {
	h.T.Helper()
	if _, _, err := h.Schedules.Pause(h.T.Context(), h.Acme, "w", key, p, schedules.Changer{By: "bob"}); err != nil {
		h.T.Fatal(err)
	}
	return h.Get(key)
}

// Resume resumes a schedule of acme in workflow w, and reads it.
func (h *Fixture) Resume(key string, p schedules.ResumeParams) schedules.Schedule {
	h.T.Helper()
	if _, _, err := h.Schedules.Resume(h.T.Context(), h.Acme, "w", key, p, schedules.Changer{By: "bob"}); err != nil {
		h.T.Fatal(err)
	}
	return h.Get(key)
}

// Delete deletes a schedule of acme in workflow w.
func (h *Fixture) Delete(key string) {
	h.T.Helper()
	if err := h.Schedules.Delete(h.T.Context(), h.Acme, "w", key, schedules.Changer{By: "bob"}); err != nil {
		h.T.Fatal(err)
	}
}

// Exec runs a statement without the tenant isolation.
func (h *Fixture) Exec(sql string, args ...any) {
	h.T.Helper()
	if _, err := h.Pool.Exec(h.T.Context(), sql, args...); err != nil {
		h.T.Fatal(err)
	}
}

// One returns the single value of a query, which runs without the tenant isolation.
func One[T any](h *Fixture, sql string, args ...any) (v T) {
	h.T.Helper()
	if err := h.Pool.QueryRow(h.T.Context(), sql, args...).Scan(&v); err != nil {
		h.T.Fatalf("%s: %v", sql, err)
	}
	return v
}

// SetFailures stores how many ticks of schedules failed in a row, and lists the failing schedules. condition is SQL about a schedule s.
func (h *Fixture) SetFailures(n int, condition string) {
	h.T.Helper()
	h.Exec(`
		UPDATE schedule_state st SET failures = $1, failed = $1
		FROM schedule s
		WHERE s.tenant_id = st.tenant_id AND s.id = st.schedule_id AND `+condition, n)
	h.Exec(`DELETE FROM failing`)
	h.Exec(`
		INSERT INTO failing (tenant_id, schedule_id, workflow, key)
		SELECT s.tenant_id, s.id, s.workflow, s.key
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		WHERE st.failures > 0`)
}

// Backdate moves the cohorts of acme and their members back in time, as if nothing had swept them since.
func (h *Fixture) Backdate(d time.Duration) {
	h.T.Helper()
	h.Exec(`UPDATE cohort SET next_at = next_at - $2::interval, due_at = due_at - $2::interval WHERE tenant_id = $1`, h.Acme, d)
	h.Exec(`UPDATE member SET from_at = from_at - $2::interval WHERE tenant_id = $1`, h.Acme, d)
}

// WantFault returns the fault in err. It fails the test if err is not a fault with this status and code.
func WantFault(t testing.TB, err error, status int, code string) *fault.Error {
	t.Helper()
	f, ok := err.(*fault.Error)
	if !ok || f.Status != status || f.Code != code {
		t.Fatalf("got %v, want a fault %d %s", err, status, code)
	}
	return f
}
