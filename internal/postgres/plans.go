package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// GenericPlans makes PostgreSQL plan each statement of the transaction once for a connection, and not for each set of values. It suits
// statements that look up rows by key and are small: their planning takes longer than their work. The planner does not know the values,
// so each plan must be right for all of them. In a batch outside a transaction it acts on the later statements of the batch.
const GenericPlans = `SELECT ` + SetGenericPlans

// SetGenericPlans is GenericPlans as a part of another statement, which sets something too.
const SetGenericPlans = `set_config('plan_cache_mode', 'force_generic_plan', true)`

// inIndexOrder makes PostgreSQL read an index in the order of ORDER BY, and stop at the LIMIT. The planner often expects fewer rows of a
// partial index than there are, and would read and sort all of them for each page.
const inIndexOrder = `SELECT set_config('enable_sort', 'off', true), set_config('enable_incremental_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// ReadPage runs a query that reads the next rows of an index, in the index's order, and calls each for each row. The query needs an ORDER
// BY that the index serves, and a LIMIT.
func ReadPage(ctx context.Context, pool *pgxpool.Pool, sql string, args, scan []any, each func() error) error {
	var b pgx.Batch
	b.Queue(inIndexOrder)
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, scan, each)
		return err
	})
	return pool.SendBatch(ctx, &b).Close() // a batch outside a transaction is one transaction
}
