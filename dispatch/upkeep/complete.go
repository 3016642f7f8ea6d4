package upkeep

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// completion marks schedules that have come to their end.
type completion struct {
	pool     *pgxpool.Pool
	unopened *chunk.Unopened
	horizon  *cluster.Horizon
}

// completeSome marks up to record.MostCleared schedules without a nominal time left as completed, and returns how many. These are the
// members of exhausted cohorts, and those past their own last time. A schedule with a limit of ticks stays active while a chunk of its
// ticks is unopened, because the opening of a tick announces the next ones.
func (c *completion) completeSome(ctx context.Context) (n int64, err error) {
	err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		floor, stuck := c.unopened.From(c.horizon)
		rows, err := tx.Query(ctx, lockCompleted, record.MostCleared, floor, stuck)
		if err != nil {
			return err
		}
		var owners []int32
		var ids, cohorts, phases []int64
		var owner int32
		var id, cohort, phase int64
		if _, err := pgx.ForEachRow(rows, []any{&owner, &id, &cohort, &phase}, func() error {
			owners, ids, cohorts, phases = append(owners, owner), append(ids, id), append(cohorts, cohort), append(phases, phase)
			return nil
		}); err != nil || len(ids) == 0 {
			return err
		}
		n = int64(len(ids))
		var b pgx.Batch
		b.Queue(`
			DELETE FROM member m
			USING unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[]) AS o (tenant_id, id, cohort_id, phase)
			WHERE m.cohort_id = o.cohort_id AND m.phase = o.phase AND m.schedule_id = o.id AND m.tenant_id = o.tenant_id`,
			owners, ids, cohorts, phases)
		b.Queue(`
			UPDATE schedule s
			SET status = 'completed', cohort_id = NULL, paused_at = NULL, paused_until = NULL
			FROM unnest($1::int[], $2::bigint[]) AS o (tenant_id, id)
			WHERE s.tenant_id = o.tenant_id AND s.id = o.id`, owners, ids)
		b.Queue(`
			INSERT INTO notice_delta (tenant_id, event, cause, n, schedule_id)
			SELECT s.tenant_id, $3::text, s.workflow, count(*), min(s.id)
			FROM (SELECT n.id FROM (SELECT DISTINCT id FROM unnest($1::int[]) AS d (id)) n WHERE `+tenants.SubscribedEach("n.id", "$3::text")+` OFFSET 0) t
			CROSS JOIN LATERAL (SELECT o.id FROM unnest($1::int[], $2::bigint[]) AS o (tenant_id, id) WHERE o.tenant_id = t.id OFFSET 0) o
			CROSS JOIN LATERAL (SELECT tenant_id, id, workflow FROM schedule WHERE tenant_id = t.id AND id = o.id OFFSET 0) s
			GROUP BY s.tenant_id, s.workflow`, owners, ids, tenants.ScheduleCompleted)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("complete schedules: %w", err)
	}
	return n, nil
}

// lockCompleted locks up to $1 schedules that have no nominal time left, each with its membership and its cohort. PostgreSQL checks
// the conditions again on the newest version of a row that it locks. The statement waits for no lock, so that it is part of no
// deadlock: it leaves a schedule that another transaction changes for the next run. A subquery that locks can only be joined by a
// nested loop, so each reads one row of an index.
var lockCompleted = `
	SELECT s.tenant_id, s.id, f.cohort_id, m.phase
	FROM (
		(SELECT c.tenant_id, c.shard, c.id AS cohort_id, m.phase, m.schedule_id
		FROM cohort c
		CROSS JOIN LATERAL (SELECT phase, schedule_id FROM member WHERE cohort_id = c.id AND tenant_id = c.tenant_id LIMIT $1) m
		WHERE c.due_at IS NULL AND c.empty_at IS NULL AND c.run_at IS NULL AND (NOT c.delay OR c.over)
		LIMIT $1)
		UNION
		(SELECT m.tenant_id, s.shard, m.cohort_id, m.phase, m.schedule_id
		FROM member m
		CROSS JOIN LATERAL (SELECT shard FROM schedule WHERE tenant_id = m.tenant_id AND id = m.schedule_id LIMIT 1) s
		CROSS JOIN LATERAL (SELECT run_at, next_at FROM cohort WHERE shard = s.shard AND id = m.cohort_id AND tenant_id = m.tenant_id LIMIT 1) c
		WHERE m.until_at < (SELECT ` + postgres.Now + `) AND c.run_at IS NULL AND (c.next_at IS NULL OR c.next_at > m.until_at)
		LIMIT $1)
	) f
	CROSS JOIN LATERAL (
		SELECT tenant_id, id
		FROM schedule
		WHERE tenant_id = f.tenant_id AND id = f.schedule_id AND cohort_id = f.cohort_id
		FOR UPDATE SKIP LOCKED
	) s
	CROSS JOIN LATERAL (
		SELECT n.phase, n.until_at
		FROM member n
		WHERE n.cohort_id = f.cohort_id AND n.phase = f.phase AND n.schedule_id = s.id AND n.tenant_id = s.tenant_id
			AND (n.until_at IS NULL OR NOT EXISTS (
				SELECT FROM ` + chunk.UnopenedOf("f.shard", "f.tenant_id", "$2", "$3") + ` k WHERE k.nominal_at <= n.until_at))
		FOR UPDATE SKIP LOCKED
	) m
	CROSS JOIN LATERAL (
		SELECT
		FROM cohort
		WHERE shard = f.shard AND id = f.cohort_id AND tenant_id = f.tenant_id AND run_at IS NULL
			AND (due_at IS NULL AND empty_at IS NULL AND (NOT delay OR over)
				OR m.until_at < (SELECT ` + postgres.Now + `) AND (next_at IS NULL OR next_at > m.until_at))
		FOR UPDATE SKIP LOCKED
	) c
	LIMIT $1`
