package dispatchtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// TracedDatabase returns a pool on a database of the test's own whose calls pass a tracer too.
func TracedDatabase(t *testing.T, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config := postgrestest.Database(t).Config()
	config.ConnConfig.Tracer = multitracer.New(config.ConnConfig.Tracer, tracer)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
