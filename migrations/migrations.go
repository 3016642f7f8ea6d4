// Package migrations brings a database to the schema of this program: our tables and River's. It holds one lock, so any number of
// processes can start at once. Afterwards it sets roles, grants and policies that isolate tenants (isolation.go).
//
// The files 0001 to 0008 are the baseline, read in order as the packages are: tenants, schedules, calendars, cohorts, dispatch, record,
// history. Until the first tagged version they are edited. From then on migrations only go forward, and older programs serve while a
// newer one migrates, so a later file keeps these rules (rules_test.go):
//
//   - It waits 200 ms for a lock, and is tried again later. So it is one transaction, or it can be repeated from its beginning.
//   - It creates an index concurrently, in a file of its own.
//   - It adds what a newer program needs, or drops what no program needs any longer, and never both. It renames nothing.
//   - It adds a constraint NOT VALID. A later file validates it.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/carillonhq/carillon/internal/postgres"
)

//go:embed sql/*.sql
var files embed.FS

const (
	unlimited = "0" // building an index can take any time

	// A migration waits briefly for a lock, because all queries behind it wait too. Then it gives up, and is tried again later.
	lockWait  = "200" // ms
	lockPause = 500 * time.Millisecond
	lockFor   = 10 * time.Minute
)

// Options say how to migrate.
type Options struct {
	Cell *int // the number of the installation, which keeps its ids apart from others; nil: unchanged, and 0 in a new database
}

// Up applies the pending migrations to the database at url, as its owner, and returns their number. It returns the error of
// postgres.Open if the URL is wrong or its server does not answer.
func Up(ctx context.Context, url string, o Options) (applied int, err error) {
	dir, err := fs.Sub(files, "sql")
	if err != nil {
		return 0, err
	}
	return up(ctx, url, o, dir)
}

func up(ctx context.Context, url string, o Options, dir fs.FS) (applied int, err error) {
	pool, err := postgres.Open(ctx, url, postgres.Options{Name: "carillon migrate", MaxConns: 4, Unlimited: true})
	if err != nil {
		return 0, err
	}
	config := pool.Config()
	pool.Close()
	maps.Copy(config.ConnConfig.RuntimeParams, map[string]string{
		"statement_timeout":                   unlimited,
		"idle_in_transaction_session_timeout": unlimited,
		"lock_timeout":                        lockWait,
	})
	if pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return 0, err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()

	provider, err := provide(db, pool, dir)
	if err != nil {
		return 0, err
	}
	err = whileLocked(ctx, func() error {
		results, err := provider.Up(ctx)
		applied += len(results)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			applied += len(partial.Applied)
		}
		return err
	})
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	if err := whileLocked(ctx, func() error { return isolate(ctx, pool) }); err != nil {
		return applied, fmt.Errorf("isolate tenants: %w", err)
	}
	return applied, whileLocked(ctx, func() error { return setCell(ctx, pool, o.Cell) })
}

// whileLocked repeats do while it fails because another transaction has locked a table. A failed do must leave no changes.
func whileLocked(ctx context.Context, do func() error) error {
	began := time.Now()
	for {
		err := do()
		e, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || e.Code != "55P03" { // lock_not_available
			return err
		}
		if time.Since(began) > lockFor {
			return fmt.Errorf("a table has been locked for %s; migrate again once the long transactions have ended: %w", lockFor, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(lockPause/2 + rand.N(lockPause)):
		}
	}
}

func provide(db *sql.DB, pool *pgxpool.Pool, dir fs.FS) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, dir,
		goose.WithGoMigrations(append(river(pool), isolating(pool))...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSessionLocker(sessionLock{}),
	)
}

// sessionLock is an advisory lock of the database. It polls for the lock: a waiting session holds a snapshot, and a CREATE INDEX
// CONCURRENTLY of the migrating process would never end.
type sessionLock struct{}

const (
	lockID    = 0x6361726c6c6e // "carlln"
	lockRetry = 50 * time.Millisecond
)

func (sessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for {
		var held bool
		err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, int64(lockID)).Scan(&held)
		if err != nil || held {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another process is still migrating: %w", ctx.Err())
		case <-time.After(lockRetry):
		}
	}
}

func (sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, int64(lockID))
	return err
}

// Latest returns the schema version of this program.
func Latest() int64 { return latest }

// Version returns the schema version of a database, 0 without any migration.
func Version(ctx context.Context, db postgres.DB) (int64, error) {
	applied, err := versions(ctx, db)
	if err != nil {
		return 0, err
	}
	var newest int64
	for v := range applied {
		newest = max(newest, v)
	}
	return newest, nil
}

// Pending returns the number of this program's migrations that a database lacks. A database that a newer program migrated lacks none.
func Pending(ctx context.Context, db postgres.DB) (int, error) {
	applied, err := versions(ctx, db)
	if err != nil {
		return 0, err
	}
	lacking := 0
	for _, v := range known {
		if !applied[v] {
			lacking++
		}
	}
	return lacking, nil
}

func versions(ctx context.Context, db postgres.DB) (map[int64]bool, error) {
	var exists bool
	err := db.QueryRow(ctx, `SELECT to_regclass('`+goose.DefaultTablename+`') IS NOT NULL`).Scan(&exists)
	if err != nil || !exists {
		return nil, err
	}
	rows, _ := db.Query(ctx, `
		SELECT version_id
		FROM `+goose.DefaultTablename+`
		WHERE is_applied AND version_id > 0`) // CollectRows reports the error
	list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	applied := make(map[int64]bool, len(list))
	for _, v := range list {
		applied[v] = true
	}
	return applied, err
}
