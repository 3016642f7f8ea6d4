package migrations

import (
	"context"
	"database/sql"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverVersions maps our versions to River's: our version 2 brings River's tables to River's version 8. A River with more migrations
// needs another entry.
var riverVersions = map[int64]int{
	2: 8,
}

// known are the versions of this program in ascending order: those of the SQL files and those in Go.
var known, latest = func() ([]int64, int64) {
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		panic(err) // the pattern is ours
	}
	var list []int64
	for _, name := range names {
		v, err := goose.NumericComponent(name)
		if err != nil {
			panic(err) // a file of ours has a wrong name
		}
		list = append(list, v)
	}
	for v := range riverVersions {
		list = append(list, v)
	}
	list = append(list, isolationVersion)
	slices.Sort(list)
	return list, list[len(list)-1]
}()

// river returns the migrations of River's tables. They run outside a transaction, because River runs each of its steps in a transaction
// of its own. River records these steps, so an interrupted migration continues.
func river(pool *pgxpool.Pool) []*goose.Migration {
	var list []*goose.Migration
	for version, target := range riverVersions {
		up := func(ctx context.Context, _ *sql.DB) error { return riverUp(ctx, pool, target) }
		list = append(list, goose.NewGoMigration(version, &goose.GoFunc{RunDB: up}, nil))
	}
	return list
}

func riverUp(ctx context.Context, pool *pgxpool.Pool, target int) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, &rivermigrate.MigrateOpts{TargetVersion: target}); err != nil {
		return err
	}
	// We search no jobs by their content, and these two indexes at least halve the rate of inserts.
	_, err = pool.Exec(ctx, `DROP INDEX IF EXISTS river_job_args_index, river_job_metadata_index`)
	return err
}
