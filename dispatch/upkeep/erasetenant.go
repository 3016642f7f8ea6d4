package upkeep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/tenants"
)

// holdings are the tables with rows of tenants, in the order in which they are emptied: a table whose rows make rows of another comes
// before it. Schedules, with their members and state, and cohorts are deleted before all of these, and chunks after them. A cohort is
// found by its timing, because an index of cohorts by tenant would cost each firing.
var holdings = []string{
	"schedule", "schedule_state", "cohort_timing", "fair_turn",
	"delayed", "ready", "queued", "slot", "buffered", "lease",
	"tick", "attempt", "tick_time", "dead_letter", "revision", "label", "failing",
	"subject_profile", "erasure", "calendar", "calendar_revision", "operation", "operation_pause", "sync_line", "sync",
	"notice_delta", "notice", "event", "workflow", "endpoint", "wake", "api_key", "idempotency", "allowance", "bucket", "audit",
	"push_load", "rate_turn", "rate_allowance", "endpoint_health", "workflow_poll", "unmet_expectation", "tally_delta", "tally", "inactive_delta", "inactive", "daily_use_delta", "daily_use", "use_series",
}

const (
	erasedAtOnce  = 2000            // rows in a transaction
	tenantErasing = 8 * time.Second // limits one call
	// identitiesKept is how long a process may still accept requests for a tenant that is being erased.
	identitiesKept = 3 * time.Second
)

// tenantEraser erases tenants.
type tenantEraser struct {
	pool   *pgxpool.Pool
	blocks *blockSearch
}

// erase deletes every row of a tenant that is marked for erasure, in bounded transactions, and the tenant last. done is false if
// its time was over first: another call continues.
func (e *tenantEraser) erase(ctx context.Context, tenant tenants.ID) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tenantErasing)
	defer cancel()
	for {
		quiet, err := e.emptyTenant(ctx, tenant)
		if err == nil && quiet {
			err = postgres.Retry(ctx, func() (err error) {
				done, err = e.dropTenant(ctx, tenant)
				return err
			})
		}
		if done || err != nil && ctx.Err() == nil {
			return done, err
		}
		wait := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
			wait.Stop()
			return false, nil
		case <-wait.C:
		}
	}
}

