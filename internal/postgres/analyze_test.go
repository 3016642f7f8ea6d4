package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// Bulk upserts that store their first batches at the same time all ask for statistics. One of them collects these, and the others go on.
func TestCallersAtTheSameTimeAnalyzeATableOnce(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	want := map[string]int{}
	for i := range 6 {
		table := fmt.Sprintf("grown_%d", i)
		_, err := pool.Exec(t.Context(), `
			CREATE TABLE `+table+` (n int, label text) WITH (autovacuum_enabled = false);
			ALTER TABLE `+table+` OWNER TO `+postgres.EngineRole+`;
			INSERT INTO `+table+` SELECT n, 'row ' || n FROM generate_series(1, 30000) n`)
		if err != nil {
			t.Fatal(err)
		}
		want[table] = 1
	}

	var callers errgroup.Group
	for range 8 {
		callers.Go(func() error { return postgres.AnalyzeNew(t.Context(), pool) })
	}
	if err := callers.Wait(); err != nil {
		t.Fatal(err)
	}
	rows, _ := pool.Query(t.Context(), `SELECT relname::text, analyze_count FROM pg_stat_user_tables WHERE relname LIKE 'grown%'`) // ForEachRow reports the error
	var table string
	var n int
	_, err := pgx.ForEachRow(rows, []any{&table, &n}, func() error {
		if n != want[table] {
			t.Errorf("%s was analyzed %d times", table, n)
		}
		delete(want, table)
		return nil
	})
	if err != nil || len(want) > 0 {
		t.Errorf("%v; the statistics lack %v", err, want)
	}
}
