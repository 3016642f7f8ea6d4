package postgres

import (
	"context"
	"fmt"
)

// AnalyzeNew has the planner learn of tables that have grown and that it knows nothing of: until the first ANALYZE, which
// autovacuum may take a minute to come to, it thinks that a tenant has a handful of rows, and plans for them. The
// function is the database's own, since only the owner of a table may do it.
func AnalyzeNew(ctx context.Context, db DB) error {
	if _, err := db.Exec(ctx, `SELECT analyze_new()`); err != nil {
		return fmt.Errorf("analyze new tables: %w", err)
	}
	return nil
}
