package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
)

// devDatabaseLimit bounds the check of a given database.
const devDatabaseLimit = 10 * time.Second

// mayDevelopOn returns an error for a database with another use. `carillon dev` migrates the database, fires its schedules, and gives
// every program on this machine a token for any tenant.
func mayDevelopOn(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, devDatabaseLimit)
	defer cancel()
	found, err := whatElseUses(ctx, url)
	if err != nil || found == "" {
		return err
	}
	return misuse{fmt.Errorf("the database of --database-url %s: carillon dev would migrate it, fire its schedules, and give tokens for it to every program on this machine. Name another database, or pass --yes if this one is for development", found)}
}

// whatElseUses describes the first thing in a database that no earlier `carillon dev` made, or returns "".
func whatElseUses(ctx context.Context, url string) (string, error) {
	bare, err := postgres.Open(ctx, url, postgres.Options{Name: "carillon dev", MaxConns: 1})
	if err != nil {
		return "", err
	}
	defer bare.Close()
	var ours bool
	var others int
	err = bare.QueryRow(ctx, `
		SELECT to_regclass('goose_db_version') IS NOT NULL AND to_regclass('tenant') IS NOT NULL, count(*)
		FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'`).Scan(&ours, &others)
	if err != nil {
		return "", fmt.Errorf("look at the tables: %w", err)
	}
	if !ours {
		if others > 0 {
			return fmt.Sprintf("holds %d tables of another program", others), nil
		}
		return "", nil
	}
	engine, err := postgres.Open(ctx, url, postgres.Options{Name: "carillon dev", MaxConns: 1, Role: postgres.EngineRole})
	if err != nil {
		return "", err
	}
	defer engine.Close()
	return otherUse(ctx, engine)
}

// otherUse is whatElseUses for a database that has Carillon's tables. It looks for other tenants and for live processes.
func otherUse(ctx context.Context, engine *pgxpool.Pool) (string, error) {
	rows, _ := engine.Query(ctx, `SELECT name FROM tenant WHERE name <> $1 ORDER BY name LIMIT 1`, demoTenant) // CollectRows reports the error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("look at the tenants: %w", err)
	}
	if len(names) > 0 {
		return fmt.Sprintf("has the tenant %q", names[0]), nil
	}
	var name *string
	err = engine.QueryRow(ctx, `SELECT max(name) FROM process WHERE beat_at > `+postgres.Now+` - interval '10 seconds'`).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("look at the processes: %w", err)
	}
	if name != nil {
		return fmt.Sprintf("is in use by the process %s", *name), nil
	}
	return "", nil
}