// finish continues erasures of tenants that no request has finished.
func (e *tenantEraser) finish(ctx context.Context) error {
	rows, _ := e.pool.Query(ctx, `
		SELECT id
		FROM tenant
		WHERE erasing_at < (SELECT `+postgres.Now+`) - $1::interval
		ORDER BY erasing_at
		LIMIT 10`, 2*tenantErasing) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return fmt.Errorf("look for tenants to erase: %w", err)
	}
	var errs []error
	for _, id := range ids {
		if _, err := e.erase(ctx, tenants.ID(id)); err != nil {
			errs = append(errs, fmt.Errorf("erase tenant %d: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// emptyTenant deletes the rows of a tenant, table after table. quiet reports whether no process accepted requests for the tenant when
// it began. If it is false, rows that were just written may be left, and chunks are left.
func (e *tenantEraser) emptyTenant(ctx context.Context, tenant tenants.ID) (quiet bool, err error) {
	err = e.pool.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM tenant WHERE id = $1 AND erasing_at >= `+postgres.Now+` - $2::interval)`,
		tenant, identitiesKept).Scan(&quiet)
	if err != nil {
		return false, fmt.Errorf("look for the tenant: %w", err)
	}
	if err := untilFew(ctx, func() (int64, error) { return e.eraseSomeSchedules(ctx, tenant) }); err != nil {
		return false, fmt.Errorf("erase schedules: %w", err)
	}
	rows, _ := e.pool.Query(ctx, `
		SELECT shard::smallint
		FROM generate_series(0, $2 - 1) AS s (shard)
		WHERE EXISTS (SELECT FROM cohort_timing t WHERE t.tenant_id = $1 AND t.shard = s.shard)
			OR EXISTS (SELECT FROM delayed h WHERE h.tenant_id = $1 AND h.shard = s.shard)`, tenant, cohorts.Shards) // CollectRows reports the error
	shards, err := pgx.CollectRows(rows, pgx.RowTo[int16])
	if err != nil {
		return false, fmt.Errorf("look for cohorts: %w", err)
	}
	for _, shard := range shards {
		if err := untilFew(ctx, func() (int64, error) { return e.eraseSomeCohorts(ctx, tenant, shard) }); err != nil {
			return false, fmt.Errorf("erase cohorts: %w", err)
		}
	}
	if err := e.eraseHoldings(ctx, tenant); err != nil || !quiet {
		return false, err
	}
	return true, e.eraseChunks(ctx, tenant)
}

// eraseChunks deletes the chunks of a tenant for which no new ones are made. Chunks that are done have no index by tenant, so it reads
// the table in parts: it holds an hour of chunks of all tenants.
func (e *tenantEraser) eraseChunks(ctx context.Context, tenant tenants.ID) error {
	for _, sql := range chunksNotDone {
		if _, err := e.pool.Exec(ctx, sql, tenant, cohorts.Shards); err != nil {
			return fmt.Errorf("erase chunks: %w", err)
		}
	}
	return e.blocks.each(ctx, fmt.Sprint("chunks of tenant ", tenant), "chunk", func(from, to pgtype.TID) error {
		if _, err := e.pool.Exec(ctx, `DELETE FROM chunk WHERE tenant_id = $1 AND ctid >= $2 AND ctid < $3`, tenant, from, to); err != nil {
			return fmt.Errorf("erase chunks: %w", err)
		}
		return nil
	})
}

// chunksNotDone deletes the chunks of a tenant that are not done, by the indexes that hold only such chunks.
var chunksNotDone = []string{
	`DELETE FROM chunk WHERE tenant_id = $1 AND shard = ANY (ARRAY (SELECT generate_series(0, $2 - 1)::smallint)) AND opened_at IS NULL`,
	`DELETE FROM chunk WHERE tenant_id = $1 AND shard < $2 AND opened_at IS NOT NULL AND done_at IS NULL`,
}

// eraseHoldings deletes the rows of a tenant in the tables of holdings.
func (e *tenantEraser) eraseHoldings(ctx context.Context, tenant tenants.ID) error {
	for _, table := range holdings {
		leaves, err := e.leaves(ctx, table)
		if err != nil {
			return err
		}
		for _, leaf := range leaves {
			err := untilFew(ctx, func() (int64, error) {
				gone, err := e.pool.Exec(ctx, `
					DELETE FROM `+leaf+`
					WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM `+leaf+` WHERE tenant_id = $1`+living(table)+` LIMIT $2))`, tenant, erasedAtOnce)
				return gone.RowsAffected(), err
			})
			if err != nil {
				return fmt.Errorf("erase from %s: %w", leaf, err)
			}
		}
	}
	return nil
}

// living returns a condition that leaves out folded rows of a table. They are dead, and may be many while an old snapshot is open.
func living(table string) string {
	switch table {
	case "tally_delta", "inactive_delta", "daily_use_delta", "notice_delta":
		return " AND " + postgres.Unfolded(table)
	}
	return ""
}

// untilFew calls some, which deletes at most erasedAtOnce rows, until it deletes fewer.
func untilFew(ctx context.Context, some func() (int64, error)) error {
	for {
		var gone int64
		err := postgres.Retry(ctx, func() (err error) {
			gone, err = some()
			return err
		})
		if err != nil || gone < erasedAtOnce {
			return err
		}
	}
}

// leaves returns the tables that hold the rows of a table: the table itself, or its partitions and the detached ones that are not
// dropped yet.
func (e *tenantEraser) leaves(ctx context.Context, table string) (leaves []string, err error) {
	if !slices.ContainsFunc(partitioned, func(p partitionedTable) bool { return p.name == table }) {
		return []string{table}, nil
	}
	found, err := dayTables(ctx, e.pool, table)
	for _, p := range found {
		leaves = append(leaves, p.Name)
	}
	return leaves, err
}

// eraseSomeSchedules deletes schedules with their members and states, and returns how many. It waits for a schedule that another
// transaction changes, and deletes its new version. Members are found by their schedules.
func (e *tenantEraser) eraseSomeSchedules(ctx context.Context, tenant tenants.ID) (gone int64, err error) {
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			DELETE FROM schedule
			WHERE tenant_id = $1 AND id = ANY (ARRAY (SELECT id FROM schedule WHERE tenant_id = $1 ORDER BY id LIMIT $2 FOR UPDATE))
			RETURNING id, cohort_id, phase`, tenant, erasedAtOnce) // ForEachRow reports the error
		var ids, in, cohorts, phases []int64
		var id, phase int64
		var cohort *int64
		_, err := pgx.ForEachRow(rows, []any{&id, &cohort, &phase}, func() error {
			ids = append(ids, id)
			if cohort != nil {
				in, cohorts, phases = append(in, id), append(cohorts, *cohort), append(phases, phase)
			}
			return nil
		})
		if err != nil {
			return err
		}
		gone = int64(len(ids))
		var b pgx.Batch
		b.Queue(`
			DELETE FROM member m
			USING unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS g (cohort_id, phase, schedule_id)
			WHERE m.tenant_id = $1 AND m.cohort_id = g.cohort_id AND m.phase = g.phase AND m.schedule_id = g.schedule_id`,
			tenant, cohorts, phases, in)
		b.Queue(`DELETE FROM schedule_state WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, ids)
		return tx.SendBatch(ctx, &b).Close()
	})
	return gone, err
}

// eraseSomeCohorts deletes cohorts and rows of delayed of a shard, under the shard's lock, so that no sweep has read them without having
// written its chunks.
func (e *tenantEraser) eraseSomeCohorts(ctx context.Context, tenant tenants.ID, shard int16) (gone int64, err error) {
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) (err error) {
		var b pgx.Batch
		cohorts.ShareShard(&b, shard)
		b.Queue(`
			WITH gone AS (
				DELETE FROM cohort_timing
				WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM cohort_timing WHERE tenant_id = $1 AND shard = $2 LIMIT $3))
				RETURNING id
			)
			DELETE FROM cohort WHERE tenant_id = $1 AND shard = $2 AND id = ANY (ARRAY (SELECT id FROM gone))`,
			tenant, shard, erasedAtOnce)
		b.Queue(`DELETE FROM delayed WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM delayed WHERE tenant_id = $1 AND shard = $2 LIMIT $3))`,
			tenant, shard, erasedAtOnce)
		results := tx.SendBatch(ctx, &b)
		defer func() { err = errors.Join(err, results.Close()) }()
		for range b.Len() {
			done, err := results.Exec()
			if err != nil {
				return err
			}
			if done.Delete() {
				gone = max(gone, done.RowsAffected())
			}
		}
		return nil
	})
	return gone, err
}

// errNotEmpty is the error of an erasure during which rows of the tenant were written.
var errNotEmpty = errors.New("there are rows of the tenant still")

// dropTenant deletes the tenant if it has no rows left and no process accepts requests for it. It locks the tenant's row first: a
// transaction that still writes a row which refers to it waits, and then fails.
func (e *tenantEraser) dropTenant(ctx context.Context, tenant tenants.ID) (done bool, err error) {
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		var quiet bool
		err := tx.QueryRow(ctx, `
			SELECT erasing_at < `+postgres.Now+` - $2::interval
			FROM tenant
			WHERE id = $1 AND erasing_at IS NOT NULL
			FOR UPDATE`, tenant, identitiesKept).Scan(&quiet)
		if errors.Is(err, pgx.ErrNoRows) { // another has deleted it
			done = true
			return nil
		}
		if err != nil || !quiet {
			return err
		}
		if err := forecast.LockTallies(ctx, tx); err != nil {
			return err
		}
		for _, sql := range chunksNotDone {
			gone, err := tx.Exec(ctx, sql, tenant, cohorts.Shards)
			if err != nil {
				return fmt.Errorf("erase chunks: %w", err)
			}
			if gone.RowsAffected() > 0 {
				return errNotEmpty
			}
		}
		for _, table := range holdings {
			gone, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE tenant_id = $1`+living(table), tenant)
			if err != nil {
				return fmt.Errorf("erase from %s: %w", table, err)
			}
			switch table {
			case "bucket", "tally", "tally_delta", "inactive", "inactive_delta", "daily_use_delta", "daily_use", "use_series", "notice_delta", "notice", "event", "audit", "allowance": // these make no other rows
			default:
				if gone.RowsAffected() > 0 {
					return errNotEmpty
				}
			}
		}
		if _, err := tx.Exec(ctx, `DELETE FROM tenant WHERE id = $1`, tenant); err != nil {
			return fmt.Errorf("delete tenant: %w", err)
		}
		done = true
		return nil
	})
	if errors.Is(err, errNotEmpty) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("erase tenant: %w", err)
	}
	return done, nil
}
