package schedules_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
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
	"github.com/carillonhq/carillon/tenants"
)

// BenchmarkWall measures what row-level security costs: the same calls by way of the wall and past it, in turn, so that
// what else the machine does falls on both. The figures are the ratios of the times, and of PostgreSQL's CPU (on Linux).
func BenchmarkWall(b *testing.B) {
	h := newHome(b)
	config := h.schedules.Config
	config.Pool, config.Operations = h.pool, nil
	config.Forecasts = forecast.New(forecast.Config{Pool: h.pool, Timings: config.Timings, Quotas: config.Quotas, Log: config.Log})
	past := schedules.New(config)
	all := make([]tenants.ID, 100)
	for i := range all {
		tenant, err := tenants.Ensure(b.Context(), h.pool, fmt.Sprint("t", i), tenants.Wide())
		if err != nil {
			b.Fatal(err)
		}
		all[i] = tenant.ID
		if _, _, err := past.Put(b.Context(), policy.Name{Tenant: tenant.ID, Workflow: "w", Key: "k"}, spec(cron("0 8 * * *")), "ann", version.Precondition{}); err != nil {
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
		_, err := inBulk(s, nil).Upsert(postgres.ForTenant(b.Context(), int32(tenant)), tenant, "ann", io.NopCloser(strings.NewReader(body.String())), func([]bulk.Result) error { return nil })
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
					if err := w.call([]*schedules.Schedules{past, h.schedules}[way], w.of); err != nil {
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

// spent is the CPU that the sessions of the database have used, to 10 ms, as far as those were told of that have ended; 0
// where the system does not tell.
func (c cpu) spent(h *home) (sum time.Duration) {
	h.t.Helper()
	rows, _ := h.pool.Query(h.t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`) // CollectRows reports the error
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		h.t.Fatal(err)
	}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended, or this is no Linux
		}
		c[pid] = h.used(stat)
	}
	for _, one := range c {
		sum += one
	}
	return sum
}

// worked is how much of a processor fn used in its goroutine, to 10 ms, which no clock on the wall tells on a machine that does much
// else; 0 where the system does not tell.
func (h *home) worked(fn func()) time.Duration {
	h.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := func() time.Duration {
		stat, err := os.ReadFile("/proc/thread-self/stat")
		if err != nil {
			return 0 // this is no Linux
		}
		return h.used(stat)
	}
	before := thread()
	fn()
	return thread() - before
}

// used is the CPU of a process or a thread, as its stat in /proc says.
func (h *home) used(stat []byte) (sum time.Duration) {
	h.t.Helper()
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on
	for _, ticks := range fields[11:13] {                                     // utime and stime
		n, err := strconv.Atoi(ticks)
		if err != nil {
			h.t.Fatal(err)
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum
}

// cpu is what each session has used, by its process.
type cpu map[int]time.Duration
