package dispatch_test

import (
	"testing"
	"time"
)

// However many chunks wait to be opened, an opening reads few of them, though the planner was told of none.
func TestAnOpeningDoesNotReadTheBacklog(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`ANALYZE chunk`)
	h.exec(manyChunks, h.tenant, nil)
	last := h.number(`SELECT max(id) FROM chunk`)
	for _, sql := range readsOfOpening {
		h.readsFew(sql, last-63, last, 0, []int64{})
	}
}

// However many chunks are done, taking over what a dead process had open reads few of them.
func TestTakingOverDoesNotReadWhatIsDone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(manyChunks, h.tenant, 77)
	h.exec(`ANALYZE chunk`)
	h.exec(`UPDATE chunk SET done_at = NULL WHERE id = (SELECT max(id) FROM chunk)`)
	h.readsFew(orphanOwners)
	h.readsFew(takeOwnedBy, 78, []int64{77}, 50, []time.Time{{}})
	if taken := h.number(`SELECT count(*) FROM chunk WHERE owner = 78`); taken != 1 {
		t.Errorf("%d chunks were taken over, want the one that is open", taken)
	}
}

const backlog = 6400

// manyChunks are unopened chunks of some tenants, or what $2 opened and has done.
const manyChunks = `
	INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows, owner, opened_at, done_at)
	SELECT n % 64, $1 + n % 10, 0, 'small', now(), n, n, 1, '', now(), '{}', $2::bigint, CASE WHEN $2 > 0 THEN now() END, CASE WHEN $2 > 0 THEN now() END
	FROM generate_series(1, 6400) n`

// readsFew runs a statement, and holds what it reads of chunks against how many there are.
func (h *house) readsFew(sql string, args ...any) {
	h.t.Helper()
	ctx := h.t.Context()
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // it may be over
	if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
		h.t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		h.t.Fatal(err)
	}
	var read int
	err = tx.QueryRow(ctx, `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'chunk'`).Scan(&read)
	if err != nil {
		h.t.Fatal(err)
	}
	if read > backlog/10 {
		h.t.Errorf("%d rows are read, where there are %d chunks, by %s", read, backlog, sql)
	}
	if err := tx.Commit(ctx); err != nil {
		h.t.Fatal(err)
	}
}
