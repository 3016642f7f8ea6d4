package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// partitionedTable is a table that has one partition for each day of nominal time. with are the storage options of a partition.
type partitionedTable struct{ name, with string }

var partitioned = []partitionedTable{{"tick", " WITH (fillfactor = 60)"}, {"attempt", ""}, {"tick_time", ""}}

const (
	partitionsAhead = 7

	// partitionWait limits how long a change of partitions waits for a table that others use: all later queries of the
	// table wait behind it. partitionHold limits how long one of its statements runs while it holds that lock.
	partitionWait = 50 * time.Millisecond
	partitionHold = 2 * time.Second

	// partitionPause is the time between two attempts where the first one failed. Partitions exist a week ahead.
	partitionPause = 5 * time.Minute

	// mostMoved limits the rows that move from a default partition into a new one.
	mostMoved = 100_000
)

func partition(table string, day time.Time) string { return table + "_" + day.Format("20060102") }

// dayPartitions are the partitions of the record, one for each day of nominal time.
type dayPartitions struct {
	pool   *pgxpool.Pool
	log    *slog.Logger
	blocks *blockSearch
	// giveUp cancels a tick that will not end.
	giveUp func(ctx context.Context, tenant tenants.ID, key ident.TickKey) error
}

// ensure creates the partitions of the record from yesterday to a week ahead.
func (d *dayPartitions) ensure(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	missing, err := d.missing(ctx, now)
	if err != nil || len(missing) == 0 {
		return err
	}
	return d.change(ctx, "create", func() error {
		for _, p := range missing {
			if err := d.create(ctx, p); err != nil {
				return fmt.Errorf("create %s: %w", p.name, err)
			}
		}
		return nil
	})
}

// newPartition is a partition that does not exist yet.
type newPartition struct {
	table, with string
	name        string
	from        time.Time
}

// missing returns the partitions that do not exist yet, the next days first.
func (d *dayPartitions) missing(ctx context.Context, now time.Time) (missing []newPartition, err error) {
	today := now.UTC().Truncate(record.Day)
	var all []newPartition
	var names []string
	for ahead := -1; ahead <= partitionsAhead; ahead++ {
		for _, table := range partitioned {
			p := newPartition{table: table.name, with: table.with, from: today.AddDate(0, 0, ahead)}
			p.name = partition(p.table, p.from)
			all, names = append(all, p), append(names, p.name)
		}
	}
	rows, _ := d.pool.Query(ctx, `
		SELECT to_regclass(name) IS NOT NULL
		FROM unnest($1::text[]) WITH ORDINALITY AS n (name, i)
		ORDER BY i`, names) // CollectRows reports the error
	exists, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	if err != nil {
		return nil, fmt.Errorf("look for partitions: %w", err)
	}
	for i, p := range all {
		if !exists[i] {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// change runs change in one process at a time. After a change that failed, no process tries again for
// partitionPause. A table in use is no error.
func (d *dayPartitions) change(ctx context.Context, what string, change func() error) error {
	claimed, err := d.pool.Exec(ctx, `
		UPDATE partition_attempt
		SET next_at = `+postgres.Now+` + $2::interval
		WHERE what = $1 AND next_at <= (SELECT `+postgres.Now+`)`, what, partitionPause)
	if err != nil {
		return fmt.Errorf("claim a change of partitions: %w", err)
	}
	if claimed.RowsAffected() == 0 {
		return nil
	}
	err = change()
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "55P03" { // lock_not_available
		d.log.Info("a table is in use: its partitions change later", "change", what, "again_in", partitionPause, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := d.pool.Exec(ctx, `UPDATE partition_attempt SET next_at = '-infinity' WHERE what = $1`, what); err != nil {
		return fmt.Errorf("end a change of partitions: %w", err)
	}
	return nil
}

// limitLocks limits how long the transaction waits for a lock, and how long each of its statements runs.
func limitLocks(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`SELECT set_config('lock_timeout', '%d', true), set_config('statement_timeout', '%d', true)`,
		partitionWait.Milliseconds(), partitionHold.Milliseconds()))
	return err
}

// create creates a partition as a table of its own, moves the rows of its day from the default partition, and
// attaches it. Only the default partition is locked against readers and writers: the table itself needs a lock that
// conflicts with neither. CREATE TABLE … PARTITION OF would lock the table against both.
func (d *dayPartitions) create(ctx context.Context, p newPartition) error {
	first, last := p.from.Format(time.RFC3339), p.from.Add(record.Day).Format(time.RFC3339)
	rest := p.table + "_default"
	within := fmt.Sprintf(`nominal_at >= '%s' AND nominal_at < '%s'`, first, last)
	var early int
	err := d.pool.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM `+rest+` WHERE `+within+` LIMIT $1) e`, mostMoved+1).Scan(&early)
	if err != nil {
		return fmt.Errorf("count early rows: %w", err)
	}
	if early > mostMoved {
		d.log.Warn("a day keeps its rows in the default partition: they are too many to move", "partition", p.name)
		return nil
	}
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if err := limitLocks(ctx, tx); err != nil {
			return err
		}
		for _, sql := range []string{
			// A partition has no identity of its own: rows come through the table.
			`CREATE TABLE ` + p.name + ` (LIKE ` + p.table + ` INCLUDING ALL EXCLUDING IDENTITY EXCLUDING COMMENTS)` + p.with,
			`ALTER TABLE ` + p.name + ` ENABLE ROW LEVEL SECURITY`, // no role reaches it except through the table
			// As on the table itself: migrate forces policies only where the engine has BYPASSRLS.
			`DO $$ BEGIN IF (SELECT relforcerowsecurity FROM pg_class WHERE oid = '` + p.table + `'::regclass) THEN
				ALTER TABLE ` + p.name + ` FORCE ROW LEVEL SECURITY;
			END IF; END $$`,
			`LOCK TABLE ONLY ` + p.table + ` IN SHARE UPDATE EXCLUSIVE MODE`,
			`LOCK TABLE ONLY ` + rest + ` IN ACCESS EXCLUSIVE MODE`,
			`WITH early AS (DELETE FROM ` + rest + ` WHERE ` + within + ` RETURNING *) INSERT INTO ` + p.name + ` SELECT * FROM early`,
			`ALTER TABLE ` + p.table + ` ATTACH PARTITION ` + p.name + ` FOR VALUES FROM ('` + first + `') TO ('` + last + `')`,
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}
