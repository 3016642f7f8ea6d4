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
	old         oldRows
	empty       postgres.Edge // of clearCohorts
}

// oldRows are the tables whose rows are deleted by their age.
type oldRows struct{ chunks, answers, pauses, health, minutes, hours postgres.Oldest }

func newClearing(c Config) *clearing {
	return &clearing{pool: c.Pool, operations: c.Operations, unopened: c.Unopened, horizon: c.Horizon, old: oldRows{
		chunks:  postgres.Oldest{Delete: "DELETE FROM chunk", Column: "done_at", Kept: chunkKept},
		answers: postgres.Oldest{Delete: "DELETE FROM idempotency", Column: "created_at", Kept: once.Kept},
		pauses:  postgres.Oldest{Delete: "DELETE FROM operation_pause", Column: "recorded_at", Kept: operations.KeptFor},
		health:  postgres.Oldest{Delete: "DELETE FROM endpoint_health", Column: "at", Kept: push.HealthKept},
		minutes: postgres.Oldest{Delete: "DELETE FROM use_series", Where: "step = 1 AND ", Column: "at", Kept: history.MinutesKept},
		hours:   postgres.Oldest{Delete: "DELETE FROM use_series", Where: "step = 60 AND ", Column: "at", Kept: history.HoursKept},
	}}
}

// clearOld returns a function that deletes the next rows that are too old.
func (c *clearing) clearOld(rows *postgres.Oldest) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) { return rows.Some(ctx, c.pool, record.MostCleared) }
}

// clear runs a statement that deletes rows, and returns how many it deleted.
func (c *clearing) clear(ctx context.Context, sql string, args ...any) (int64, error) {
	done, err := c.pool.Exec(ctx, sql, args...)
	return done.RowsAffected(), err
}

func (c *clearing) clearOperations(ctx context.Context) (int64, error) {
	return c.operations.Clear(ctx, record.MostCleared)
}

func (c *clearing) clearSyncs(ctx context.Context) (int64, error) {
	return bulk.ClearSyncs(ctx, c.pool, 20*record.MostCleared)
}

// clearCohorts deletes cohorts that have been empty for emptyKept. It leaves out those of tenants with unopened chunks in the shard,
// because such a chunk may name the cohort, and looks at them again after emptyAgain. It takes the exclusive lock of the shard, so
// that no schedule joins a cohort meanwhile. more reports whether another run may find more.
func (c *clearing) clearCohorts(ctx context.Context) (more bool, err error) {
	from := c.empty.From()
	var to time.Time
	var shards []int16
	if err := c.pool.QueryRow(ctx, `
		WITH clock AS MATERIALIZED (
			SELECT `+postgres.Now+` - $1::interval AS past
		)
		SELECT past, ARRAY (
			SELECT s.shard::smallint
			FROM generate_series(0, $2::int) AS s (shard)
			WHERE EXISTS (
				SELECT FROM cohort c WHERE c.shard = s.shard::smallint AND c.empty_at >= $3 AND c.empty_at < (SELECT past FROM clock)))
		FROM clock`, emptyKept, cohorts.Shards-1, from).Scan(&to, &shards); err != nil {
		return false, fmt.Errorf("look for empty cohorts: %w", err)
	}
	for _, shard := range shards {
		n, err := c.clearSomeCohorts(ctx, shard, from)
		if err != nil {
			return false, fmt.Errorf("clear cohorts of shard %d: %w", shard, err)
		}
		more = more || n >= record.MostCleared
	}
	if !more {
		c.empty.Reached(to)
	}
	return more, nil
}

// clearSomeCohorts looks at one batch of cohorts that have been empty since a time after from, and returns how many it looked at.
func (c *clearing) clearSomeCohorts(ctx context.Context, shard int16, from time.Time) (n int64, err error) {
	err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		floor, stuck := c.unopened.From(c.horizon)
		cohorts.LockShard(&b, shard)
		b.Queue(`
			WITH old AS MATERIALIZED (
				SELECT e.ctid AS place,
					EXISTS (SELECT FROM member m WHERE m.cohort_id = e.id)
						OR EXISTS (SELECT FROM `+chunk.UnopenedOf("$1", "e.tenant_id", "$5", "$6")+` k) AS stays
				FROM cohort e
				WHERE e.shard = $1 AND e.empty_at >= $7 AND e.empty_at < (SELECT `+postgres.Now+`) - $2::interval
				ORDER BY e.empty_at
				LIMIT $3
			), later AS (
				UPDATE cohort
				SET empty_at = `+postgres.Now+` - $2::interval + $4::interval
				WHERE ctid = ANY (ARRAY (SELECT place FROM old WHERE stays))
			), gone AS (
				DELETE FROM cohort
				WHERE ctid = ANY (ARRAY (SELECT place FROM old WHERE NOT stays))
				RETURNING tenant_id, shard, hash, workflow, missed, id
			), names AS (
				DELETE FROM cohort_timing
				WHERE ctid = ANY (ARRAY (
					SELECT t.place
					FROM gone g
					CROSS JOIN LATERAL (
						SELECT ctid AS place
						FROM cohort_timing
						WHERE tenant_id = g.tenant_id AND shard = g.shard AND hash = g.hash AND workflow = g.workflow AND missed = g.missed
						OFFSET 0
					) t))
			), tallies AS (
				DELETE FROM tally
				WHERE ctid = ANY (ARRAY (
					SELECT t.place
					FROM gone g
					CROSS JOIN LATERAL (SELECT ctid AS place FROM tally WHERE tenant_id = g.tenant_id AND cohort_id = g.id OFFSET 0) t))
			)
			SELECT count(*) FROM old`, shard, emptyKept, record.MostCleared, emptyAgain, floor, stuck, from).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		return tx.SendBatch(ctx, &b).Close()
	})
	return n, err
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
