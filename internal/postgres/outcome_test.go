package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// The Outcome reports a change for each call that commits one. It reports none for a call that is rolled back or refused, or only reads.
func TestOutcomeKnowsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Open(t.Context(), postgrestest.EmptyURL(t), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), `CREATE TABLE n (i int CHECK (i < 9))`); err != nil {
		t.Fatal(err)
	}
	const insert = `INSERT INTO n VALUES ($1)`
	errStop := errors.New("stop")
	inTx := func(ctx context.Context, last error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insert, 1); err != nil {
				return err
			}
			return last
		})
	}
	batch := func(ctx context.Context, sql string, args ...any) error {
		var b pgx.Batch
		b.Queue(`SELECT 1`)
		b.Queue(sql, args...)
		return pool.SendBatch(ctx, &b).Close()
	}
	for name, c := range map[string]struct {
		want bool
		call func(ctx context.Context) error
	}{
		"a query": {false, func(ctx context.Context) error { _, err := pool.Exec(ctx, `SELECT 1`); return err }},
		"a write": {true, func(ctx context.Context) error { _, err := pool.Exec(ctx, insert, 1); return err }},
		"a write that returns rows": {true, func(ctx context.Context) error {
			var i int
			return pool.QueryRow(ctx, `WITH x AS (SELECT 1) `+insert+` RETURNING i`, 1).Scan(&i)
		}},
		"a write that is refused":        {false, func(ctx context.Context) error { _, err := pool.Exec(ctx, insert, 10); return err }},
		"a write under Unwatched":        {false, func(ctx context.Context) error { _, err := pool.Exec(postgres.Unwatched(ctx), insert, 1); return err }},
		"a batch of queries":             {false, func(ctx context.Context) error { return batch(ctx, `SELECT 2`) }},
		"a batch with a write":           {true, func(ctx context.Context) error { return batch(ctx, insert, 1) }},
		"a batch that is refused":        {false, func(ctx context.Context) error { return batch(ctx, insert, 10) }},
		"a transaction":                  {true, func(ctx context.Context) error { return inTx(ctx, nil) }},
		"a transaction that is given up": {false, func(ctx context.Context) error { return inTx(ctx, errStop) }},
		"a context that has ended": {false, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := pool.Exec(ctx, insert, 1)
			return err
		}},
	} {
		ctx, outcome := postgres.Watch(t.Context())
		err := c.call(ctx)
		if got := outcome.MayHaveChanged(); got != c.want {
			t.Errorf("%s: got %t, want %t (%v)", name, got, c.want, err)
		}
	}
}
