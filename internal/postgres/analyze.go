package postgres

import (
	"context"
	"fmt"
)

// AnalyzeNew runs ANALYZE on tables above 128 KiB that have no statistics yet, or have grown fourfold since their last ones. Without it
// the planner assumes that a tenant has a few rows, until autovacuum runs ANALYZE, which may take a minute; and a generic plan that was
// made for few rows stays until then. Only the owner of a table may analyze it, so the database function analyze_new does the work. While another
// call analyzes tables, AnalyzeNew does nothing: calls at the same time would analyze each table several times.
func AnalyzeNew(ctx context.Context, db DB) error {
	if _, err := db.Exec(ctx, `SELECT analyze_new()`); err != nil {
		return fmt.Errorf("analyze new tables: %w", err)
	}
	return nil
}
