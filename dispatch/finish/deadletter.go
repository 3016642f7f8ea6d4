package finish

import (
	"context"
	"fmt"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// insertDeadLetters writes dead letters of ticks that have just failed for good, and notes the failures for the tenant's events.
func insertDeadLetters(ctx context.Context, tx pgx.Tx, tenant tenants.ID, dead record.Keys) error {
	if len(dead.IDs) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		WITH buried AS (
			INSERT INTO dead_letter (tenant_id, `+record.DeadColumns+`)
			SELECT t.tenant_id, t.schedule_id, t.nominal_at, t.seq, COALESCE(s.workflow, r.workflow), COALESCE(s.key, r.key),
				CASE WHEN s.id IS NULL THEN r.subject ELSE s.subject END, t.ended_at,
				t.fired_at, t.last_at, t.until_at, t.occurrence, t.cohort_id, t.version, t.missed_count, t.shard, t.attempt, t.cause, t.dst, t.payload, t.error, t.trace
			FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
			JOIN `+record.TheTick+` ON t.state = $8
			LEFT JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id AND s.version = t.version
			LEFT JOIN revision r ON r.tenant_id = t.tenant_id AND r.schedule_id = t.schedule_id AND r.version = t.version
			WHERE s.id IS NOT NULL OR r.version IS NOT NULL
			ON CONFLICT DO NOTHING
			RETURNING workflow, schedule_id, nominal_at, seq
		)
		INSERT INTO notice_delta (tenant_id, event, cause, n, schedule_id, nominal_at, seq)
		SELECT DISTINCT ON (workflow) $1, $9::text, workflow, count(*) OVER (PARTITION BY workflow), schedule_id, nominal_at, seq
		FROM buried
		WHERE `+tenants.Subscribed("$1", "$9")+`
		ORDER BY workflow, nominal_at DESC`,
		tenant, dead.IDs, dead.At, dead.Seqs, dead.Tries, dead.From, dead.Through, int16(record.Failed), tenants.TickFailed)
	if err != nil {
		return fmt.Errorf("keep dead letters: %w", err)
	}
	return nil
}
