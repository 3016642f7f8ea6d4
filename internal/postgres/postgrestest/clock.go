package postgrestest

import (
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Clock is a database's clock, which stands still until it is moved: its functions hide PostgreSQL's own.
type Clock struct {
	Pool *pgxpool.Pool
	Now  time.Time
}

// StoppedClock is a migrated database whose clock stands at a moment, for the connections of its pool. For a test that reads the history
// of ticks it should be far ahead: history hides old ticks by the real clock.
func StoppedClock(t testing.TB, at time.Time) *Clock {
	t.Helper()
	raw, c := URL(t), &Clock{Now: at}
	open := func(url string) *pgxpool.Pool {
		pool, err := postgres.Open(t.Context(), url, postgres.Options{MaxConns: 10})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	plain := open(raw)
	_, err := plain.Exec(t.Context(), `
		CREATE SCHEMA stopped;
		CREATE TABLE stopped.clock (at timestamptz NOT NULL);
		INSERT INTO stopped.clock VALUES (now());
		GRANT USAGE ON SCHEMA stopped TO carillon_api, carillon_engine;
		GRANT SELECT ON stopped.clock TO carillon_api, carillon_engine;
		CREATE FUNCTION stopped.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM stopped.clock';
		CREATE FUNCTION stopped.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM stopped.clock';`)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", "stopped,pg_catalog,public")
	u.RawQuery = q.Encode()
	c.Pool = open(u.String())
	c.Move(t, 0)
	return c
}

// Move puts the clock forward.
func (c *Clock) Move(t testing.TB, by time.Duration) {
	t.Helper()
	c.Now = c.Now.Add(by)
	if _, err := c.Pool.Exec(t.Context(), `UPDATE stopped.clock SET at = $1`, c.Now); err != nil {
		t.Fatal(err)
	}
}
