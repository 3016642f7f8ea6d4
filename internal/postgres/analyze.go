package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// AnalyzeNew has the planner learn of tables that have grown and that it knows nothing of: until the first ANALYZE, which
// autovacuum may take a minute to come to, it thinks that a tenant has a handful of rows, and plans for them.
func AnalyzeNew(ctx context.Context, db DB) error {
	rows, err := db.Query(ctx, `
		SELECT oid::regclass::text
		FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND reltuples < 0 AND pg_relation_size(oid) > 131072`)
	if err != nil {
		return fmt.Errorf("look for new tables: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for new tables: %w", err)
	}
	for _, name := range names {
		if _, err := db.Exec(ctx, "ANALYZE (SKIP_LOCKED) "+name); err != nil { // quoted by regclass
			return fmt.Errorf("analyze %s: %w", name, err)
		}
	}
	return nil
}
