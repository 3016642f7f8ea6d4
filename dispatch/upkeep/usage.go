package upkeep

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/forecast"
)

// foldSomeUse takes deltas out and adds them to their days: of their workflow, and of the tenant. Processes that fold at
// once wait for one another, and for who erases a tenant.
func (k *Keeper) FoldSomeUse(ctx context.Context) (n int64, err error) {
	err = pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
		if err := forecast.LockTallies(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, postgres.Fold("daily_use_delta", "tenant_id, workflow, day, bytes, "+history.UseCounts)+`, added AS (
				INSERT INTO daily_use AS u (tenant_id, workflow, day, `+history.UseCounts+`, bytes)
				SELECT tenant_id, COALESCE(workflow, ''), day, `+history.UseSums+`, sum(bytes)
				FROM taken
				GROUP BY GROUPING SETS ((tenant_id, workflow, day), (tenant_id, day))
				ORDER BY 1, 2, 3
				ON CONFLICT (tenant_id, workflow, day) DO UPDATE
				SET ticks = u.ticks + excluded.ticks, succeeded = u.succeeded + excluded.succeeded, failed = u.failed + excluded.failed,
					cancelled = u.cancelled + excluded.cancelled, skipped = u.skipped + excluded.skipped, missed = u.missed + excluded.missed,
					bytes = u.bytes + excluded.bytes
			)
			SELECT count(*) FROM taken`, history.MostUse).Scan(&n)
	})
	return n, err
}
