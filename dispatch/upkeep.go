package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
)

const (
	upkeepEvery = 20 * time.Second
	chunkKept   = time.Hour
	emptyKept   = time.Hour
	processKept = time.Minute
	mostCleared = 5000
)

// upkeep clears away what is over, until ctx ends. Several processes may do it at once.
func (d *Dispatch) upkeep(ctx context.Context) {
	d.every(ctx, upkeepEvery, "keep house", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return d.keepHouse(ctx)
	})
}

// keepHouse looks for all that is over. Where a range of an index is asked for by the clock, the clock is read in a query of
// its own: it is volatile, and compared with as it is has each row read.
func (d *Dispatch) keepHouse(ctx context.Context) error {
	var errs []error
	for _, clear := range []func(context.Context) error{
		func(ctx context.Context) error { return d.ensurePartitions(ctx, time.Now()) },
		d.rearmLost, d.completeIn, d.settleMoves, d.cancelOrphans, d.clearCohorts, d.clearRest,
		func(ctx context.Context) error { return d.Operations.Clear(ctx, mostCleared) },
		d.erase,
		func(ctx context.Context) error { return schedules.ClearSyncs(ctx, d.Pool, 20*mostCleared) },
	} {
		errs = append(errs, clear(ctx))
	}
	return errors.Join(errs...)
}

func (d *Dispatch) erase(ctx context.Context) error {
	if d.Erase == nil {
		return nil
	}
	return d.Erase(ctx)
}

// fold adds up, each second, how many members the cohorts have, and has the planner learn of tables that have grown.
func (d *Dispatch) fold(ctx context.Context) {
	var analyzed time.Time
	d.every(ctx, time.Second, "count members", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		err := schedules.FoldTallies(ctx, d.Pool)
		if time.Since(analyzed) < d.rest.pace(0, restAnalyze) {
			return err
		}
		analyzed = time.Now()
		return errors.Join(err, postgres.AnalyzeNew(ctx, d.Pool))
	})
}

// clearCohorts deletes cohorts that have been empty for an hour and that no unfinished chunk can name. It takes the
// exclusive lock of their shard, so that nobody is joining.
func (d *Dispatch) clearCohorts(ctx context.Context) error {
	rows, _ := d.Pool.Query(ctx, `
		SELECT DISTINCT shard
		FROM cohort
		WHERE empty_at < (SELECT clock_timestamp()) - $1::interval`, emptyKept) // CollectRows reports the error
	shards, err := pgx.CollectRows(rows, pgx.RowTo[int16])
	if err != nil {
		return fmt.Errorf("look for empty cohorts: %w", err)
	}
	for _, shard := range shards {
		err := pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
			var b pgx.Batch
			schedules.LockShard(&b, shard)
			b.Queue(`
				WITH gone AS (
					DELETE FROM cohort c
					WHERE c.shard = $1 AND c.empty_at < (SELECT clock_timestamp()) - $2::interval
						AND NOT EXISTS (SELECT FROM member m WHERE m.cohort_id = c.id)
						AND NOT EXISTS (SELECT FROM chunk k WHERE k.shard = $1 AND k.tenant_id = c.tenant_id AND k.opened_at IS NULL)
					RETURNING tenant_id, shard, hash, workflow, missed, id
				), names AS (
					DELETE FROM cohort_timing t
					USING gone g
					WHERE t.tenant_id = g.tenant_id AND t.shard = g.shard AND t.hash = g.hash AND t.workflow = g.workflow AND t.missed = g.missed
				)
				DELETE FROM tally t
				USING gone g
				WHERE t.tenant_id = g.tenant_id AND t.cohort_id = g.id`, shard, emptyKept)
			return tx.SendBatch(ctx, &b).Close()
		})
		if err != nil {
			return fmt.Errorf("clear cohorts of shard %d: %w", shard, err)
		}
	}
	return nil
}

// clearRest deletes chunks that are done, processes that are gone, and answers past their day.
func (d *Dispatch) clearRest(ctx context.Context) error {
	var b pgx.Batch
	b.Queue(`DELETE FROM chunk WHERE id IN (SELECT id FROM chunk WHERE done_at < (SELECT clock_timestamp()) - $1::interval ORDER BY done_at LIMIT $2)`, chunkKept, mostCleared)
	b.Queue(`DELETE FROM process WHERE beat_at < clock_timestamp() - $1::interval`, processKept)
	b.Queue(`DELETE FROM pushing WHERE process_id = ANY (ARRAY (SELECT DISTINCT process_id FROM pushing WHERE at < clock_timestamp() - $1::interval))`, processKept)
	b.Queue(`
		DELETE FROM idempotency
		WHERE (tenant_id, route, key) IN (
			SELECT tenant_id, route, key FROM idempotency WHERE created_at < (SELECT clock_timestamp()) - interval '24 hours' LIMIT $1)`, mostCleared)
	if err := d.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("clear away: %w", err)
	}
	return nil
}
