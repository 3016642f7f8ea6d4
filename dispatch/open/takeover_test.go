package open_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// However many chunks wait to be opened, an opening reads few of them, even if the planner expects an empty table.
func TestAnOpeningDoesNotReadTheBacklog(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`ANALYZE chunk`)
	h.Exec(manyChunks, h.Tenant, nil)
	last := h.Number(`SELECT max(id) FROM chunk`)
	for _, sql := range dispatchtest.ReadsOfOpening {
		readsFew(h, sql, last-63, last, 0, []int64{})
	}
}

// However many chunks are done, taking over what a dead process had open reads few of them.
func TestTakingOverDoesNotReadWhatIsDone(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(manyChunks, h.Tenant, 77)
	h.Exec(`ANALYZE chunk`)
	h.Exec(`UPDATE chunk SET done_at = NULL WHERE id = (SELECT max(id) FROM chunk)`)
	readsFew(h, dispatchtest.OrphanOwners)
	readsFew(h, dispatchtest.TakeOwnedBy, 78, []int64{77}, 50, []time.Time{{}})
	if taken := h.Number(`SELECT count(*) FROM chunk WHERE owner = 78`); taken != 1 {
		t.Errorf("%d chunks were taken over, want the one that is open", taken)
	}
}

// A tick that was held, and is in a chunk that waits to be opened, is not sent by the take-over of the chunk that it was in before.
func TestATakeOverLeavesATickToItsNextChunk(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("overlap", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) })
	h.Put("overlap", "k", dispatchtest.Rarely("allow_all"))
	h.Trigger()
	sweep := func() {
		for _, shard := range h.DueShards(t) {
			if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
		}
	}
	sweep()
	// A process opens the chunk, holds the tick, as its endpoint has too much to do, and dies before it marks the chunk done.
	h.Exec(`UPDATE tick SET chunk_id = (SELECT id FROM chunk)`)
	h.Exec(`UPDATE chunk SET opened_at = now() - interval '1 minute', owner = 77`)
	h.Exec(`INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at)
		SELECT tenant_id, schedule_id, nominal_at, seq, attempt, shard, 'endpoint', now() FROM tick`)
	sweep()
	h.Dispatch.Pusher.Start()
	t.Cleanup(func() { h.Dispatch.Pusher.Close(context.Background()) })
	if err := h.Dispatch.TakeOwned(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Dispatch.Open(t.Context(), int64(h.Number(`SELECT max(id) FROM chunk`))); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "the tick has ended", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE ended_at IS NOT NULL`) == 1 })
	dispatchtest.Until(t, "the chunks are done", func() bool { return h.Number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
	if sent := c.Caught(); len(sent) != 1 {
		t.Errorf("it was sent %d times", len(sent))
	}
}

const backlog = 6400

// manyChunks are unopened chunks of some tenants, or what $2 opened and has done.
const manyChunks = `
	INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows, owner, opened_at, done_at)
	SELECT n % 64, $1 + n % 10, 0, 'small', now(), n, n, 1, '', now(), '{}', $2::bigint, CASE WHEN $2 > 0 THEN now() END, CASE WHEN $2 > 0 THEN now() END
	FROM generate_series(1, 6400) n`

// readsFew runs a statement, and checks that it reads at most a tenth of the chunks.
func readsFew(h *dispatchtest.Carillon, sql string, args ...any) {
	h.T.Helper()
	ctx := h.T.Context()
	tx, err := h.Pool.Begin(ctx)
	if err != nil {
		h.T.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // it may be over
	if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
		h.T.Fatal(err)
	}
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		h.T.Fatal(err)
	}
	var read int
	err = tx.QueryRow(ctx, `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'chunk'`).Scan(&read)
	if err != nil {
		h.T.Fatal(err)
	}
	if read > backlog/10 {
		h.T.Errorf("%d rows are read, where there are %d chunks, by %s", read, backlog, sql)
	}
	if err := tx.Commit(ctx); err != nil {
		h.T.Fatal(err)
	}
}
