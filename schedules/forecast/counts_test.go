package forecast_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

func TestSchedulesAreCountedWhateverChangesThem(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	stored := func() int {
		t.Helper()
		n, err := h.Schedules.Forecasts.Stored(t.Context(), h.Acme)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	check := func(all, members int) {
		t.Helper()
		if n := stored(); n != all {
			t.Errorf("%d schedules are counted, want %d", n, all)
		}
		if err := forecast.FoldTallies(t.Context(), h.Pool); err != nil {
			t.Fatal(err)
		}
		if n := stored(); n != all {
			t.Errorf("%d schedules are counted once folded, want %d", n, all)
		}
		if n := schedulestest.One[int](h, `SELECT count(*) FROM tally_delta`); n != 0 {
			t.Errorf("%d deltas are left", n)
		}
		if n := schedulestest.One[int](h, `SELECT sum(n) FROM tally WHERE cohort_id > 0`); n != members {
			t.Errorf("%d members are counted, want %d", n, members)
		}
		if n := schedulestest.One[int](h, `SELECT count(*) FROM tally t JOIN cohort c ON c.shard = t.shard AND c.id = t.cohort_id
			WHERE t.n <> (SELECT count(*) FROM member m WHERE m.cohort_id = c.id)`); n != 0 {
			t.Errorf("%d cohorts are counted wrongly", n)
		}
	}
	h.UpsertBulk(lines("a", 30, hourly(1)))
	h.Put("single", schedulestest.ByCron("0 8 * * *"))
	check(31, 31)
	h.UpsertBulk(lines("a", 10, hourly(2)))
	h.Pause("a20", schedules.PauseParams{})
	h.Pause("a21", schedules.PauseParams{Until: new(time.Now().Add(time.Hour).Truncate(time.Second))})
	check(31, 30)
	h.Delete("a0")
	h.Delete("a20")
	h.Resume("a21", schedules.ResumeParams{})
	check(29, 29)
}

func TestTheQuotaOfSchedulesIsExactAmongManyAtOnce(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Quotas.Schedules = 20
	var writers sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for i := range 4 {
		writers.Go(func() {
			results, sum := h.UpsertBulk(lines(fmt.Sprint("b", i, "-"), 8, hourly(3)))
			mu.Lock()
			defer mu.Unlock()
			made += sum.Inserted
			for _, r := range results {
				if r.Error != nil && r.Error.Status == 403 && r.Error.Code == "quota_exceeded" {
					refused++
				}
			}
		})
	}
	writers.Wait()
	if made != 20 || refused != 12 {
		t.Errorf("%d were made and %d refused, want 20 and 12", made, refused)
	}
	h.Quotas.Schedules = 21
	h.Put("last", schedulestest.ByCron("0 8 * * *"))
	h.Put("last", schedulestest.ByCron("0 9 * * *")) // a change makes none
	stored := schedulestest.One[string](h, `SELECT left(key, -1) FROM schedule WHERE key LIKE 'b%-0'`)
	if _, sum := h.UpsertBulk(lines(stored, 1, hourly(4))); sum.Updated != 1 {
		t.Errorf("a change was refused: %+v", sum)
	}
}
