package dispatch_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// sweptRun has one schedule of each of n tenants come due in one shard, and sweeps it: a chunk each, which share a job.
func (h *house) sweptRun(n int) (chunks []int64, owners []tenants.ID) {
	h.t.Helper()
	if err := h.dispatch.Register(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	for i := range n {
		owner := h.quota(fmt.Sprint("tenant-", i), 50_000)
		if _, _, err := h.schedules.Put(postgres.ForTenant(h.t.Context(), int32(owner)), policy.Name{Tenant: owner, Workflow: "w", Key: "k"}, daily(i), "tester", version.Precondition{}); err != nil {
			h.t.Fatal(err)
		}
		h.backdate(owner)
		owners = append(owners, owner)
	}
	h.exec(`UPDATE schedule SET shard = 7`)
	h.exec(`UPDATE cohort SET shard = 7`)
	h.exec(`UPDATE cohort_timing SET shard = 7`)
	if _, err := h.dispatch.SweepOnce(h.t.Context(), 7); err != nil {
		h.t.Fatal(err)
	}
	chunks = h.chunks()
	if jobs := h.number(`SELECT count(*) FROM river_job WHERE kind = 'open'`); len(chunks) != n || jobs != 1 {
		h.t.Fatalf("%d chunks and %d jobs of %d tenants", len(chunks), jobs, n)
	}
	return chunks, owners
}

func TestSmallChunksOfASweepAreOpenedTogether(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	chunks, owners := h.sweptRun(5)
	h.exec(`UPDATE tenant SET halted_at = clock_timestamp() WHERE id = $1`, owners[1])
	h.exec(`UPDATE schedule SET status = 'paused', cohort_id = NULL, paused_at = clock_timestamp() WHERE tenant_id = $1`, owners[2])
	h.exec(`DELETE FROM workflow WHERE tenant_id = $1`, owners[3])
	var openers sync.WaitGroup
	for range 3 { // who comes late finds nothing to do
		openers.Go(func() {
			if err := h.dispatch.OpenRun(t.Context(), chunks[0], chunks[len(chunks)-1]); err != nil {
				t.Error(err)
			}
		})
	}
	openers.Wait()
	for i, want := range []string{"1 0", "5 2", "5 2", "5 8", "1 0"} { // running; skipped: paused, no_workflow
		var got string
		err := h.pool.QueryRow(t.Context(), `SELECT concat(state, ' ', reason) FROM tick WHERE tenant_id = $1`, owners[i]).Scan(&got)
		if err != nil || got != want {
			t.Errorf("the tick of tenant %d: got %s, %v, want %s", i, got, err, want)
		}
	}
	if n := h.number(`SELECT count(*) FROM chunk WHERE epoch = 1 AND opened_at IS NOT NULL AND done_at IS NOT NULL`); n != len(chunks) {
		t.Errorf("%d chunks are open and done, want %d", n, len(chunks))
	}
	if n := h.number(`SELECT count(*) FROM tick`) + h.number(`SELECT sum(ticks) FROM roll`); n != 2*len(chunks) {
		t.Errorf("there are %d ticks and entries in the roll, want %d", n, 2*len(chunks))
	}
	if n := h.number(`SELECT count(DISTINCT tenant_id) FROM ready WHERE ticks = 1`); n != 2 {
		t.Errorf("ticks of %d tenants wait for workers, want 2", n)
	}
}

// A late job also opens the chunks behind its own: first tries of the same shard and lane, as many as one job may open.
func TestALateJobReachesAsFarAsAJobMay(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows, owner, opened_at, done_at)
		SELECT shard, $1, kind, lane, now(), 1, 1, ticks, '', now(), '{}', CASE WHEN open THEN 1 END, CASE WHEN open THEN now() END, CASE WHEN open THEN now() END
		FROM (VALUES
			(7, 0, 'small', 1, false), (8, 0, 'small', 1, false), (7, 0, 'large', 1, false), (7, 0, 'small', 998, false), -- the last that fits
			(7, 0, 'small', 2, false), (7, 1, 'catchup', 1, false), (7, 0, 'catchup', 1, false), (7, 0, 'catchup', 1, true)) AS c (shard, kind, lane, ticks, open)`, h.tenant)
	h.exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 9, $1, 0, 'small', now(), 1, 1, 1, '', now(), '{}' FROM generate_series(1, 100)`, h.tenant)
	first := h.number(`SELECT min(id) FROM chunk`)
	for from, want := range map[int]int{0: 3, 2: 0, 3: 4, 4: 4, 5: 0, 6: 6, 7: 0, 8: 8 + 63} {
		got, err := h.dispatch.Reach(t.Context(), int64(first+from))
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
	h := newHouse(t)
	h.exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 7, $1, kind, 'catchup', now(), 1, 1, 1, '\x00', now(), '{}'
		FROM unnest(ARRAY[1, 0, 0, 1]) AS kind`, h.tenant)
	ids := h.chunks()
	for i, want := range []int{3, 1, 1, 0} { // left after the jobs of the chunks so far; the second job opens the third chunk too
		if err := h.dispatch.WorkLate(t.Context(), ids[i]); err != nil {
			t.Fatal(err)
		}
		if left := h.chunks(); len(left) != want {
			t.Errorf("after the job of chunk %d, chunks %v are unopened, want %d of %v", ids[i], left, want, ids)
		}
	}
}

// A late job reads no more of a long backlog than it can open, though the planner expects an empty table.
func TestALateJobReadsLittleOfTheBacklog(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`ANALYZE chunk`)
	h.exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 7, $1, 0, 'small', now(), n, n, 1, '', now(), '{}' FROM generate_series(1, $2::int) n`, h.tenant, backlog)
	sql, args := reachOf(int64(h.number(`SELECT min(id) FROM chunk`)))
	h.readsFew(sql, args...)
}

func TestChunkThatCannotBeOpenedKeepsNoOtherOfItsRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	chunks, _ := h.sweptRun(3)
	h.exec(`UPDATE chunk SET items = '\xff' WHERE id = $1`, chunks[1])
	if err := h.dispatch.OpenRun(t.Context(), chunks[0], chunks[2]); err == nil {
		t.Error("nothing was said of a broken chunk")
	}
	if left := h.chunks(); len(left) != 1 || left[0] != chunks[1] {
		t.Errorf("chunks %v are unopened, want %d", left, chunks[1])
	}
}

func TestRunOfOneSchedulesTicksIsOpenedInOrder(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ids := h.sweptThrice("ordered")
	if err := h.dispatch.OpenRun(t.Context(), ids[0], ids[len(ids)-1]); err != nil {
		t.Fatal(err)
	}
	ticks := h.history("ordered", "k")
	if left := h.chunks(); len(left) > 0 || len(ticks) != len(ids) {
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
	h := newHouse(t)
	due := len(h.sweptThrice("w"))
	first := h.number(`SELECT id FROM schedule`)
	if err := h.schedules.Delete(t.Context(), h.tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	h.put("w", "k", rarely("skip"))
	for _, id := range h.chunks() {
		if err := h.dispatch.Open(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	cancelled := h.number(`SELECT count(*) FROM tick WHERE schedule_id = $1 AND version = 1 AND state = $2`, first, record.Cancelled)
	if all := h.number(`SELECT count(*) FROM tick`); cancelled < due || all != cancelled {
		t.Errorf("of %d ticks %d were cancelled as the deleted schedule's, and %d were due", all, cancelled, due)
	}
}
