package upkeep

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// A day's partition leaves the record in three steps, and a crash between two of them loses nothing: the next run finds the
// table and continues.
//
//  1. The ticks of the day that never ended are cancelled, while all goes on.
//  2. The partition is detached, which takes a short lock. No query sees its rows from then on.
//  3. Ticks that became live since step 1 return to the table, into its default partition, and are cancelled there. The
//     detached table is dropped.
//
// A search under the lock of step 2 would stop all queries for as long as it reads the day.

// searchBlocks is how many blocks one query reads to find live ticks: 64 MB.
const searchBlocks = 8192

// dayTable is a table with one day of rows: a partition, or a table that was detached and is not dropped yet.
type dayTable struct {
	Name     string
	Attached bool
	table    string
	from     time.Time // zero: the default partition
}

var dayName = regexp.MustCompile(`^[a-z]+_([0-9]{8})$`)

// dayTables returns the partitions of a table and its detached partitions, the oldest day first.
func dayTables(ctx context.Context, db postgres.DB, table string) ([]dayTable, error) {
	rows, _ := db.Query(ctx, `
		SELECT c.relname AS name, c.relispartition AS attached
		FROM pg_class c
		WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = $1::regclass) AND c.relkind = 'r'
			AND (c.relname = $1 || '_default' OR c.relname ~ ('^' || $1 || '_[0-9]{8}$'))
		ORDER BY c.relname`, table) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[dayTable])
	if err != nil {
		return nil, fmt.Errorf("list partitions of %s: %w", table, err)
	}
	for i := range found {
		p := &found[i]
		p.table = table
		if m := dayName.FindStringSubmatch(p.Name); m != nil {
			if p.from, err = time.Parse("20060102", m[1]); err != nil {
				return nil, fmt.Errorf("partition %s: %w", p.Name, err)
			}
		}
	}
	return found, nil
}

// past reports whether the whole day is over at a moment. The default partition never is.
func (p dayTable) past(moment time.Time) bool {
	return !p.from.IsZero() && !p.from.Add(record.Day).After(moment)
}

