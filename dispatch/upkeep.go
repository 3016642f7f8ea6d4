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
	taskLimit   = 20 * time.Second // of most tasks
	chunkKept   = time.Hour
	emptyKept   = time.Hour
	processKept = time.Minute
	mostCleared = 5000
)

// tasks are the parts of upkeep. Those that run every upkeepEvery run one after another, in this order.
func (d *Dispatch) tasks() []task {
	return []task{
		{name: "make partitions", every: upkeepEvery, limit: 30 * time.Second, some: whole(func(ctx context.Context) error { return d.ensurePartitions(ctx, time.Now()) })},
		{name: "arm lost schedules", every: upkeepEvery, limit: taskLimit, some: whole(d.rearmLost)},
		{name: "complete schedules", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.completeSome)},
		{name: "settle moves", every: upkeepEvery, limit: taskLimit, some: full(mostSettled, d.settleMoves)},
		{name: "cancel waiting ticks", every: upkeepEvery, limit: taskLimit, some: whole(d.cancelOrphans)},
		{name: "clear cohorts", every: upkeepEvery, limit: taskLimit, some: whole(d.clearCohorts)},
		{name: "clear chunks", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.clearChunks)},
		{name: "clear answers", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.clearAnswers)},
		{name: "clear processes", every: upkeepEvery, limit: taskLimit, some: whole(d.clearProcesses)},
		{name: "clear operations", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.clearOperations)},
		{name: "clear syncs", every: upkeepEvery, limit: taskLimit, some: full(20*mostCleared, d.clearSyncs)},
		{name: "finish erasures", every: upkeepEvery, limit: time.Minute, some: whole(d.finishErasures)},
	}
}

// upkeep runs the tasks until ctx ends.
func (d *Dispatch) upkeep(ctx context.Context) {
	d.every(ctx, upkeepEvery, "keep house", d.keepHouse)
}

// keepHouse runs each task once, also where others fail.
func (d *Dispatch) keepHouse(ctx context.Context) error {
	var errs []error
	for _, t := range d.tasks() {
		if err := d.run(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.name, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Dispatch) finishErasures(ctx context.Context) error {
	if d.Erase == nil {
		return nil
	}
	return d.Erase(ctx)
}

func (d *Dispatch) clearOperations(ctx context.Context) (int64, error) {
	return d.Operations.Clear(ctx, mostCleared)
}

func (d *Dispatch) clearSyncs(ctx context.Context) (int64, error) {
	return schedules.ClearSyncs(ctx, d.Pool, 20*mostCleared)
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

// clearChunks deletes chunks that were done an hour ago. The clock is read in a query of its own: compared with the clock
// itself, which is volatile, every row would be read.
func (d *Dispatch) clearChunks(ctx context.Context) (int64, error) {
	return d.clear(ctx, `
		DELETE FROM chunk
		WHERE id IN (
			SELECT id
			FROM chunk
			WHERE done_at < (SELECT clock_timestamp()) - $1::interval
			ORDER BY done_at
			LIMIT $2)`, chunkKept, mostCleared)
}

// clearAnswers deletes the answers to requests with an Idempotency-Key that are a day old.
func (d *Dispatch) clearAnswers(ctx context.Context) (int64, error) {
	return d.clear(ctx, `
		DELETE FROM idempotency
		WHERE (tenant_id, route, key) IN (
			SELECT tenant_id, route, key
			FROM idempotency
			WHERE created_at < (SELECT clock_timestamp()) - interval '24 hours'
			ORDER BY created_at
			LIMIT $1)`, mostCleared)
}

// clearProcesses deletes processes that are gone, and what they said to have in flight.
func (d *Dispatch) clearProcesses(ctx context.Context) error {
	_, err := d.clear(ctx, `DELETE FROM process WHERE beat_at < clock_timestamp() - $1::interval`, processKept)
	if err != nil {
		return err
	}
	_, err = d.clear(ctx, `DELETE FROM pushing WHERE process_id = ANY (ARRAY (SELECT DISTINCT process_id FROM pushing WHERE at < clock_timestamp() - $1::interval))`, processKept)
	return err
}

func (d *Dispatch) clear(ctx context.Context, sql string, args ...any) (int64, error) {
	done, err := d.Pool.Exec(ctx, sql, args...)
	return done.RowsAffected(), err
}
