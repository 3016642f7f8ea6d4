package migrations_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/migrations"
)

func TestMain(m *testing.M) { postgrestest.MainNoLeaks(m) }

func TestFourAtOnce(t *testing.T) {
	t.Parallel()
	url := postgrestest.EmptyURL(t)
	pool := open(t, url)
	pending, err := migrations.Pending(t.Context(), pool)
	if err != nil || pending < 2 {
		t.Fatalf("got %d pending, %v in an empty database", pending, err)
	}
	if v, err := migrations.Version(t.Context(), pool); err != nil || v != 0 {
		t.Errorf("got version %d, %v of an empty database", v, err)
	}

	type result struct {
		applied int
		err     error
	}
	results := make(chan result)
	for range 4 {
		go func() {
			applied, err := migrations.Up(t.Context(), url, migrations.Options{})
			results <- result{applied, err}
		}()
	}
	applied := make([]int, 4)
	for i := range applied {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		applied[i] = r.applied
	}
	// A run that waits too long for a lock lets another run continue, so both may apply migrations. Each migration is applied once.
	sum := 0
	for _, n := range applied {
		sum += n
	}
	if sum != pending {
		t.Errorf("applied %v, want %d in all", applied, pending)
	}
	if v, err := migrations.Version(t.Context(), pool); err != nil || v != migrations.Latest() {
		t.Errorf("got version %d, %v, want %d", v, err, migrations.Latest())
	}
	if pending, err := migrations.Pending(t.Context(), pool); err != nil || pending != 0 {
		t.Errorf("got %d pending, %v afterwards", pending, err)
	}
}

func TestRiverIsAtItsNewest(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := migrator.Validate(t.Context(), nil)
	if err != nil || !result.OK {
		t.Errorf("River wants more than riverVersions has: %v, %v", result, err)
	}
}

func TestRiverJobsHaveNoIndexOfTheirContent(t *testing.T) {
	t.Parallel()
	rows, _ := postgrestest.Database(t).Query(t.Context(), `
		SELECT am.amname || ' ' || i.relname
		FROM pg_index x
		JOIN pg_class i ON i.oid = x.indexrelid
		JOIN pg_am am ON am.oid = i.relam
		WHERE x.indrelid = 'river_job'::regclass
		ORDER BY 1`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := []string{
		"btree river_job_kind",
		"btree river_job_operation",
		"btree river_job_pkey",
		"btree river_job_prioritized_fetching_index",
		"btree river_job_state_and_finalized_at_index",
		"btree river_job_unique_idx",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
