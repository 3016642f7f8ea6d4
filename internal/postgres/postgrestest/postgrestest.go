// Package postgrestest gives each test a migrated database of its own on a real PostgreSQL. The server is started once
// a test process, when the first test asks, and ends with the process however that ends. A server named by
// CARILLON_TEST_DATABASE_URL (as a superuser) is used instead where it is set.
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

// MainNoLeaks is Main, and fails where tests that passed left a goroutine behind.
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

// atOnce is how many parallel tests run at once, unless -parallel says otherwise: they wait most of their time.
const atOnce = "5"

func run(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
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

// Database returns a pool on a migrated database that is this test's alone and goes with it.
func Database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, URL(t))
}

// URL returns where a migrated database is that is this test's alone and goes with it.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, true)
}

// EmptyURL is URL, of a database without a single table.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return create(t, false)
}

// As returns another pool on the database of one, whose queries run as a role.
func As(t testing.TB, pool *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	return other(t, pool, map[string]string{"role": role})
}

// Wall returns what tenants' requests go by on the database of a pool. A context that says no tenant is of the one given:
// a test of a package's face is spared to say it each time, as a request's token does.
func Wall(t testing.TB, pool *pgxpool.Pool, tenantID int32) *postgres.Wall {
	t.Helper()
	return postgres.NewTestWall(other(t, pool, map[string]string{"role": postgres.APIRole}), tenantID)
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
	// Tests lay many rows at once, beside others: their statements have longer than ours.
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
