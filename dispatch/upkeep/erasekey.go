package upkeep

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

const mostForgotten = 5000 // ticks or attempts in one part

// Forget deletes a part of the record of schedules that are no more: see subjects.Forget. Ticks go first, since who ends
// one writes its attempt, and holds it, under the lock of its row: what comes after the last tick is gone is nothing.
func Forget(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ids []int64) (ticks, attempts int64, done bool, err error) {
	gone, err := tx.Exec(ctx, `
		DELETE FROM tick
		WHERE (tenant_id, schedule_id, nominal_at, seq) IN (
			SELECT tenant_id, schedule_id, nominal_at, seq FROM tick WHERE tenant_id = $1 AND schedule_id = ANY($2) LIMIT $3)`,
		tenant, ids, mostForgotten)
	if err != nil {
		return 0, 0, false, fmt.Errorf("delete ticks: %w", err)
	}
	if ticks = gone.RowsAffected(); ticks > 0 {
		return ticks, 0, false, nil
	}
	gone, err = tx.Exec(ctx, `
		DELETE FROM attempt
		WHERE (tenant_id, schedule_id, nominal_at, seq, attempt) IN (
			SELECT tenant_id, schedule_id, nominal_at, seq, attempt FROM attempt WHERE tenant_id = $1 AND schedule_id = ANY($2) LIMIT $3)`,
		tenant, ids, mostForgotten)
	if err != nil {
		return 0, 0, false, fmt.Errorf("delete attempts: %w", err)
	}
	if attempts = gone.RowsAffected(); attempts == mostForgotten {
		return 0, attempts, false, nil
	}
	var b pgx.Batch
	b.Queue(`DELETE FROM held WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, ids)
	b.Queue(`DELETE FROM dead_letter WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, ids)
	b.Queue(`DELETE FROM buffered WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, ids)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return 0, 0, false, fmt.Errorf("delete what is kept apart: %w", err)
	}
	return 0, attempts, true, nil
}
