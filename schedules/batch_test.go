package schedules_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// trips counts the round trips to the database. A batch takes one. It counts apart those that read how much the tenant has stored: they
// depend on the time, because the answer is kept for two seconds.
type trips struct{ n, stored int }

func (t *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "FROM tally_delta ") {
		t.stored++
	} else {
		t.n++
	}
	return ctx
}

func (t *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (t *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	t.n++
	return ctx
}

func (t *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (t *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// countTrips returns schedules like those of h, with a counter of their trips to the database.
func countTrips(h *schedulestest.Fixture) (*schedules.Schedules, *trips) {
	h.T.Helper()
	counted := &trips{}
	config := h.Pool.Config()
	config.ConnConfig.RuntimeParams["role"] = postgres.APIRole
	config.ConnConfig.Tracer = counted
	pool, err := pgxpool.NewWithConfig(h.T.Context(), config)
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(pool.Close)
	c := h.Schedules.Config
	c.Pool, c.Operations = postgres.NewTestTenantPool(pool, int32(h.Acme)), nil
	return schedules.New(c), counted
}

// A change of one schedule is a batch of one. It makes few trips to the database, BEGIN and COMMIT included.
func TestAPutMakesFewTripsToTheDatabase(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	s, counted := countTrips(h)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	h.PutCalendar("off", "2026-12-24")
	began := time.Now()
	h.Put("first", schedulestest.ByCron("0 12 * * *")) // its workflow, and its cohort
	put := func(key string, p schedules.Params) func() error {
		return func() error {
			_, _, err := s.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: key}, p, "ann", version.Precondition{})
			return err
		}
	}
	name, by := policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, schedules.Changer{By: "ann"}
	noon, one := schedulestest.ByCron("0 12 * * *"), schedulestest.ByCron("0 13 * * *")
	noted := one
	noted.Payload = web.Raw(`{"n":1}`)
	off := schedulestest.ByCron("0 14 * * *")
	off.Spec.Exclude = &calendar.Exclude{Named: []string{"off"}}
	for _, c := range []struct {
		what string
		do   func() error
		most int
	}{
		{"a new one", put("a", noon), 6},
		{"the same", put("a", noon), 3},
		{"another time", put("a", one), 6},
		{"another payload", put("a", noted), 4},
		{"a new one, paused", put("p", schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Status: policy.Paused}), 5},
		{"a new one that follows its key", put("k", schedulestest.FollowingSubject("0 12 * * *")), 9},
		{"a new one with a calendar", put("c", off), 10},
		{"a patch", func() error {
			_, err := s.Patch(t.Context(), name, schedules.Patch(`{"note":"hello"}`), "ann", version.Precondition{})
			return err
		}, 4},
		{"a pause", func() error {
			_, _, err := s.Pause(t.Context(), h.Acme, "w", "a", schedules.PauseParams{}, by)
			return err
		}, 4},
		{"a resumption", func() error {
			_, _, err := s.Resume(t.Context(), h.Acme, "w", "a", schedules.ResumeParams{}, by)
			return err
		}, 5},
		{"a deletion", func() error { return s.Delete(t.Context(), h.Acme, "w", "a", by) }, 4},
	} {
		counted.n = 0
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if counted.n > c.most {
			t.Errorf("%s took %d trips, want %d", c.what, counted.n, c.most)
		}
	}
	if most := 2 * int(1+time.Since(began)/(2*time.Second)); counted.stored > most { // its schedules, and its bytes
		t.Errorf("read %d times how much is stored, want at most %d", counted.stored, most)
	}
}
