// Package shiftedclock gives a test database a clock that a test can put forward. The program under test is the real one: all its SQL
// reads the time through functions of PostgreSQL, and the functions of the schema "shifted" take their place.
package shiftedclock

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Install adds the clock to a database, which may be migrated or not. It also changes the column defaults that read the time. The clock
// shows the true time until Forward is called. Only connections that use the URL from URL read this clock in their own SQL.
func Install(ctx context.Context, db postgres.DB) error {
	_, err := db.Exec(ctx, `
		CREATE SCHEMA shifted;
		CREATE TABLE shifted.clock (ahead interval NOT NULL);
		INSERT INTO shifted.clock VALUES ('0');
		GRANT USAGE ON SCHEMA shifted TO PUBLIC;
		GRANT SELECT ON shifted.clock TO PUBLIC;
		CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM shifted.clock';
		CREATE FUNCTION shifted.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT pg_catalog.statement_timestamp() + ahead FROM shifted.clock';
		CREATE FUNCTION shifted.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT pg_catalog.now() + ahead FROM shifted.clock';
		DO $$
		DECLARE d record;
		BEGIN
			FOR d IN
				SELECT c.oid::regclass AS of, quote_ident(a.attname) AS name, pg_get_expr(def.adbin, def.adrelid) AS read
				FROM pg_attrdef def
				JOIN pg_class c ON c.oid = def.adrelid AND c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
				JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = def.adnum
				WHERE pg_get_expr(def.adbin, def.adrelid) IN ('now()', 'clock_timestamp()')
			LOOP
				EXECUTE format('ALTER TABLE %s ALTER %s SET DEFAULT shifted.%s', d.of, d.name, d.read);
			END LOOP;
		END $$`)
	if err != nil {
		return fmt.Errorf("install a clock that can be put forward: %w", err)
	}
	return nil
}

// URL returns a URL of the same database. Connections that use it read the shifted clock.
func URL(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("search_path", "public,shifted,pg_catalog")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// Forward puts the clock forward. The processes stay alive: their heartbeats move with the clock.
func Forward(ctx context.Context, db postgres.DB, by time.Duration) error {
	_, err := db.Exec(ctx, `
		WITH put AS (UPDATE shifted.clock SET ahead = ahead + make_interval(secs => $1))
		UPDATE process SET beat_at = beat_at + make_interval(secs => $1)`, by.Seconds())
	if err != nil {
		return fmt.Errorf("put the clock forward: %w", err)
	}
	return nil
}

// Due reports whether due ticks are not handed out yet. Ticks that wait for a tenant's rate or for another tick are not due.
func Due(ctx context.Context, db postgres.DB) (due bool, err error) {
	err = db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM cohort WHERE due_at <= clock_timestamp()) OR EXISTS (SELECT FROM delayed WHERE due_at <= clock_timestamp())
			OR EXISTS (SELECT FROM chunk WHERE opened_at IS NULL)`).Scan(&due)
	return due, err
}

// Waiting returns a text for an error message. It describes the due work and the processes.
func Waiting(ctx context.Context, db postgres.DB) (text string) {
	err := db.QueryRow(ctx, `
		SELECT json_build_object(
			'cohorts', (SELECT json_agg(c) FROM (SELECT shard, id, due_at, run_at FROM cohort WHERE due_at <= clock_timestamp() LIMIT 5) c),
			'delayed', (SELECT json_agg(d) FROM (SELECT shard, due_at, why, waits_for FROM delayed WHERE due_at <= clock_timestamp() LIMIT 5) d),
			'chunks', (SELECT json_agg(c) FROM (SELECT id, shard, kind, lane, swept_at, owner FROM chunk WHERE opened_at IS NULL LIMIT 5) c),
			'processes', (SELECT json_agg(p) FROM (SELECT id, name, clock_timestamp() - beat_at AS age FROM process ORDER BY id DESC LIMIT 5) p),
			'jobs', (SELECT json_agg(j) FROM (SELECT id, kind, state, queue, scheduled_at FROM river_job WHERE state <> 'completed' LIMIT 5) j))::text`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}
