package schedules_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

// BenchmarkWall measures the cost of row-level security: the same calls with and without it, in turn, so that other work on the machine
// affects both. The figures are the ratios of the times, and of PostgreSQL's CPU time (on Linux).
func BenchmarkWall(b *testing.B) {
	h := schedulestest.New(b)
	config := h.Schedules.Config
	config.Pool, config.Operations = h.Pool, nil
	config.Forecasts = forecast.New(forecast.Config{Pool: h.Pool, Timings: config.Timings, Quotas: config.Quotas, Log: config.Log, Within: time.Minute})
	past := schedules.New(config)
	all := make([]tenants.ID, 100)
	for i := range all {
		tenant, err := tenants.Ensure(b.Context(), h.Pool, fmt.Sprint("t", i), tenants.Wide())
		if err != nil {
			b.Fatal(err)
		}
		all[i] = tenant.ID
		if _, _, err := past.Put(b.Context(), policy.Name{Tenant: tenant.ID, Workflow: "w", Key: "k"}, schedulestest.ByCron("0 8 * * *"), "ann", version.Precondition{}); err != nil {
			b.Fatal(err)
		}
	}
	get := func(s *schedules.Schedules, of func(worker, n int) tenants.ID) error {
		var group errgroup.Group
		for worker := range 4 {
			group.Go(func() error {
				for n := range 100 {
					tenant := of(worker, n)
					if _, err := s.Get(postgres.ForTenant(b.Context(), int32(tenant)), tenant, "w", "k"); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return group.Wait()
	}
	bodies := 0
	upsert := func(s *schedules.Schedules, of func(worker, n int) tenants.ID) error {
		bodies++
		var body strings.Builder
		for n := range 5000 {
			fmt.Fprintf(&body, `{"workflow": "b", "key": "%d-%d", "spec": {"cron": "%d 8 * * *"}}`+"\n", bodies, n, n%60)
		}
		tenant := of(0, bodies)
		_, err := schedulestest.NewBulk(s, nil, nil).Upsert(postgres.ForTenant(b.Context(), int32(tenant)), tenant, "ann", io.NopCloser(strings.NewReader(body.String())), func([]bulk.Result) error { return nil })
		return err
	}
	one := func(int, int) tenants.ID { return all[0] }
	each := func(worker, n int) tenants.ID { return all[(25*worker+n)%len(all)] }
	for _, w := range []struct {
		name string
		call func(*schedules.Schedules, func(worker, n int) tenants.ID) error
		of   func(worker, n int) tenants.ID
	}{
		{"get of one tenant", get, one},
		{"get of another tenant each time", get, each},
		{"bulk upsert", upsert, each},
	} {
		b.Run(w.name, func(b *testing.B) {
			var took, spent [2]time.Duration
			used := cpu{}
			for n := 0; b.Loop(); n++ {
				for i := range took {
					way := (n + i) % 2
					began, before := time.Now(), used.spent(h)
					if err := w.call([]*schedules.Schedules{past, h.Schedules}[way], w.of); err != nil {
						b.Fatal(err)
					}
					took[way], spent[way] = took[way]+time.Since(began), spent[way]+used.spent(h)-before
				}
			}
			b.ReportMetric(float64(took[1])/float64(took[0]), "time-by/past")
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "cpu-by/past")
		})
	}
}

// spent returns the CPU time of the sessions of the database, to 10 ms. For a session that has ended it is the last known time. It
// returns 0 on a system other than Linux.
func (c cpu) spent(h *schedulestest.Fixture) (sum time.Duration) {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`) // CollectRows reports the error
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		h.T.Fatal(err)
	}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended, or this is no Linux
		}
		c[pid] = h.CPUOf(stat)
	}
	for _, one := range c {
		sum += one
	}
	return sum
}

// cpu holds the CPU time of each session, by its process.
type cpu map[int]time.Duration
