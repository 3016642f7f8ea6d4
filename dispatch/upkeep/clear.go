package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// clearing deletes rows that nothing needs any more.
type clearing struct {
	pool       *pgxpool.Pool
	operations *operations.Operations
	unopened   *chunk.Unopened
	horizon    *cluster.Horizon

	// The lock of its task guards each of these.
	ratesAt     ratePlace     // of clearRates
	processEnds cluster.Floor // of clearProcesses
}

// clear runs a statement that deletes rows, and returns how many it deleted.
func (c *clearing) clear(ctx context.Context, sql string, args ...any) (int64, error) {
	done, err := c.pool.Exec(ctx, sql, args...)
	return done.RowsAffected(), err
}

func (c *clearing) clearOperations(ctx context.Context) (int64, error) {
	return c.operations.Clear(ctx, record.MostCleared)
}

// clearPauses deletes what operations paused too long ago to be undone.
func (c *clearing) clearPauses(ctx context.Context) (int64, error) {
	return c.clear(ctx, `
		DELETE FROM operation_pause
		WHERE ctid = ANY (ARRAY (
			SELECT ctid
			FROM operation_pause
			WHERE recorded_at < (SELECT `+postgres.Now+`) - $1::interval
			ORDER BY recorded_at
			LIMIT $2))`, operations.KeptFor, record.MostCleared)
}

// clearHealth deletes the health of endpoints that have had no request for long.
func (c *clearing) clearHealth(ctx context.Context) (int64, error) {
	return c.clear(ctx, `
		DELETE FROM endpoint_health
		WHERE ctid = ANY (ARRAY (
			SELECT ctid
			FROM endpoint_health
			WHERE at < (SELECT `+postgres.Now+`) - $1::interval
			ORDER BY at
			LIMIT $2))`, push.HealthKept, record.MostCleared)
}

// clearSeries deletes the minutes and hours of the series that are no longer kept.
func (c *clearing) clearSeries(ctx context.Context) (n int64, err error) {
	for step, kept := range map[int]time.Duration{1: history.MinutesKept, 60: history.HoursKept} {
		done, err := c.clear(ctx, `
			DELETE FROM use_series
			WHERE ctid = ANY (ARRAY (
				SELECT ctid
				FROM use_series
				WHERE step = $1 AND at < (SELECT `+postgres.Now+`) - $2::interval
				ORDER BY at
				LIMIT $3))`, step, kept, record.MostCleared)
		if err != nil {
			return n, fmt.Errorf("clear series: %w", err)
		}
		n = max(n, done)
	}
	return n, nil
}

func (c *clearing) clearSyncs(ctx context.Context) (int64, error) {
	return bulk.ClearSyncs(ctx, c.pool, 20*record.MostCleared)
}

// clearCohorts deletes cohorts that have been empty for emptyKept. It leaves out those of tenants with unopened chunks in the shard,
// because such a chunk may name the cohort, and looks at them again after emptyAgain. It takes the exclusive lock of the shard, so
// that no schedule joins a cohort meanwhile. more reports whether another run may find more.
func (c *clearing) clearCohorts(ctx context.Context) (more bool, err error) {
	rows, _ := c.pool.Query(ctx, `
		SELECT s.shard
		FROM generate_series(0, $2::int) AS s (shard)
		WHERE EXISTS (
			SELECT FROM cohort c WHERE c.shard = s.shard::smallint AND c.empty_at < (SELECT `+postgres.Now+`) - $1::interval)`,
		emptyKept, cohorts.Shards-1) // CollectRows reports the error
	shards, err := pgx.CollectRows(rows, pgx.RowTo[int16])
	if err != nil {
		return false, fmt.Errorf("look for empty cohorts: %w", err)
	}
	for _, shard := range shards {
		n, err := c.clearSomeCohorts(ctx, shard)
		if err != nil {
			return false, fmt.Errorf("clear cohorts of shard %d: %w", shard, err)
		}
		more = more || n >= record.MostCleared
	}
	return more, nil
}

// clearSomeCohorts looks at one batch of empty cohorts, and returns how many it looked at.
func (c *clearing) clearSomeCohorts(ctx context.Context, shard int16) (n int64, err error) {
	err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		floor, stuck := c.unopened.From(c.horizon)
		cohorts.LockShard(&b, shard)
		b.Queue(`
			WITH old AS MATERIALIZED (
				SELECT e.id,
					EXISTS (SELECT FROM member m WHERE m.cohort_id = e.id)
						OR EXISTS (SELECT FROM `+chunk.UnopenedOf("$1", "e.tenant_id", "$5", "$6")+` k) AS stays
				FROM cohort e
				WHERE e.shard = $1 AND e.empty_at < (SELECT `+postgres.Now+`) - $2::interval
				ORDER BY e.empty_at
				LIMIT $3
			), later AS (
				UPDATE cohort
				SET empty_at = `+postgres.Now+` - $2::interval + $4::interval
				WHERE shard = $1 AND id = ANY (ARRAY (SELECT id FROM old WHERE stays))
			), gone AS (
				DELETE FROM cohort
				WHERE shard = $1 AND id = ANY (ARRAY (SELECT id FROM old WHERE NOT stays))
				RETURNING tenant_id, shard, hash, workflow, missed, id
			), names AS (
				DELETE FROM cohort_timing t
				USING gone g
				WHERE t.tenant_id = g.tenant_id AND t.shard = g.shard AND t.hash = g.hash AND t.workflow = g.workflow AND t.missed = g.missed
			), tallies AS (
				DELETE FROM tally t
				USING gone g
				WHERE t.tenant_id = g.tenant_id AND t.cohort_id = g.id
			)
			SELECT count(*) FROM old`, shard, emptyKept, record.MostCleared, emptyAgain, floor, stuck).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		return tx.SendBatch(ctx, &b).Close()
	})
	return n, err
}

