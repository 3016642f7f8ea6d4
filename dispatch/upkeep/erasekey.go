package upkeep

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

const mostForgotten = 5000 // ticks or attempts in one part

// Forget deletes a part of the record of deleted schedules: see subjects.Forget. done reports that nothing is left. Ticks go first: a
// transaction that ends a tick writes its attempt and its row of delayed under the lock of the tick's row, so that none comes after the
// last tick.
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
	b.Queue(`DELETE FROM delayed WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, ids)
	b.Queue(`DELETE FROM dead_letter WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, ids)
	b.Queue(`DELETE FROM buffered WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, ids)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return 0, 0, false, fmt.Errorf("delete what is kept apart: %w", err)
	}
	return 0, attempts, true, nil
}
