package dispatch

import (
	"context"
	"fmt"
)

// completeSome marks up to mostCleared schedules that have no nominal time left as completed: the members of exhausted
// cohorts, and those past their own last time. A schedule with a limit of ticks stays active while a chunk of its ticks is
// unopened, because a tick announces the following ones when it is opened.
//
// It locks each schedule together with its cohort and its membership,
// and PostgreSQL checks the conditions of "over" again on the newest version of a row that it locks. A schedule that
// another transaction changes at the same time is left for the next run, so this statement waits for no lock and is part
// of no deadlock.
func (d *Dispatch) completeSome(ctx context.Context) (n int64, err error) {
	done, err := d.Pool.Exec(ctx, `
		WITH found AS (
			(SELECT c.tenant_id, c.shard, c.id AS cohort_id, m.spread, m.schedule_id
			FROM cohort c
			JOIN member m ON m.cohort_id = c.id AND m.tenant_id = c.tenant_id
			WHERE c.due_at IS NULL AND c.empty_at IS NULL AND c.run_at IS NULL AND (NOT c.delay OR c.over)
			LIMIT $1)
			UNION
			(SELECT c.tenant_id, c.shard, c.id, m.spread, m.schedule_id
			FROM member m
			JOIN schedule s ON s.tenant_id = m.tenant_id AND s.id = m.schedule_id
			JOIN cohort c ON c.shard = s.shard AND c.id = m.cohort_id AND c.tenant_id = m.tenant_id
			WHERE m.until_at < (SELECT clock_timestamp()) AND c.run_at IS NULL AND (c.next_at IS NULL OR c.next_at > m.until_at)
			LIMIT $1)
		), over AS (
			SELECT s.tenant_id, s.id, m.cohort_id, m.spread
			FROM found f
			JOIN schedule s ON s.tenant_id = f.tenant_id AND s.id = f.schedule_id AND s.cohort_id = f.cohort_id
			JOIN cohort c ON c.shard = f.shard AND c.id = f.cohort_id AND c.tenant_id = f.tenant_id
			JOIN member m ON m.cohort_id = f.cohort_id AND m.spread = f.spread AND m.schedule_id = f.schedule_id AND m.tenant_id = f.tenant_id
			WHERE c.run_at IS NULL
				AND (c.due_at IS NULL AND c.empty_at IS NULL AND (NOT c.delay OR c.over)
					OR m.until_at < (SELECT clock_timestamp()) AND (c.next_at IS NULL OR c.next_at > m.until_at))
				AND (m.until_at IS NULL OR NOT EXISTS (
					SELECT FROM chunk k
					WHERE k.shard = f.shard AND k.tenant_id = m.tenant_id AND k.opened_at IS NULL AND k.nominal_at <= m.until_at))
			ORDER BY s.tenant_id, s.id
			LIMIT $1
			FOR UPDATE OF s, c, m SKIP LOCKED
		), gone AS (
			DELETE FROM member m
			USING over o
			WHERE m.cohort_id = o.cohort_id AND m.spread = o.spread AND m.schedule_id = o.id AND m.tenant_id = o.tenant_id
		)
		UPDATE schedule s
		SET status = 'completed', cohort_id = NULL, paused_at = NULL, paused_until = NULL
		FROM over o
		WHERE s.tenant_id = o.tenant_id AND s.id = o.id`, mostCleared)
	if err != nil {
		return 0, fmt.Errorf("complete schedules: %w", err)
	}
	return done.RowsAffected(), nil
}
