package postgres

import (
	"context"
	"fmt"
)

// AnalyzeNew runs ANALYZE on tables that have grown and have no statistics yet. Without it the planner assumes that a tenant has a
// few rows, until autovacuum runs the first ANALYZE, which may take a minute. Only the owner of a table may analyze it, so the
// database function analyze_new does the work.
func AnalyzeNew(ctx context.Context, db DB) error {
	if _, err := db.Exec(ctx, `SELECT analyze_new()`); err != nil {
		return fmt.Errorf("analyze new tables: %w", err)
	}
	return nil
}