// drop drops the partitions that not even the tenant with the longest retention keeps. In the default partition it cancels the
// ticks of such days that never ended.
func (d *dayPartitions) drop(ctx context.Context, a ages, now time.Time) error {
	if a.unread {
		return nil
	}
	var errs []error
	for _, table := range partitioned {
		found, err := dayTables(ctx, d.pool, table.name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		oldest := ago(now, days(table.name, a.longest))
		for _, p := range found {
			if p.past(oldest) || !p.Attached {
				errs = append(errs, d.dropDay(ctx, p))
			}
		}
		if table.name == "tick" {
			errs = append(errs, d.cancelLive(ctx, "tick_default", oldest))
		}
	}
	return errors.Join(errs...)
}

// dropDay detaches and drops the partition of a day. If the table is in use, it leaves the day to a later run.
func (d *dayPartitions) dropDay(ctx context.Context, p dayTable) error {
	if p.Attached {
		if p.table == "tick" {
			if err := d.cancelLive(ctx, p.Name, p.from.Add(record.Day)); err != nil {
				return err
			}
		}
		detached := false
		err := d.change(ctx, "drop", func() error {
			err := d.detach(ctx, p)
			detached = err == nil
			return err
		})
		if err != nil || !detached {
			return err
		}
	}
	if p.table == "tick" {
		if err := d.returnLive(ctx, p.Name); err != nil {
			return err
		}
	}
	if _, err := d.pool.Exec(ctx, `DROP TABLE IF EXISTS `+p.Name); err != nil {
		return fmt.Errorf("drop %s: %w", p.Name, err)
	}
	return nil
}

// detach detaches a partition under a short lock. The error has code 55P03 if the table is in use.
func (d *dayPartitions) detach(ctx context.Context, p dayTable) error {
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if err := limitLocks(ctx, tx); err != nil {
			return err
		}
		// The table waits for its readers and writers. A session that uses a partition alone is not waited for.
		if _, err := tx.Exec(ctx, `LOCK TABLE ONLY `+p.table+` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `LOCK TABLE ONLY `+p.table+`_default, ONLY `+p.Name+` IN ACCESS EXCLUSIVE MODE NOWAIT`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `ALTER TABLE `+p.table+` DETACH PARTITION `+p.Name)
		return err
	})
	if err != nil {
		return fmt.Errorf("detach %s: %w", p.Name, err)
	}
	return nil
}

// blockSearch searches tables by ranges of their blocks. A search that stops continues there the next time.
type blockSearch struct {
	pool    *pgxpool.Pool
	stopped sync.Map // by the name of a search: the blocks that it has read
}

// each calls fn for ranges of a table's blocks, from where an earlier search with the same name, what, stopped. It may miss rows
// that are written meanwhile.
func (b *blockSearch) each(ctx context.Context, what, name string, fn func(from, to pgtype.TID) error) error {
	var blocks int64
	err := b.pool.QueryRow(ctx, `SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint`, name).Scan(&blocks)
	if err != nil {
		return fmt.Errorf("read the size of %s: %w", name, err)
	}
	tid := func(block int64) pgtype.TID { return pgtype.TID{BlockNumber: uint32(block), Valid: true} }
	at := int64(0)
	if stopped, ok := b.stopped.Load(what); ok {
		at = stopped.(int64)
	}
	for ; at < blocks; at += searchBlocks {
		if err := fn(tid(at), tid(at+searchBlocks)); err != nil {
			return err
		}
		b.stopped.Store(what, at+searchBlocks)
	}
	b.stopped.Delete(what)
	return nil
}

// cancelLive cancels the ticks of a partition with times before a moment that never ended, so that no schedule waits for them. It logs
// a tick that cannot be cancelled, and continues.
func (d *dayPartitions) cancelLive(ctx context.Context, name string, before time.Time) error {
	return d.blocks.each(ctx, "live ticks of "+name, name, func(from, to pgtype.TID) error {
		rows, _ := d.pool.Query(ctx, `
			SELECT tenant_id, schedule_id, nominal_at, seq
			FROM `+name+`
			WHERE ctid >= $1 AND ctid < $2 AND state IN (0, 1) AND nominal_at < $3`, from, to, before) // CollectRows reports the error
		live, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tenantTick])
		if err != nil {
			return fmt.Errorf("look for live ticks of %s: %w", name, err)
		}
		for _, one := range live {
			key := ident.TickKey{Schedule: one.ScheduleID, At: one.NominalAt.UTC(), Seq: one.Seq}
			if err := d.giveUp(ctx, tenants.ID(one.TenantID), key); err != nil && ctx.Err() == nil {
				d.log.Error("a tick that is past its retention cannot be cancelled", "tenant", one.TenantID, "schedule", one.ScheduleID, "error", err)
			}
		}
		return ctx.Err()
	})
}

// returnLive moves the live ticks of a detached partition back into the table.
func (d *dayPartitions) returnLive(ctx context.Context, name string) error {
	return d.blocks.each(ctx, "ticks left in "+name, name, func(from, to pgtype.TID) error {
		_, err := d.pool.Exec(ctx, `
			WITH live AS (
				DELETE FROM `+name+`
				WHERE ctid >= $1 AND ctid < $2 AND state IN (0, 1)
				RETURNING *
			)
			INSERT INTO tick
			SELECT *
			FROM live
			ON CONFLICT DO NOTHING`, from, to) // a tick that was put back from its dead letter meanwhile is newer
		if err != nil {
			return fmt.Errorf("return live ticks of %s: %w", name, err)
		}
		return nil
	})
}

type tenantTick struct {
	TenantID   int32
	ScheduleID int64
	NominalAt  time.Time
	Seq        int32
}
