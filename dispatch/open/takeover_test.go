package open_test

import (
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
