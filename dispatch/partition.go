package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// partitioned are the tables that have a partition a day of nominal time, and how those are made.
var partitioned = []struct{ name, with string }{{"tick", " WITH (fillfactor = 60)"}, {"attempt", ""}, {"roll", ""}}

const (
	partitionsAhead = 7

	// partitionLock keeps two processes from making or dropping the same partition at once.
	partitionLock = 0x4341_5250

	// partitionWait is how long a change of the partitions waits for readers and writers that hold their tables, and
	// has later ones wait behind it. What did not come to pass is tried again.
	partitionWait = time.Second
)

func partition(table string, day time.Time) string { return table + "_" + day.Format("20060102") }

// ensurePartitions makes the days' partitions of the record, from yesterday to a week ahead.
func (d *Dispatch) ensurePartitions(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	today := now.UTC().Truncate(day)
	for ahead := -1; ahead <= partitionsAhead; ahead++ {
		from := today.AddDate(0, 0, ahead)
		var names []string
		for _, table := range partitioned {
			names = append(names, partition(table.name, from))
		}
		var there bool
		if err := d.Pool.QueryRow(ctx, `SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1::text[]) AS n (name)`, names).Scan(&there); err != nil {
			return fmt.Errorf("look for partitions: %w", err)
		}
		if there {
			continue
		}
		if err := d.changePartitions(ctx, func(tx pgx.Tx) error { return makePartitions(ctx, tx, from) }); err != nil {
			return fmt.Errorf("make partitions of %s: %w", from.Format(time.DateOnly), err)
		}
	}
	return nil
}

// changePartitions runs fn alone, and gives up where a table is held for longer than others should wait.
func (d *Dispatch) changePartitions(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, partitionLock); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, partitionWait.Milliseconds())); err != nil {
			return err
		}
		return fn(tx)
	})
}

// makePartitions makes a day's partitions. What came for that day before, and lies in the default partitions, moves.
func makePartitions(ctx context.Context, tx pgx.Tx, from time.Time) error {
	first, last := from.Format(time.RFC3339), from.AddDate(0, 0, 1).Format(time.RFC3339)
	for _, table := range partitioned {
		name := partition(table.name, from)
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, name).Scan(&there); err != nil || there {
			if err != nil {
				return err
			}
			continue
		}
		within := fmt.Sprintf(`nominal_at >= '%s' AND nominal_at < '%s'`, first, last)
		for _, sql := range []string{
			`LOCK TABLE ` + table.name + ` IN ACCESS EXCLUSIVE MODE`,
			`CREATE TEMPORARY TABLE moved_` + name + ` ON COMMIT DROP AS SELECT * FROM ` + table.name + `_default WHERE ` + within,
			`DELETE FROM ` + table.name + `_default WHERE ` + within,
			`CREATE TABLE ` + name + ` PARTITION OF ` + table.name + ` FOR VALUES FROM ('` + first + `') TO ('` + last + `')` + table.with,
			`ALTER TABLE ` + name + ` ENABLE ROW LEVEL SECURITY`, // nobody reaches it but by way of its table
			`INSERT INTO ` + name + ` OVERRIDING SYSTEM VALUE SELECT * FROM moved_` + name,
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
	}
	return nil
}
