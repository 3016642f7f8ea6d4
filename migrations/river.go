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

// riverVersions says which of our versions brings River's tables to which of River's. A River that has more of its own
// migrations gets a further line.
var riverVersions = map[int64]int{
	2: 8,
}

// known are the versions of this program in order: the numbers of the SQL files, and those in Go.
var known, latest = func() ([]int64, int64) {
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		panic(err) // the pattern is ours
	}
	var list []int64
	for _, name := range names {
		v, err := goose.NumericComponent(name)
		if err != nil {
			panic(err) // a file of ours is misnamed
		}
		list = append(list, v)
	}
	for v := range riverVersions {
		list = append(list, v)
	}
	list = append(list, wallVersion)
	slices.Sort(list)
	return list, list[len(list)-1]
}()

// river are the migrations of River's own tables. They run outside a transaction, because River puts each of its steps
// into one of its own; it keeps count of them, so one that was cut short is taken up again.
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
	// Nothing of ours searches jobs by what is in them, and these two halve the rate of inserting jobs, or worse.
	_, err = pool.Exec(ctx, `DROP INDEX IF EXISTS river_job_args_index, river_job_metadata_index`)
	return err
}
