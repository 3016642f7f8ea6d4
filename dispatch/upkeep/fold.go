package upkeep

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/forecast"
)

// folding adds up what other transactions counted in rows of their own.
type folding struct{ pool *pgxpool.Pool }

// addUpUse adds up to history.MostUse deltas to their days and to the series, for the workflow and for the tenant, deletes them, and
// returns how many. Processes that fold at the same time wait for each other, and for an erasure of a tenant.
func (f *folding) addUpUse(ctx context.Context) (n int64, err error) {
	err = pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
		if err := forecast.LockTallies(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, postgres.Fold("daily_use_delta", "tenant_id, workflow, day, minute, bucket, reason, due, fired, retried, first_due, bytes, "+history.UseCounts)+`, added AS (
				INSERT INTO daily_use AS u (tenant_id, workflow, day, `+history.UseCounts+`, bytes)
				SELECT tenant_id, COALESCE(workflow, ''), day, `+history.UseSums+`, sum(bytes)
				FROM taken
				GROUP BY GROUPING SETS ((tenant_id, workflow, day), (tenant_id, day))
				ORDER BY 1, 2, 3
				ON CONFLICT (tenant_id, workflow, day) DO UPDATE
				SET ticks = u.ticks + excluded.ticks, succeeded = u.succeeded + excluded.succeeded, failed = u.failed + excluded.failed,
					cancelled = u.cancelled + excluded.cancelled, skipped = u.skipped + excluded.skipped, missed = u.missed + excluded.missed,
					bytes = u.bytes + excluded.bytes
			), counted AS (
				INSERT INTO use_series AS u (tenant_id, step, workflow, endpoint, at, bucket, reason, first_due, `+history.SeriesCounts+`)
				SELECT tenant_id, step, COALESCE(workflow, ''), COALESCE(endpoint, ''), at, bucket, reason, min(first_due), `+history.SeriesSums+`
				FROM (
					SELECT t.*, s.step, s.at, COALESCE(w.endpoint, '') AS endpoint
					FROM taken t
					LEFT JOIN LATERAL (SELECT endpoint FROM workflow WHERE tenant_id = t.tenant_id AND name = t.workflow OFFSET 0) w ON true
					CROSS JOIN LATERAL (VALUES (1::smallint, t.minute), (60::smallint, date_bin('1 hour', t.minute, '2000-01-01Z'))) s (step, at)
					WHERE t.due + t.fired + t.succeeded + t.failed + t.cancelled + t.skipped + t.retried + t.missed <> 0
				) t
				GROUP BY GROUPING SETS ((tenant_id, step, at, bucket, reason, workflow, endpoint), (tenant_id, step, at, bucket, reason, endpoint),
					(tenant_id, step, at, bucket, reason))
				HAVING GROUPING(workflow) = 0 OR GROUPING(endpoint) = 1 OR endpoint <> ''
				ORDER BY 1, 2, 3, 4, 5, 6, 7
				ON CONFLICT (tenant_id, step, workflow, endpoint, at, bucket, reason) DO UPDATE
				SET due = u.due + excluded.due, fired = u.fired + excluded.fired, succeeded = u.succeeded + excluded.succeeded, failed = u.failed + excluded.failed,
					cancelled = u.cancelled + excluded.cancelled, skipped = u.skipped + excluded.skipped, retried = u.retried + excluded.retried,
					missed = u.missed + excluded.missed, first_due = LEAST(u.first_due, excluded.first_due)
			)
			SELECT count(*) FROM taken`, history.MostUse).Scan(&n)
	})
	return n, err
}
