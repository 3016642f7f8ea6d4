package dispatch_test

import (
	"testing"

	"github.com/carillonhq/carillon/dispatch"
)

// However many chunks wait to be opened, an opening reads few of them, though the planner was told of none.
func TestAnOpeningDoesNotReadTheBacklog(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const backlog, shards = 6400, 64
	h.exec(`ANALYZE chunk`)
	h.exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT n % $2, $1 + n % 10, 0, 'small', now(), n, n, 1, '', now(), '{}'
		FROM generate_series(1, $3::int) n`, h.tenant, shards, backlog)
	last := h.number(`SELECT max(id) FROM chunk`)
	for _, sql := range dispatch.ReadsOfOpening {
		tx, err := h.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var read int
		for _, do := range []struct {
			sql  string
			args []any
		}{{sql: `SET LOCAL plan_cache_mode = force_generic_plan`}, {sql, []any{last - 63, last}}} {
			if _, err := tx.Exec(t.Context(), do.sql, do.args...); err != nil {
				t.Fatal(err)
			}
		}
		err = tx.QueryRow(t.Context(), `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'chunk'`).Scan(&read)
		if err != nil {
			t.Fatal(err)
		}
		if read > backlog/10 {
			t.Errorf("%d rows are read of a backlog of %d by %s", read, backlog, sql)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
