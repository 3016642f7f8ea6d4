package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/tenants"
)

// attempt runs `carillon dev` on a database until it is ready or refuses, and returns its output.
func attempt(t *testing.T, environment map[string]string, flags ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), inTime)
	defer cancel()
	var stderr bytes.Buffer
	args := append([]string{"dev", "--listen", "127.0.0.1:0", "--ephemeral", "--no-demo", "--for", "1ms"}, flags...)
	code = run(ctx, args, func(name string) string { return environment[name] }, io.Discard, &stderr)
	return code, stderr.String()
}

func tables(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// DATABASE_URL names a database with another use: carillon dev does not touch it, and says so.
func TestDevLeavesDATABASE_URLAlone(t *testing.T) {
	t.Parallel()
	url := postgrestest.EmptyURL(t)
	code, said := attempt(t, map[string]string{"DATABASE_URL": url})
	if code != exitDone || !strings.Contains(said, "--database-url") {
		t.Errorf("got %d: %s", code, said)
	}
	if n := tables(t, url); n != 0 {
		t.Errorf("it made %d tables", n)
	}
}

func TestDevRefusesDatabasesOfOthers(t *testing.T) {
	t.Parallel()
	foreign := postgrestest.EmptyURL(t)
	execute(t, foreign, `CREATE TABLE invoice (id int)`)
	served := postgrestest.URL(t)
	// It beats once, an hour ahead, so it counts as alive however long the test takes.
	execute(t, served, `INSERT INTO process (name, place, pid, sweeps, dispatches, beat_at) VALUES ('prod/1', 'x', 1, true, true, now() + interval '1 hour')`)
	staging := postgrestest.Database(t)
	if _, err := tenants.Ensure(t.Context(), staging, "acme", tenants.Defaults()); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		foreign:                       "holds 1 tables of another program",
		served:                        "is in use by the process prod/1",
		staging.Config().ConnString(): `has the tenant "acme"`,
	} {
		before := tables(t, url)
		code, said := attempt(t, map[string]string{"CARILLON_DEV_DATABASE_URL": url})
		if code != exitMisuse || !strings.Contains(said, want) || tables(t, url) != before {
			t.Errorf("want %q, got %d: %s", want, code, said)
		}
		if code, said := attempt(t, nil, "--database-url", url, "--yes"); code != exitDone {
			t.Errorf("with --yes: got %d: %s", code, said)
		}
	}
	own := postgrestest.EmptyURL(t)
	code, said := attempt(t, nil, "--database-url", own)
	if code != exitDone || tables(t, own) == 0 {
		t.Errorf("an empty database: got %d: %s", code, said)
	}
	if strings.Contains(said, "cannot remove this process from the members") { // then it counts as alive for a while
		conn := connectTo(t, own)
		until(t, "the process counts as dead", func() (dead bool) {
			err := conn.QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT FROM process WHERE beat_at > clock_timestamp() - interval '10 seconds')`).Scan(&dead)
			if err != nil {
				t.Fatal(err)
			}
			return dead
		})
	}
	if code, said := attempt(t, nil, "--database-url", own); code != exitDone {
		t.Errorf("its own, again: got %d: %s", code, said)
	}
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
