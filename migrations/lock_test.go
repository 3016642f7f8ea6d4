package migrations_test

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/migrations"
)

// A migration that waits for a locked table lets other queries pass. It is applied after the lock is released.
func TestALockedTableHoldsUpNoQuery(t *testing.T) {
	t.Parallel()
	url := postgrestest.EmptyURL(t)
	if _, err := migrations.Up(t.Context(), url, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	pool := open(t, url)
	long, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = long.Rollback(t.Context()) }()
	if _, err := long.Exec(t.Context(), `SELECT FROM tenant`); err != nil {
		t.Fatal(err)
	}

	dir := later(t, "0100_later.sql", "-- +goose Up\nALTER TABLE tenant ADD COLUMN later int;\n")
	type result struct {
		applied int
		err     error
	}
	done := make(chan result, 1)
	go func() {
		applied, err := migrations.UpWith(t.Context(), url, dir)
		done <- result{applied, err}
	}()
	for waits := 0; waits < 2; { // it waits, gives up and waits again
		var waiting bool
		if err := pool.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE tenant%')`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if !waiting {
			continue
		}
		waits++
		began := time.Now()
		if _, err := pool.Exec(t.Context(), `SELECT FROM tenant`); err != nil {
			t.Errorf("a query behind the migration: %v", err)
		}
		t.Logf("a query waited %s", time.Since(began))
	}
	select {
	case r := <-done:
		t.Fatalf("it ended while the table was locked: %+v", r)
	default:
	}
	if err := long.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || r.applied != 1 {
		t.Errorf("got %d applied, %v", r.applied, r.err)
	}
}

// later returns the files of the schema and one more.
func later(t *testing.T, name, text string) fs.FS {
	t.Helper()
	dir := fstest.MapFS{name: {Data: []byte(text)}}
	for _, f := range schemaFiles(t) {
		data, err := os.ReadFile(f.name)
		if err != nil {
			t.Fatal(err)
		}
		dir[f.name[len("sql/"):]] = &fstest.MapFile{Data: data}
	}
	return dir
}
