package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/tenants"
)

// retainRevisions deletes the payloads of a tenant's versions of schedules that ended longer ago than ticks are kept, and deletes
// versions that nothing names any more.
func (r *tenantRetention) retainRevisions(ctx context.Context, tenant tenants.ID, q tenants.Quotas, now time.Time) error {
	err := countBatches(ctx, r.pool, `
		WITH over AS MATERIALIZED (
			SELECT r.ctid AS place, r.schedule_id, r.version, octet_length(r.payload) AS bytes
			FROM revision r
			WHERE r.tenant_id = $1 AND r.payload IS NOT NULL AND r.ended_at < $2
				AND NOT EXISTS (
					SELECT FROM dead_letter l
					WHERE l.tenant_id = $1 AND l.schedule_id = r.schedule_id AND l.version = r.version)
				AND NOT EXISTS (
					SELECT FROM tick t
					WHERE t.tenant_id = $1 AND t.schedule_id = r.schedule_id AND t.nominal_at <= r.ended_at AND t.version = r.version AND t.state IN ($3, $4))
			LIMIT $5
		), dropped AS (
			UPDATE revision
			SET payload = NULL, payload_kept = false
			WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT place FROM over))
			RETURNING schedule_id, version
		), freed AS (
			SELECT bytes FROM over JOIN dropped USING (schedule_id, version)
		)`+countFreed,
		tenant, ago(now, q.TickRetentionDays), int16(record.Scheduled), int16(record.Running))
	if err != nil {
		return fmt.Errorf("drop payloads of revisions: %w", err)
	}
	err = countBatches(ctx, r.pool, `
		WITH freed AS (
			DELETE FROM revision
			WHERE tenant_id = $1 AND ctid = ANY (ARRAY (
				SELECT r.ctid
				FROM revision r
				WHERE r.tenant_id = $1 AND r.ended_at < $2
					AND NOT EXISTS (
						SELECT FROM dead_letter l
						WHERE l.tenant_id = $1 AND l.schedule_id = r.schedule_id AND l.version = r.version)
				LIMIT $3))
			RETURNING `+forecast.BytesOf+` AS bytes
		)`+countFreed,
		tenant, ago(now, max(q.TickRetentionDays, q.DeadLetterRetentionDays, q.AuditRetentionDays)))
	if err != nil {
		return fmt.Errorf("delete revisions: %w", err)
	}
	return nil
}

// countFreed ends a statement that frees bytes of tenant $1, one row of freed each, and returns the number of those rows.
const countFreed = `, counted AS (
			INSERT INTO tally_delta (tenant_id, cohort_id, n)
			SELECT $1, -2, -sum(bytes) FROM freed HAVING sum(bytes) <> 0
		)
		SELECT count(*) FROM freed`

// recountLimit limits the time for adding up the rows of one tenant. The count of a larger tenant stays as it is.
const recountLimit = 20 * time.Second

// recountBytes corrects the count of a tenant's bytes.
func (r *tenantRetention) recountBytes(ctx context.Context, tenant tenants.ID) error {
	limited, cancel := context.WithTimeout(ctx, recountLimit)
	defer cancel()
	err := forecast.RecountBytes(limited, r.pool, tenant)
	if errors.Is(err, context.DeadlineExceeded) {
		r.log.Warn("the bytes of a tenant were not added up in time: the count stays as it is", "tenant", tenant)
		return nil
	}
	if err != nil {
		return fmt.Errorf("add up bytes: %w", err)
	}
	return nil
}
