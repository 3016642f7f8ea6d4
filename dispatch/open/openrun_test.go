package open_test

import (
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules"
)

func TestSmallChunksOfASweepAreOpenedTogether(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	chunks, owners := h.SweptRun(5)
	h.Exec(`UPDATE tenant SET halted_at = clock_timestamp() WHERE id = $1`, owners[1])
	h.Exec(`UPDATE schedule SET status = 'paused', cohort_id = NULL, paused_at = clock_timestamp() WHERE tenant_id = $1`, owners[2])
	h.Exec(`DELETE FROM workflow WHERE tenant_id = $1`, owners[3])
	var openers sync.WaitGroup
	for range 3 { // a late opener finds nothing to do
		openers.Go(func() {
			if err := h.Dispatch.OpenRun(t.Context(), chunks[0], chunks[len(chunks)-1]); err != nil {
				t.Error(err)
			}
		})
	}
	openers.Wait()
	for i, want := range []string{"1 0", "5 2", "5 2", "5 8", "1 0"} { // running; skipped: paused, no_workflow
		var got string
		err := h.Pool.QueryRow(t.Context(), `SELECT concat(state, ' ', reason) FROM tick WHERE tenant_id = $1`, owners[i]).Scan(&got)
		if err != nil || got != want {
			t.Errorf("the tick of tenant %d: got %s, %v, want %s", i, got, err, want)
		}
	}
	if n := h.Number(`SELECT count(*) FROM chunk WHERE epoch = 1 AND opened_at IS NOT NULL AND done_at IS NOT NULL`); n != len(chunks) {
		t.Errorf("%d chunks are open and done, want %d", n, len(chunks))
	}
	if n := h.Number(`SELECT count(*) FROM tick`) + h.Number(`SELECT sum(ticks) FROM tick_time`); n != 2*len(chunks) {
		t.Errorf("there are %d ticks and entries of the index by time, want %d", n, 2*len(chunks))
	}
	if n := h.Number(`SELECT count(DISTINCT tenant_id) FROM ready WHERE ticks = 1`); n != 2 {
		t.Errorf("ticks of %d tenants wait for workers, want 2", n)
	}
}

// A late job also opens the chunks behind its own: first tries of the same shard and lane, as many as one job may open.
func TestALateJobReachesAsFarAsAJobMay(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows, owner, opened_at, done_at)
		SELECT shard, $1, kind, lane, now(), 1, 1, ticks, '', now(), '{}', CASE WHEN open THEN 1 END, CASE WHEN open THEN now() END, CASE WHEN open THEN now() END
		FROM (VALUES
			(7, 0, 'small', 1, false), (8, 0, 'small', 1, false), (7, 0, 'large', 1, false), (7, 0, 'small', 998, false), -- the last that fits
			(7, 0, 'small', 2, false), (7, 1, 'catchup', 1, false), (7, 0, 'catchup', 1, false), (7, 0, 'catchup', 1, true)) AS c (shard, kind, lane, ticks, open)`, h.Tenant)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 9, $1, 0, 'small', now(), 1, 1, 1, '', now(), '{}' FROM generate_series(1, 100)`, h.Tenant)
	first := h.Number(`SELECT min(id) FROM chunk`)
	for from, want := range map[int]int{0: 3, 2: 0, 3: 4, 4: 4, 5: 0, 6: 6, 7: 0, 8: 8 + 63} {
		got, err := h.Dispatch.Reach(t.Context(), int64(first+from))
		if err != nil {
			t.Fatal(err)
		}
		if want > 0 {
			want += first
		}
		if int(got) != want {
			t.Errorf("from chunk %d on it reaches to %d, want %d", from, int(got)-first, want-first)
		}
	}
}

// A late job whose chunk holds later tries opens that chunk, and leaves first tries behind it to their own job.
func TestALateJobOpensItsOwnChunk(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 7, $1, kind, 'catchup', now(), 1, 1, 1, '\x00', now(), '{}'
		FROM unnest(ARRAY[1, 0, 0, 1]) AS kind`, h.Tenant)
	ids := h.Chunks()
	for i, want := range []int{3, 1, 1, 0} { // left after the jobs of the chunks so far; the second job opens the third chunk too
		if err := h.Dispatch.WorkLate(t.Context(), ids[i]); err != nil {
			t.Fatal(err)
		}
		if left := h.Chunks(); len(left) != want {
			t.Errorf("after the job of chunk %d, chunks %v are unopened, want %d of %v", ids[i], left, want, ids)
		}
	}
}

// A late job reads no more of a long backlog than it can open, though the planner expects an empty table.
func TestALateJobReadsLittleOfTheBacklog(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`ANALYZE chunk`)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 7, $1, 0, 'small', now(), n, n, 1, '', now(), '{}' FROM generate_series(1, $2::int) n`, h.Tenant, backlog)
	sql, args := dispatchtest.ReachOf(int64(h.Number(`SELECT min(id) FROM chunk`)))
	readsFew(h, sql, args...)
}

func TestChunkThatCannotBeOpenedKeepsNoOtherOfItsRun(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	chunks, _ := h.SweptRun(3)
	h.Exec(`UPDATE chunk SET items = '\xff' WHERE id = $1`, chunks[1])
	if err := h.Dispatch.OpenRun(t.Context(), chunks[0], chunks[2]); err == nil {
		t.Error("nothing was said of a broken chunk")
	}
	if left := h.Chunks(); len(left) != 1 || left[0] != chunks[1] {
		t.Errorf("chunks %v are unopened, want %d", left, chunks[1])
	}
}

func TestRunOfOneSchedulesTicksIsOpenedInOrder(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	ids := h.SweptThrice("ordered")
	if err := h.Dispatch.OpenRun(t.Context(), ids[0], ids[len(ids)-1]); err != nil {
		t.Fatal(err)
	}
	ticks := h.History("ordered", "k")
	if left := h.Chunks(); len(left) > 0 || len(ticks) != len(ids) {
		t.Fatalf("chunks %v are unopened, and there are %d ticks of %d", left, len(ticks), len(ids))
	}
	for i, one := range ticks[1:] {
		if one.LastTimestamp == nil || !one.LastTimestamp.Equal(ticks[i].Timestamp) || *one.Occurrence != int64(i+2) {
			t.Errorf("tick %d: got %+v after %s", i+1, one, ticks[i].Timestamp)
		}
	}
}

// A tick that was due before its schedule was deleted stays the deleted schedule's, and is cancelled, though the key has another
// schedule when it is opened.
func TestATickOfADeletedScheduleIsNotThatOfItsKeysNext(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	due := len(h.SweptThrice("w"))
	first := h.Number(`SELECT id FROM schedule`)
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	h.Put("w", "k", dispatchtest.Rarely("skip"))
	for _, id := range h.Chunks() {
		if err := h.Dispatch.Open(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	cancelled := h.Number(`SELECT count(*) FROM tick WHERE schedule_id = $1 AND version = 1 AND state = $2`, first, record.Cancelled)
	if all := h.Number(`SELECT count(*) FROM tick`); cancelled < due || all != cancelled {
		t.Errorf("of %d ticks %d were cancelled as the deleted schedule's, and %d were due", all, cancelled, due)
	}
}