// clearChunks deletes chunks that were done chunkKept ago. Their numbers are in an array, because the planner may join a list by
// reading the whole table. The clock is read in a subquery: a comparison with the clock itself, which is volatile, would read every
// row.
func (c *clearing) clearChunks(ctx context.Context) (int64, error) {
	return c.clear(ctx, `
		DELETE FROM chunk
		WHERE id = ANY (ARRAY (
			SELECT id
			FROM chunk
			WHERE done_at < (SELECT `+postgres.Now+`) - $1::interval
			ORDER BY done_at
			LIMIT $2))`, chunkKept, record.MostCleared)
}

// clearAnswers deletes the values of requests with an Idempotency-Key after the time for which they are stored.
func (c *clearing) clearAnswers(ctx context.Context) (int64, error) {
	return c.clear(ctx, `
		DELETE FROM idempotency
		WHERE ctid = ANY (ARRAY (
			SELECT ctid
			FROM idempotency
			WHERE created_at < (SELECT `+postgres.Now+`) - $1::interval
			ORDER BY created_at
			LIMIT $2))`, once.Kept, record.MostCleared)
}

// clearProcesses deletes the rows of dead processes, and the rows of push_load with their requests in flight.
func (c *clearing) clearProcesses(ctx context.Context) error {
	l := c.processEnds.Look(c.horizon, false)
	from := l.From
	if !from.IsZero() {
		from = from.Add(-cluster.DeadAfter) // a process that is marked dead gets a heartbeat so far back
	}
	var first pgtype.Timestamptz
	if err := c.pool.QueryRow(ctx, `SELECT (SELECT beat_at FROM process WHERE beat_at >= $1 ORDER BY beat_at LIMIT 1)`, from).Scan(&first); err != nil {
		return err
	}
	l.Found(first.Time)
	if _, err := c.clear(ctx, `DELETE FROM process WHERE beat_at BETWEEN $2 AND (SELECT `+postgres.Now+`) - $1::interval`, processKept, from); err != nil {
		return err
	}
	_, err := c.clear(ctx, `
		WITH RECURSIVE telling (process_id) AS (
			(SELECT process_id FROM push_load ORDER BY process_id LIMIT 1)
			UNION ALL
			SELECT n.process_id
			FROM telling t
			CROSS JOIN LATERAL (SELECT process_id FROM push_load WHERE process_id > t.process_id ORDER BY process_id LIMIT 1) n
		)
		DELETE FROM push_load
		WHERE process_id = ANY (ARRAY (
			SELECT process_id FROM telling t WHERE process_id <> ALL (ARRAY (`+cluster.KnownProcesses+`))))`)
	return err
}

// ratePlace is the position of the walk through the buckets.
type ratePlace struct {
	tenant int32
	quota  string
}

const mostRates = 500 // buckets that one run looks at

// clearRates deletes the buckets of deleted tenants: a process that does not know of the deletion may still write one. Each run looks
// at one page of a walk. Tenant 0 has no row; its buckets are the platform's own.
func (c *clearing) clearRates(ctx context.Context) error {
	rows, _ := c.pool.Query(ctx, `
		WITH page AS MATERIALIZED (
			SELECT ctid, tenant_id, quota
			FROM bucket
			WHERE (tenant_id, quota) > ($1, $2)
			ORDER BY tenant_id, quota
			LIMIT $3
		), gone AS (
			DELETE FROM bucket
			WHERE ctid = ANY (ARRAY (
				SELECT p.ctid
				FROM page p
				WHERE p.tenant_id <> 0 AND NOT EXISTS (SELECT FROM tenant t WHERE t.id = p.tenant_id OFFSET 0)))
		)
		SELECT tenant_id, quota FROM page`, c.ratesAt.tenant, c.ratesAt.quota, mostRates) // CollectRows reports the error
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r ratePlace, err error) { return r, row.Scan(&r.tenant, &r.quota) })
	if err != nil {
		return fmt.Errorf("look for rates of tenants that are gone: %w", err)
	}
	c.ratesAt = ratePlace{}
	if len(page) == mostRates {
		c.ratesAt = page[mostRates-1]
	}
	return nil
}
