// Package postgrestest gives each test its own migrated database on a real PostgreSQL. It starts one server for each test process, at
// the first test that needs it; the server ends with the process, even after kill -9. If CARILLON_TEST_DATABASE_URL names a server, as a
// superuser, the tests use that one.
//
//	func TestMain(m *testing.M) { postgrestest.Main(m) }
//
//	func TestGetIsScopedToTenant(t *testing.T) {
//		t.Parallel()
//		pool := postgrestest.Database(t)
//		…
//	}
package postgrestest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Main runs the tests of a package, stops the server if one was started, and exits.
func Main(m *testing.M) {
	os.Exit(run(m))
}

// Runner runs the tests of a package as Main does, but leaves the exit to its caller. testscript.Main takes one.
type Runner struct{ M *testing.M }

// Run runs the tests, stops the server if one was started, and returns the exit code.
func (r Runner) Run() int { return run(r.M) }

// MainNoLeaks is Main that also fails if the tests leave a goroutine running.
func MainNoLeaks(m *testing.M, ignore ...goleak.Option) {
	code := run(m)
	if code == 0 {
		if err := goleak.Find(ignore...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// parallel is the default of -parallel. It is higher than the number of processors, because tests mostly wait.
const parallel = "5"

func run(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", parallel); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the test's PostgreSQL:", err)
		return 1
	}
	return code
}

// Database returns a pool on a migrated database for this test only. The database is dropped at the end of the test.
func Database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, URL(t))
}

// URL returns the URL of a migrated database for this test only. The database is dropped at the end of the test.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, true)
}

// EmptyURL is URL for a database without tables.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return create(t, false)
}

// As returns a second pool on the database of pool. Its queries run as role.
func As(t testing.TB, pool *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	return other(t, pool, map[string]string{"role": role})
}

// TenantPool returns the API's pool on the database of pool. A query without a tenant in its context belongs to tenantID, so that a test
// need not set the tenant in each context.
func TenantPool(t testing.TB, pool *pgxpool.Pool, tenantID int32) *postgres.TenantPool {
	t.Helper()
	return postgres.NewTestTenantPool(other(t, pool, map[string]string{"role": postgres.APIRole}), tenantID)
}

func other(t testing.TB, pool *pgxpool.Pool, params map[string]string) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	maps.Copy(config.ConnConfig.RuntimeParams, params)
	another, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(another.Close)
	return another
}

func open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	// Tests insert many rows in one statement while other tests run, so their statements have more time.
	pool, err := postgres.Open(t.Context(), url, postgres.Options{Name: "test", MaxConns: 10, StatementTimeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func create(t testing.TB, migrated bool) string {
	t.Helper()
	s, err := shared.start()
	if err != nil {
		t.Fatal(err)
	}
	name, err := s.clone(t.Context(), migrated)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return s.url(name)
}
