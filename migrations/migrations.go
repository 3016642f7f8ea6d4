// Package migrations brings a database to the form this program works with: our tables and River's, under one lock, so
// that any number of processes may start at once. Migrations go forward only and are never edited once released.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/carillonhq/carillon/internal/postgres"
)

//go:embed sql/*.sql
var files embed.FS

// unlimited are the limits that a migration must not run into: building an index takes as long as it takes. A lock is
// waited for as by anyone, rather than holding up all that queue behind us.
const (
	unlimited = "0"
	patience  = "60000" // ms
)

// Options say how to migrate.
type Options struct {
	Cell *int // the number of the installation, whose ids no other has; nil: as it is, and 0 in a new database
}

// Up applies the pending migrations to the database at url, as its owner, and returns their number. It returns the error of
// postgres.Open if the URL is wrong or its server does not answer.
func Up(ctx context.Context, url string, o Options) (applied int, err error) {
	pool, err := postgres.Open(ctx, url, postgres.Options{Name: "carillon migrate", MaxConns: 4, Unlimited: true})
	if err != nil {
		return 0, err
	}
	config := pool.Config()
	pool.Close()
	maps.Copy(config.ConnConfig.RuntimeParams, map[string]string{
		"statement_timeout":                   unlimited,
		"idle_in_transaction_session_timeout": unlimited,
		"lock_timeout":                        patience,
	})
	if pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return 0, err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()

	provider, err := provide(db, pool)
	if err != nil {
		return 0, err
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	if err := raise(ctx, pool); err != nil {
		return 0, fmt.Errorf("keep tenants apart: %w", err)
	}
	if err := setCell(ctx, pool, o.Cell); err != nil {
		return 0, err
	}
	return len(results), nil
}

func provide(db *sql.DB, pool *pgxpool.Pool) (*goose.Provider, error) {
	dir, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, dir,
		goose.WithGoMigrations(append(river(pool), walling(pool))...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSessionLocker(sessionLock{}),
	)
}

// sessionLock is an advisory lock of the database. It is tried for rather than waited for: a session that waits holds
// a snapshot, which would keep a CREATE INDEX CONCURRENTLY of the one that migrates from ever ending.
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
			return fmt.Errorf("another process has been migrating all this time: %w", ctx.Err())
		case <-time.After(lockRetry):
		}
	}
}

func (sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, int64(lockID))
	return err
}

// Latest is the version this program works with.
func Latest() int64 { return latest }

// Version is what a database has been brought to: 0 for one that nothing was applied to.
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

// Pending is how many migrations of this program a database still lacks. One that is ahead of this program, as after
// the start of a newer one, lacks none.
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
