package upkeep_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

const doneLeft = `SELECT (SELECT count(*) FROM chunk) + (SELECT count(*) FROM idempotency)`

func TestUpkeepClearsAllThatIsOverInOneRun(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.StoreDone(20_000)
	if err := h.Dispatch.RunUpkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(doneLeft); n != 0 {
		t.Errorf("%d chunks and answers are left", n)
	}
}

func TestATaskRunsInOneProcessAtATime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.StoreDone(1)
	other, err := h.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	class, numbers := h.Dispatch.TaskLocks()
	for _, n := range numbers {
		if _, err := other.Exec(t.Context(), `SELECT pg_advisory_lock($1, $2)`, class, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Dispatch.RunUpkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(doneLeft); n != 2 {
		t.Errorf("%d of 2 are left while another process runs the tasks", n)
	}
	if _, err := other.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	if err := h.Dispatch.RunUpkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(doneLeft); n != 0 {
		t.Errorf("%d are left after this process ran them", n)
	}
	if n := h.Number(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// A task that has more to do than its time allows ends without an error, and the next one runs. A task whose first batch
// takes longer has done nothing: that is an error.
func TestATaskEndsWithItsTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	batches := 0
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	endless := func(context.Context) (bool, error) { batches++; <-pace.C; return true, nil }
	if err := h.Dispatch.RunTask(t.Context(), "endless", 10*time.Second, endless); err != nil || batches == 0 {
		t.Errorf("%d batches, %v", batches, err)
	}
	stuck := func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }
	if err := h.Dispatch.RunTask(t.Context(), "stuck", 2*time.Second, stuck); err == nil {
		t.Error("a batch that is stuck is no error")
	}
	done := false
	dispatchtest.Until(t, "the task runs after it", func() bool { // the server may release the lock late
		if err := h.Dispatch.RunTask(t.Context(), "stuck", time.Minute, func(context.Context) (bool, error) { done = true; return false, nil }); err != nil {
			t.Fatal(err)
		}
		return done
	})
}

// An empty cohort stays while an unopened chunk of its tenant may name it. Later it is deleted.
func TestAnEmptyCohortIsDeletedOnceNoChunkNamesIt(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`
		INSERT INTO cohort (shard, id, tenant_id, workflow, hash, missed, empty_at)
		SELECT 7, 20000000 + n, $1, 'w', decode(md5(n::text), 'hex'), 'skip', now() - interval '2 hours' FROM generate_series(1, 10) n`, h.Tenant)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, swept_at)
		VALUES (7, $1, 0, 'small', now(), 1, 1, 1, '', '{}', now())`, h.Tenant)
	left := func() int {
		t.Helper()
		if err := h.Dispatch.RunUpkeep(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h.Number(`SELECT count(*) FROM cohort`)
	}
	if n := left(); n != 10 {
		t.Errorf("%d cohorts are left, want 10", n)
	}
	h.Exec(`DELETE FROM chunk`)
	if n := left(); n != 10 {
		t.Errorf("%d cohorts are left within the next minute, want 10", n)
	}
	h.Exec(`UPDATE cohort SET empty_at = clock_timestamp() - interval '1 hour'`)
	if n := left(); n != 0 {
		t.Errorf("%d cohorts are left, want 0", n)
	}
}
